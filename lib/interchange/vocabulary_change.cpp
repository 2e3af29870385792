#include "interchange/vocabulary_change.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <concepts>
#include <cstring>
#include <limits>
#include <set>

#include "core/error.hpp"
#include "data/line_reader.hpp"
#include "interchange/formats.hpp"

namespace argosy::interchange {
namespace {

std::int64_t columns_of(const spec::Parameter& parameter) { return parameter.numel() / parameter.shape.front(); }

/// Calls visit(first row, rows) for pieces of a parameter's rows [begin, end) that fit a buffer.
template <class F>
void by_rows(const model::WeightSource& weights, const spec::Parameter& parameter, std::int64_t begin, std::int64_t end,
             F&& visit) {
  const std::int64_t columns = columns_of(parameter), together = std::max<std::int64_t>(1, (1 << 20) / columns);
  std::vector<float> values;
  for (std::int64_t row = begin; row < end; row += together) {
    values.resize(static_cast<std::size_t>(std::min(together, end - row) * columns));
    weights.read(parameter, row * columns, values);
    visit(row, std::span<const float>{values});
  }
}

/// The old weights with other rows.
class MappedWeights final : public model::WeightSource {
 public:
  MappedWeights(const model::StoredModel& old, const VocabularyChange& change) : old_(old), old_ids_(change.old_ids) {
    const spec::Vocabulary& vocabulary = old_.tokenizer.vocabulary();
    has_dead_pad_ = vocabulary.pad && vocabulary.is_dead(*vocabulary.pad);
    added_at_ = std::ranges::find(old_ids_, -1) - old_ids_.begin();
    for (const spec::Unit& unit : old_.spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) {
        if (!parameter.is_by_id()) continue;
        by_id_.emplace(parameter.name, &parameter);
        if (!change.added.empty()) made_.emplace(parameter.name, means(parameter, change));
      }
    }
  }

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    const auto found = by_id_.find(parameter.name);
    if (found == by_id_.end()) return old_.weights->read(parameter, begin, to);
    const std::int64_t columns = columns_of(parameter), end = begin + std::ssize(to);
    const std::int64_t first = begin / columns, last = (end + columns - 1) / columns;
    std::ranges::fill(to, parameter.role == spec::Role::head_bias ? -1e4F : 0.0F);
    // The part of row `row`, whose values are given, that was asked for.
    const auto put = [&](std::int64_t row, std::span<const float> values) {
      const std::int64_t from = std::max(begin, row * columns), until = std::min(end, (row + 1) * columns);
      std::ranges::copy(
          values.subspan(static_cast<std::size_t>(from - row * columns), static_cast<std::size_t>(until - from)),
          to.begin() + (from - begin));
    };
    const auto width = static_cast<std::size_t>(columns);
    const std::int64_t until = std::min(last, std::ssize(old_ids_));
    std::vector<std::pair<std::int64_t, std::int64_t>> kept;  // old and new rows
    for (std::int64_t row = first; row < until; ++row)
      if (const std::int64_t old = old_ids_[static_cast<std::size_t>(row)]; old >= 0) kept.emplace_back(old, row);
    if (!kept.empty()) {
      auto next = kept.begin();
      by_rows(*old_.weights, *found->second, kept.front().first, kept.back().first + 1,
              [&](std::int64_t row, std::span<const float> values) {
                const std::int64_t after = row + std::ssize(values) / columns;
                for (; next != kept.end() && next->first < after; ++next)
                  put(next->second, values.subspan(static_cast<std::size_t>(next->first - row) * width, width));
              });
    }
    // A dead pad is the last row of both: decoders start from it.
    const std::int64_t pad = parameter.shape.front() - 1;
    if (has_dead_pad_ && last > pad) {
      std::vector<float> values(width);
      old_.weights->read(*found->second, (found->second->shape.front() - 1) * columns, values);
      put(pad, values);
    }
    const auto made = made_.find(parameter.name);
    if (made == made_.end()) return;
    const std::int64_t all = added_at_ + std::ssize(made->second) / columns;
    for (std::int64_t row = std::max(first, added_at_); row < std::min(last, all); ++row)
      put(row, std::span{made->second}.subspan(static_cast<std::size_t>(row - added_at_) * width, width));
  }

