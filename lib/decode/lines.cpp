#include "decode/lines.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "decode/escapes.hpp"
#include "decode/likelihood.hpp"

namespace argosy::decode {

std::vector<Translation> share_out(
    const comm::Communicator& world, std::size_t lines, const std::vector<std::size_t>& order,
    const std::function<std::vector<Translation>(const std::vector<std::size_t>& mine)>& work) {
  // Neighbours in the sorted list go to different ranks: all get the same mixture of lengths.
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> mine;
  for (auto k = static_cast<std::size_t>(world.rank()); k < order.size(); k += size) mine.push_back(order[k]);
  // Of each line a count; of each of so many translations, two texts and two numbers.
  std::vector<std::string> texts;
  std::vector<std::int64_t> counts;
  std::vector<double> numbers;
  comm::agree(world, [&] {
    const auto add = [&](Translation& translation) {
      texts.push_back(std::move(translation.text));
      texts.push_back(std::move(translation.alignment));
      numbers.insert(numbers.end(), {translation.score, translation.log_probability});
    };
    for (Translation& translation : work(mine)) {
      counts.push_back(1 + std::ssize(translation.others));
      add(translation);
      for (Translation& other : translation.others) add(other);
    }
    ARGOSY_CHECK(counts.size() == mine.size(), "{} results for {} lines", counts.size(), mine.size());
  });
  const std::vector<std::string> messages = world.all_gather(comm::to_message(texts));
  const std::vector<std::vector<std::int64_t>> all_counts = world.all_gather(counts);
  const std::vector<std::vector<double>> all_numbers = world.all_gather(numbers);
  std::vector<Translation> out(lines);
  for (std::size_t rank = 0; rank < size; ++rank) {
    auto of_rank = comm::from_message<std::vector<std::string>>(messages[rank]);
    std::size_t at = 0;
    const auto next = [&] {
      const std::size_t first = std::exchange(at, at + 2);
      return Translation{.text = std::move(of_rank.at(first)),
                         .score = all_numbers[rank].at(first),
                         .log_probability = all_numbers[rank].at(first + 1),
                         .alignment = std::move(of_rank.at(first + 1))};
    };
    for (std::size_t i = 0, k = rank; k < order.size(); ++i, k += size) {
      Translation& translation = out[order[k]] = next();
      for (std::int64_t other = 1; other < all_counts[rank].at(i); ++other) translation.others.push_back(next());
    }
  }
  return out;
}

std::optional<std::int64_t> alignment_layer(const spec::Architecture& shape, std::optional<std::int64_t> wanted) {
  if (!wanted) return std::nullopt;
  if (shape.type != spec::ModelType::encoder_decoder)
    throw_claim(Fault::usage, "a decoder-only model has no alignments", "--alignments", "an encoder-decoder",
                "a decoder-only model", "omit --alignments");
  if (*wanted < 0 || *wanted > shape.decoder_layers)
    throw_error(Fault::usage, "--alignment-layer", fmt::format("1 to {}, a layer of the decoder", shape.decoder_layers),
                std::to_string(*wanted));
  return (*wanted == 0 ? shape.decoder_layers : *wanted) - 1;
}

std::string alignment_text(const std::vector<std::int64_t>& aligned, std::size_t first, std::size_t end) {
  std::string text;
  for (std::size_t t = first; t < std::min(end, aligned.size()); ++t)
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", aligned[t], t - first);
  return text;
}

namespace {

using Ids = std::vector<std::int32_t>;

Ids ids_of(const data::Tokenizer& tokenizer, const std::vector<std::string>& tokens, std::string_view option) {
  Ids ids;
  for (const std::string& token : tokens) {
    const std::optional<std::int64_t> id = tokenizer.id_of(token);
    if (!id)
      throw_error(Fault::usage, std::string(option), "a piece of the model's vocabulary", token,
                  "give its name as the vocabulary spells it");
    ids.push_back(narrow<std::int32_t>(*id));
  }
  return ids;
}

/// Sources and prefixes of lines, and texts of what is found.
class Pieces {
 public:
  Pieces(const model::Inference& model, const data::Tokenizer& tokenizer, const TranslateOptions& options)
      : shape_(model.architecture()),
        tokenizer_(tokenizer),
        options_(options),
        source_prefix_(ids_of(tokenizer.side(data::Side::source), options.source_prefix, "--source-prefix")),
        target_prefix_(ids_of(tokenizer.side(data::Side::target), options.target_prefix, "--target-prefix")) {}