 private:
  /// The rows of the added pieces.
  [[nodiscard]] std::vector<float> means(const spec::Parameter& parameter, const VocabularyChange& change) const {
    const auto columns = static_cast<std::size_t>(columns_of(parameter));
    std::multimap<std::int64_t, std::size_t> needed;  // old id, index of an added piece
    for (std::size_t a = 0; a < change.added.size(); ++a)
      for (const std::int64_t id : change.added[a].made_of) needed.emplace(id, a);
    std::vector<double> sums(change.added.size() * columns, 0.0);
    by_rows(*old_.weights, parameter, 0, old_.tokenizer.vocabulary().pieces,
            [&](std::int64_t row, std::span<const float> values) {
              const std::int64_t after = row + static_cast<std::int64_t>(values.size() / columns);
              for (auto at = needed.lower_bound(row); at != needed.end() && at->first < after; ++at) {
                const float* from = values.data() + static_cast<std::size_t>(at->first - row) * columns;
                for (std::size_t c = 0; c < columns; ++c) sums[at->second * columns + c] += double{from[c]};
              }
            });
    std::vector<float> rows(sums.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<float>(sums[i] / static_cast<double>(change.added[i / columns].made_of.size()));
    return rows;
  }

  const model::StoredModel& old_;
  const std::vector<std::int64_t> old_ids_;  // as in VocabularyChange
  std::int64_t added_at_ = 0;
  bool has_dead_pad_ = false;
  std::map<std::string, const spec::Parameter*> by_id_;  // of the old model
  std::map<std::string, std::vector<float>> made_;
};

/// vocab_map.json: the new id of each old one, and what added pieces are made of.
std::string map_text(const model::StoredModel& old, const data::Tokenizer& tokenizer, const VocabularyChange& change) {
  const spec::Vocabulary &before = old.tokenizer.vocabulary(), &after = tokenizer.vocabulary();
  boost::json::array ids(static_cast<std::size_t>(before.rows));  // of null
  const std::vector<std::int64_t>& old_ids = change.old_ids;
  for (std::size_t id = 0; id < old_ids.size(); ++id)
    if (old_ids[id] >= 0) ids[static_cast<std::size_t>(old_ids[id])] = static_cast<std::int64_t>(id);
  if (before.pad && before.is_dead(*before.pad)) ids[static_cast<std::size_t>(*before.pad)] = after.pad.value();
  const std::int64_t added_at = std::ranges::find(old_ids, -1) - old_ids.begin();
  boost::json::array added;
  for (std::size_t a = 0; a < change.added.size(); ++a) {
    added.push_back({{"piece", change.added[a].piece},
                     {"id", added_at + static_cast<std::int64_t>(a)},
                     {"mean_of", boost::json::value_from(change.added[a].made_of)}});
  }
  return pretty(boost::json::object{{"old_tokenizer", old.tokenizer.digest().hex()},
                                    {"new_tokenizer", tokenizer.digest().hex()},
                                    {"old_rows", before.rows},
                                    {"new_rows", after.rows},
                                    {"new_ids", std::move(ids)},
                                    {"added", std::move(added)}});
}

[[noreturn]] void failed(const std::string& what, const std::string& wanted, const std::string& got) {
  throw_claim(
      Fault::internal,
      fmt::format("the self-test of the changed vocabulary failed: {} is {} and should be {}", what, got, wanted),
      "the changed vocabulary", wanted, got, "nothing was written; report this with the tokenizer and the text");
}

/// The pieces of both models, by their spelling.
class PiecesOfBoth {
 public:
  PiecesOfBoth(const data::Tokenizer& old, const data::Tokenizer& changed) : old_(old) {
    std::map<std::string, std::int64_t> by_text;
    for (std::int64_t id = 0; id < old.spelled_ids(); ++id) by_text.emplace(old.piece(id), id);
    for (std::int64_t id = 0; id < changed.spelled_ids(); ++id) {
      const auto found = by_text.find(changed.piece(id));
      old_id_.push_back(found == by_text.end() ? -1 : found->second);
      if (found != by_text.end()) kept_.insert(found->second);
    }
  }
  /// -1: the old model has no such piece.
  [[nodiscard]] std::int64_t old_id(std::int64_t id) const { return old_id_[static_cast<std::size_t>(id)]; }
  /// Of the ids that the changed tokenizer spells.
  [[nodiscard]] std::int64_t size() const { return std::ssize(old_id_); }
  [[nodiscard]] bool keeps_all(const std::vector<std::int32_t>& old_ids) const {
    return std::ranges::all_of(old_ids, [&](std::int32_t id) { return kept_.contains(id); });
  }
  [[nodiscard]] bool has_new(const std::vector<std::int32_t>& ids) const {
    return std::ranges::any_of(ids, [&](std::int32_t id) { return old_id(id) < 0; });
  }
  [[nodiscard]] bool same(const std::vector<std::int32_t>& old_ids, const std::vector<std::int32_t>& ids) const {
    return std::ranges::equal(old_ids, ids, [&](std::int32_t a, std::int32_t b) { return a == old_id(b); });
  }
  [[nodiscard]] std::string piece(std::int64_t old_id) const { return old_.piece(old_id); }

 private:
  const data::Tokenizer& old_;
  std::vector<std::int64_t> old_id_;  // by new id
  std::set<std::int64_t> kept_;
};

/// Rows of equal pieces have equal bits.
void check_rows(const model::StoredModel& old, const model::StoredModel& changed, const PiecesOfBoth& pieces) {
  for (const spec::Unit& unit : changed.spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      if (!parameter.is_by_id()) continue;
      spec::Parameter before = parameter;
      before.shape.front() = old.tokenizer.vocabulary().rows;
      const auto columns = static_cast<std::size_t>(columns_of(parameter));
      std::map<std::int64_t, std::int64_t> new_id;  // by old id
      for (std::int64_t id = 0; id < pieces.size(); ++id)
        if (pieces.old_id(id) >= 0) new_id.emplace(pieces.old_id(id), id);
      std::vector<float> all(static_cast<std::size_t>(pieces.size()) * columns);
      changed.weights->read(parameter, 0, all);
      by_rows(*old.weights, before, 0, old.tokenizer.vocabulary().pieces,
              [&](std::int64_t row, std::span<const float> values) {
                for (std::size_t i = 0; i * columns < values.size(); ++i) {
                  const auto found = new_id.find(row + static_cast<std::int64_t>(i));
                  if (found == new_id.end()) continue;
                  const float* const is = all.data() + static_cast<std::size_t>(found->second) * columns;
                  if (std::memcmp(is, values.data() + i * columns, columns * sizeof(float)) != 0)
                    failed(fmt::format("row {} of {}", found->second, parameter.name),
                           fmt::format("that of the piece \"{}\"", pieces.piece(found->first)), "another");
                }
              });
    }
  }
}

/// A line as both sides of a translation model encode it, or as a language model reads it.
model::Example example_of(const spec::Architecture& shape, const std::vector<std::vector<std::int32_t>>& by_side) {
  const auto ended = [&](std::vector<std::int32_t> ids) {
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(shape.max_positions - 1)));
    ids.push_back(narrow<std::int32_t>(shape.vocabulary.eos));
    return ids;
  };
  const bool pairs = shape.type == spec::ModelType::encoder_decoder;
  return {pairs ? ended(by_side.front()) : std::vector<std::int32_t>{}, ended(by_side.back())};
}

}  // namespace

model::StoredModel changed_model(const model::StoredModel& old, const VocabularyChange& change) {
  spec::ModelConfig config = old.config;
  const std::int64_t pieces = std::ssize(change.old_ids);
  if (config.vocab_size) config.vocab_size = pieces;
  // The pad of Marian's layout is the last piece of its table as well.
  if (old.tokenizer.kind() == data::TokenizerKind::table && !config.token_ids) config.vocab_multiple = 1;
  if (config.token_ids) {
    const auto move = [&](std::int64_t id) { return std::ranges::find(change.old_ids, id) - change.old_ids.begin(); };
    const auto move_all = [&](std::same_as<std::optional<std::int64_t>> auto&... ids) {
      ((ids = ids ? std::optional<std::int64_t>{move(*ids)} : std::nullopt), ...);
    };
    spec::TokenIds& ids = *config.token_ids;
    ids.eos = move(ids.eos);
    move_all(ids.unk, ids.bos, ids.pad, ids.start);
  }
  data::Tokenizer tokenizer =
      data::Tokenizer::load(change.tokenizer, spec::vocabulary_rule(config), "the changed tokenizer");
  ARGOSY_CHECK(tokenizer.vocabulary().pieces == pieces, "{} pieces of {}", tokenizer.vocabulary().pieces, pieces);
  std::string map = map_text(old, tokenizer, change);
  model::StoredModel changed{config,
                             spec::resolve(config, pieces),
                             std::move(tokenizer),
                             std::make_unique<MappedWeights>(old, change),
                             old.where,
                             Hasher{}.update(old.id).update(map).digest().hex(),
                             old.step};
  changed.task = old.task;
  changed.trained_in = old.trained_in;
  changed.attachments.push_back({"vocab_map.json", std::move(map)});
  return changed;
}