  /// Without ids: nothing to translate.
  [[nodiscard]] Source source(const TextPart& part, std::size_t i) const {
    const bool has_encoder = shape_.type == spec::ModelType::encoder_decoder;
    if (!has_encoder && (!part.targets.empty() || !target_prefix_.empty()))
      throw_claim(Fault::usage, "a decoder-only model takes no --prefix and no --target-prefix", "the prefix",
                  "an encoder-decoder", "a decoder-only model", "put the prefix into the lines, which it continues");
    const Ids ids = tokenizer_.encode(text_of(part.lines[i]), data::Side::source);
    Source source{.ids = {}, .line = part.first + i};
    if (ids.empty()) return source;
    // A model without bos (GPT-2, Qwen2) reads a prompt as it is.
    if (!has_encoder && shape_.vocabulary.bos) source.ids.push_back(static_cast<std::int32_t>(*shape_.vocabulary.bos));
    append(source.ids, source_prefix_);
    append(source.ids, ids);
    if (has_encoder) source.ids.push_back(static_cast<std::int32_t>(shape_.vocabulary.eos));
    check_length(source.ids, shape_.max_positions, part, i, "text to translate");
    source.prefix = target_prefix_;
    if (!part.targets.empty()) append(source.prefix, tokenizer_.encode(text_of(part.targets[i])));
    check_length(source.prefix, shape_.max_positions - 1, part, i, "prefixes");
    return source;
  }

  /// Of the ids after the first `skipped` ones.
  [[nodiscard]] Translation translation(const Hypothesis& hypothesis, std::size_t skipped) const {
    std::string text = tokenizer_.decode(std::span(hypothesis.ids).subspan(skipped));
    text.resize(stop_in(text));
    if (options_.escapes) text = escaped(text);
    std::replace(text.begin(), text.end(), '\n', ' ');  // a byte piece may spell one; a translation is one line
    return {.text = std::move(text), .score = hypothesis.score, .log_probability = hypothesis.log_probability};
  }

  /// Where the first stop string begins; the size of the text if there is none.
  [[nodiscard]] std::size_t stop_in(const std::string& text) const {
    std::size_t first = text.size();
    for (const std::string& stop : options_.stop) first = std::min(first, text.find(stop));
    return first;
  }

  [[nodiscard]] bool stops(std::span<const std::int32_t> ids) const {
    const std::string text = tokenizer_.decode(ids);
    return stop_in(text) < text.size();
  }

 private:
  [[nodiscard]] std::string text_of(const std::string& line) const { return options_.escapes ? unescaped(line) : line; }

  static void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

  static void check_length(const Ids& ids, std::int64_t most, const TextPart& part, std::size_t i, const char* text) {
    if (std::ssize(ids) <= most) return;
    throw_error(Fault::data, fmt::format("line {} of the {}", part.first + i + 1, text),
                fmt::format("at most {} pieces (model.max_positions)", most), std::to_string(ids.size()),
                "split the line");
  }

  const spec::Architecture& shape_;
  const data::Tokenizer& tokenizer_;
  const TranslateOptions& options_;
  Ids source_prefix_, target_prefix_;
};

}  // namespace

std::vector<Translation> translate_lines(const comm::Communicator& world, model::Inference& model,
                                         const data::Tokenizer& tokenizer, const TextPart& part,
                                         const TranslateOptions& options) {
  const Pieces pieces(model, tokenizer, options);
  const std::optional<std::int64_t> layer = alignment_layer(model.architecture(), options.alignment);
  std::vector<Source> sources;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < part.lines.size(); ++i) {
    sources.push_back(pieces.source(part, i));
    if (!sources[i].ids.empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].ids.size() > sources[b].ids.size(); });
  SearchOptions search_options = options.search;
  if (!options.stop.empty()) search_options.stop = [&](std::span<const std::int32_t> ids) { return pieces.stops(ids); };

  return share_out(world, part.lines.size(), order, [&](const std::vector<std::size_t>& lines) {
    std::vector<Source> mine;
    for (const std::size_t line : lines) mine.push_back(std::move(sources[line]));
    const std::vector<std::vector<Hypothesis>> found = search(model, mine, search_options);
    std::vector<std::vector<std::int64_t>> aligned;  // of all hypotheses
    if (layer) {
      std::vector<GivenTarget> given;
      for (std::size_t i = 0; i < found.size(); ++i) {
        for (const Hypothesis& one : found[i]) given.push_back({mine[i].ids, one.ids});
      }
      aligned = alignments(model, given, *layer);
    }
    auto next_aligned = aligned.cbegin();
    std::vector<Translation> translations;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t skipped = options.omit_prefix ? mine[i].prefix.size() : 0;
      const auto translation = [&](const Hypothesis& hypothesis) {
        Translation one = pieces.translation(hypothesis, skipped);
        if (layer) one.alignment = alignment_text(*next_aligned++, skipped, hypothesis.ids.size());
        return one;
      };
      Translation& best = translations.emplace_back(translation(found[i].front()));
      for (std::size_t k = 1; k < found[i].size(); ++k) best.others.push_back(translation(found[i][k]));
    }
    return translations;
  });
}

}  // namespace argosy::decode