VocabularyFigures check_vocabulary(const model::StoredModel& old, const model::StoredModel& changed,
                                   const std::vector<std::string>& lines, const model::Forward& forward) {
  const PiecesOfBoth pieces{old.tokenizer, changed.tokenizer};
  check_rows(old, changed, pieces);
  VocabularyFigures figures{.pieces_before = old.tokenizer.vocabulary().pieces,
                            .pieces_after = changed.tokenizer.vocabulary().pieces,
                            .lines = std::ssize(lines)};
  std::vector<model::Example> before, after;
  double length_before = 0, length_after = 0, unknown_before = 0, unknown_after = 0;
  const auto unknown = [](const std::vector<std::int32_t>& ids, const data::Tokenizer& tokenizer) {
    const std::optional<std::int64_t> unk = tokenizer.vocabulary().unk;
    return unk ? std::ranges::count(ids, *unk) : 0;
  };
  const std::vector<data::Side> sides = sides_of(old.tokenizer);
  for (const std::string& line : lines) {
    std::vector<std::vector<std::int32_t>> was, is;  // by side
    bool same = true;
    for (const data::Side side : sides) {
      const auto& a = was.emplace_back(old.tokenizer.encode(line, side));
      const auto& b = is.emplace_back(changed.tokenizer.encode(line, side));
      length_before += static_cast<double>(a.size());
      length_after += static_cast<double>(b.size());
      unknown_before += static_cast<double>(unknown(a, old.tokenizer));
      unknown_after += static_cast<double>(unknown(b, changed.tokenizer));
      if (pieces.same(a, b)) continue;
      same = false;
      if (pieces.keeps_all(a) && !pieces.has_new(b))
        failed(fmt::format("the encoding of the line \"{}\"", line), "that of the old tokenizer", "another");
    }
    if (!same) continue;
    before.push_back(example_of(old.spec.architecture, was));
    after.push_back(example_of(changed.spec.architecture, is));
  }
  const auto outputs_before = forward(old.spec, *old.weights, before);
  const auto outputs_after = forward(changed.spec, *changed.weights, after);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto &was = outputs_before[i].hidden, &is = outputs_after[i].hidden;
    if (was.size() != is.size() || std::memcmp(was.data(), is.data(), was.size() * sizeof(float)) != 0)
      failed(fmt::format("what the output layer takes for line {} of those with the same pieces", i + 1),
             "that of the old model", "other numbers");
  }
  figures.same_lines = std::ssize(before);
  figures.unknown_before = unknown_before / std::max(1.0, length_before);
  figures.unknown_after = unknown_after / std::max(1.0, length_after);
  figures.length_before = length_before / static_cast<double>(lines.size() * sides.size());
  figures.length_after = length_after / static_cast<double>(lines.size() * sides.size());
  return figures;
}

std::vector<std::string> first_lines(const Files& files, const std::vector<Path>& texts, std::size_t count) {
  std::vector<std::string> lines;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const std::size_t until = count * (t + 1) / texts.size();
    data::LineReader reader{files.open(texts[t])};
    for (std::string line; lines.size() < until && reader.next(line);)
      if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty())
    throw_error(Fault::data, texts.front().string(), "text for the self-test", "no line that is not empty",
                "give a file with text");
  return lines;
}

void require_one(const data::Tokenizer& tokenizer) {
  if (tokenizer.parts().empty()) return;
  throw_claim(Fault::data, "a vocabulary is changed of models that have one tokenizer, and this one has several",
              "the tokenizer", "one", fmt::format("{}", tokenizer.parts().size()), "use another model");
}

std::vector<data::Side> sides_of(const data::Tokenizer& tokenizer) {
  require_one(tokenizer);
  const bool both = tokenizer.kind() == data::TokenizerKind::table &&
                    !data::unpack(tokenizer.model_bytes(), "tokenizer.model").target.empty();
  return both ? std::vector{data::Side::source, data::Side::target} : std::vector{data::Side::target};
}

std::vector<std::int64_t> special_ids(const spec::Vocabulary& vocabulary) {
  std::vector<std::int64_t> ids{vocabulary.eos, vocabulary.start};
  for (const auto& id : {vocabulary.unk, vocabulary.bos, vocabulary.pad})
    if (id) ids.push_back(*id);
  std::ranges::sort(ids);
  const auto twice = std::ranges::unique(ids);
  ids.erase(twice.begin(), twice.end());
  return ids;
}

void append_unspelled(std::vector<std::int64_t>& old_ids, const data::Tokenizer& tokenizer) {
  for (const std::int64_t id : special_ids(tokenizer.vocabulary()))
    if (id >= tokenizer.spelled_ids() && !tokenizer.vocabulary().is_dead(id)) old_ids.push_back(id);
}

}  // namespace argosy::interchange
