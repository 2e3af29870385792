#include "data/pool_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t row_shuffle = 0x524f5753;  // names the stream of random numbers
constexpr double pool_steps = 64;                  // a pool holds at least the examples of so many steps
constexpr double pieces_of_route = 32;  // and of so many micro-batches a route, the last of which are not full

/// The same for (seed, pass, example), whatever batch it is in.
PositionShift drawn_shift(const PoolSettings& settings, const Drawn& drawn) {
  constexpr auto coordinate = ~std::uint64_t{0};  // of no transform
  RandomStream random(settings.seed, drawn.pass, drawn.example, coordinate);
  const auto values = static_cast<std::uint64_t>(settings.position_shift_max) + 1;
  PositionShift shift;
  shift.source = narrow<std::int64_t>(random.below(values));
  shift.target = narrow<std::int64_t>(random.below(values));
  return shift;
}

/// Documents of a language model as drawn, and how they are read.
class DrawnDocuments {
 public:
  DrawnDocuments(const TokenShards& shards, const std::vector<Drawn>& draws, const PoolSettings& settings)
      : shards_(shards), documents_(draws.size()), positions_(draws.size(), 1) {
    if (settings.position_shift_max > 0)
      for (const Drawn& draw : draws) shifts_.push_back(drawn_shift(settings, draw).target);
    if (shards.corpora().size() > 1)
      for (const Drawn& draw : draws) corpora_.push_back(draw.corpus);
    std::vector<std::size_t> places(draws.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    // File after file: as they are drawn, the documents of a pool would map the pages of all files.
    std::ranges::sort(places, {}, [&](std::size_t place) { return draws[place].example; });
    for (const std::size_t place : places) {
      documents_[place] = shards.document(draws[place].example);
      positions_[place] += documents_[place].ids;
    }
  }
  /// Of each document: its ids and the start token.
  [[nodiscard]] const std::vector<std::int64_t>& positions() const { return positions_; }

  /// For the rows of one batch, which follow each other in their documents: the example that was read last is kept.
  [[nodiscard]] DocumentReader reader() const {
    return [this, last = std::optional<std::uint64_t>{}, example = Example{}](std::uint64_t place, std::int64_t begin,
                                                                              std::int64_t end) mutable {
      return read(place, begin, end, last, example);
    };
  }

 private:
  DocumentPart read(std::uint64_t place, std::int64_t begin, std::int64_t end, std::optional<std::uint64_t>& last,
                    Example& example) const {
    DocumentPart part{.ids = {}, .loss = {}, .begin = -1, .size = positions_[place] - 1};
    if (!shifts_.empty()) part.shift = shifts_[place];
    if (!corpora_.empty()) part.corpus = corpora_[place];
    const TokenShards::Document& document = documents_[place];
    std::int64_t at = 0;
    for (std::uint64_t i = document.first; i < document.first + document.examples && at < end; ++i) {
      const std::int64_t size = shards_.lengths(i).target;
      if (at + size > begin) {
        if (part.begin < 0) part.begin = at;
        if (last != i) shards_.read(i, std::nullopt, example);
        last = i;
        if (!example.loss.empty() || !part.loss.empty()) {
          part.loss.resize(part.ids.size(), true);
          part.loss.insert(part.loss.end(), example.loss.begin(), example.loss.end());
        }
        part.ids.insert(part.ids.end(), example.target.begin(), example.target.end());
        if (!part.loss.empty()) part.loss.resize(part.ids.size(), true);
      }
      at += size;
    }
    part.begin = std::max<std::int64_t>(part.begin, 0);
    return part;
  }

  const TokenShards& shards_;
  std::vector<TokenShards::Document> documents_;
  std::vector<std::int64_t> positions_, shifts_;
  std::vector<std::uint32_t> corpora_;  // where there are several
};

std::int64_t widest(std::span<const LmRow> rows) {
  std::int64_t widest = 0;
  for (const LmRow& row : rows) widest = std::max(widest, row.positions);
  return widest;
}

}  // namespace

/// A pool whose steps a batch plan lays down.
class PoolMaker::Planned : public PoolSource {
 public:
  Planned(const PoolMaker& maker, std::vector<Lengths> lengths, const PoolKey& key,
          std::span<const std::uint32_t> routes = {})
      : maker_(maker), lengths_(std::move(lengths)), plan_(maker.plan_settings(), lengths_, key, routes) {}

  std::int64_t steps() const override { return plan_.steps(); }
  Totals totals(std::int64_t step) const override {
    Totals totals;
    for (int j = 0; j < plan_.micro_batches(step); ++j) {
      const MicroBatch micro_batch = plan_.micro_batch(step, j);
      totals.src_tokens += micro_batch.src_tokens;
      totals.tgt_tokens += micro_batch.tgt_tokens;
      totals.padded_tokens += micro_batch.padded_tokens();
    }
    return totals;
  }
  std::vector<int> routes(std::int64_t step) const override {
    std::vector<int> routes(static_cast<std::size_t>(maker_.settings_.sizes.micro_batches), -1);
    for (int j = 0; j < plan_.micro_batches(step); ++j)
      routes[static_cast<std::size_t>(j)] = narrow<int>(plan_.micro_batch(step, j).route);
    return routes;
  }
  Report report() const override {
    Report report{.steps = steps(), .examples = std::ssize(lengths_), .oversized = plan_.oversized()};
    const bool by_rows = maker_.settings_.batch.unit == BatchUnit::examples;
    double used = 0, real = 0, padded = 0;
    for (const MicroBatch& piece : plan_.all()) {
      used += static_cast<double>(by_rows ? std::ssize(piece.examples) : piece.padded_tokens());
      real += static_cast<double>(piece.tgt_tokens);
      padded += static_cast<double>(piece.examples.size()) * static_cast<double>(piece.target_width);
    }
    const auto count = static_cast<double>(std::max<std::size_t>(1, plan_.all().size()));
    report.fill = used / (static_cast<double>(maker_.settings_.sizes.micro_size) * count);
    report.target_efficiency = padded > 0 ? real / padded : 0;
    return report;
  }

 protected:
  const PoolMaker& maker_;
  std::vector<Lengths> lengths_;
  BatchPlan plan_;
};

class PoolMaker::Pairs final : public Planned {
 public:
  Pairs(const PoolMaker& maker, std::vector<Drawn> draws, std::vector<Lengths> lengths, const PoolKey& key)
      : Planned(maker, std::move(lengths), key, routes_of(draws, maker.settings_.routes)), draws_(std::move(draws)) {}

  Batch assemble(std::int64_t step, int j) const override {
    const MicroBatch micro_batch = plan_.micro_batch(step, j);
    std::vector<Example> examples(micro_batch.examples.size());
    std::vector<PairIds> ids;
    std::int64_t without_noise = 0;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const std::uint32_t place = micro_batch.examples[i];
      const Drawn& drawn = draws_[place];
      std::optional<Draw> draw;
      if (maker_.settings_.draws)
        draw = Draw{.seed = maker_.settings_.seed, .epoch = drawn.pass, .example = drawn.example};
      Example& example = examples[i];
      without_noise += maker_.shards_.read(drawn.example, draw, example) ? 1 : 0;
      cut(example, lengths_[place]);
      PairIds& pair = ids.emplace_back(PairIds{example.source, example.target, drawn.example, &example.loss});
      if (maker_.settings_.position_shift_max > 0) pair.shift = drawn_shift(maker_.settings_, drawn);
      if (maker_.shards_.corpora().size() > 1) pair.corpus = drawn.corpus;
    }
    const std::int64_t multiple = maker_.plan_settings().width_multiple;
    const auto width_of = [&](auto side, std::int64_t planned) {
      if (maker_.is_exact()) return planned;  // else by what was drawn, which may be shorter
      std::size_t longest = 0;
      for (const Example& example : examples) longest = std::max(longest, (example.*side).size());
      return (static_cast<std::int64_t>(longest) + multiple - 1) / multiple * multiple;
    };
    Batch batch = batch_of_pairs(ids, maker_.vocabulary_, width_of(&Example::source, micro_batch.source_width),
                                 width_of(&Example::target, micro_batch.target_width));
    batch.route = micro_batch.route;
    batch.without_noise = without_noise;
    return batch;
  }

 private:
  static std::vector<std::uint32_t> routes_of(const std::vector<Drawn>& draws,
                                              const std::vector<std::uint32_t>& by_corpus) {
    std::vector<std::uint32_t> routes;
    if (by_corpus.empty()) return routes;
    routes.reserve(draws.size());
    for (const Drawn& draw : draws) routes.push_back(by_corpus[draw.corpus]);
    return routes;
  }
  /// To the lengths that are planned, under batch.oversized `truncate`: a source keeps its EOS; a target that goes on
  /// has none.
  static void cut(Example& example, const Lengths& lengths) {
    if (example.source.size() > lengths.source) {
      const std::int32_t eos = example.source.back();
      example.source.resize(lengths.source);
      example.source.back() = eos;
    }
    if (example.target.size() > lengths.target) {
      example.target.resize(lengths.target);
      if (!example.loss.empty()) example.loss.resize(lengths.target);
    }
  }

  std::vector<Drawn> draws_;
};

class PoolMaker::SingleRows final : public Planned {
 public:
  SingleRows(const PoolMaker& maker, DrawnDocuments documents, std::vector<LmRow> rows, const PoolKey& key)
      : Planned(maker, lengths_of(rows), key), documents_(std::move(documents)), rows_(std::move(rows)) {}

  Batch assemble(std::int64_t step, int j) const override {
    const MicroBatch micro_batch = plan_.micro_batch(step, j);
    LmBatcher batcher{maker_.vocabulary_, std::ssize(micro_batch.examples), micro_batch.target_width};
    const DocumentReader reader = documents_.reader();
    for (const std::uint32_t row : micro_batch.examples) add_row(batcher, rows_[row], reader);
    return batcher.take(maker_.plan_settings().width_multiple);
  }

 private:
  static std::vector<Lengths> lengths_of(const std::vector<LmRow>& rows) {
    std::vector<Lengths> lengths;
    lengths.reserve(rows.size());
    for (const LmRow& row : rows) lengths.push_back({.target = narrow<std::uint32_t>(row.positions)});
    return lengths;
  }
  DrawnDocuments documents_;
  std::vector<LmRow> rows_;
};

class PoolMaker::PackedRows final : public PoolSource {
 public:
  PackedRows(const PoolMaker& maker, DrawnDocuments documents, std::vector<LmRow> rows)
      : maker_(maker), documents_(std::move(documents)), rows_(std::move(rows)) {}

  std::int64_t steps() const override {
    const std::int64_t rows = maker_.rows_ * micro_batches();
    return (std::ssize(rows_) + rows - 1) / rows;
  }
  Totals totals(std::int64_t step) const override {
    Totals totals;
    for (int j = 0; j < micro_batches(); ++j) {
      const std::span<const LmRow> rows = rows_of(step, j);
      for (const LmRow& row : rows) totals.tgt_tokens += row.tgt_tokens;
      totals.padded_tokens += width_of(rows) * std::ssize(rows);
    }
    return totals;
  }
  std::vector<int> routes(std::int64_t step) const override {
    std::vector<int> routes(static_cast<std::size_t>(micro_batches()), -1);
    for (int j = 0; j < micro_batches() && !rows_of(step, j).empty(); ++j) routes[static_cast<std::size_t>(j)] = 0;
    return routes;
  }
  Batch assemble(std::int64_t step, int j) const override {
    const std::span<const LmRow> rows = rows_of(step, j);
    LmBatcher batcher{maker_.vocabulary_, std::ssize(rows), width_of(rows)};
    const DocumentReader reader = documents_.reader();
    for (const LmRow& row : rows) add_row(batcher, row, reader);
    return batcher.take(maker_.plan_settings().width_multiple);
  }
  Report report() const override {
    double positions = 0, labels = 0;
    for (const LmRow& row : rows_) {
      positions += static_cast<double>(row.positions);
      labels += static_cast<double>(row.tgt_tokens);
    }
    const double cells =
        static_cast<double>(rows_.size()) * static_cast<double>(maker_.settings_.batch.sequence_length);
    return {.steps = steps(),
            .examples = std::ssize(rows_),
            .fill = positions / cells,
            .target_efficiency = labels / cells};
  }

 private:
  int micro_batches() const { return maker_.settings_.sizes.micro_batches; }
  std::int64_t width_of(std::span<const LmRow> rows) const {
    const std::int64_t multiple = maker_.plan_settings().width_multiple;
    return std::min(maker_.settings_.batch.sequence_length, (widest(rows) + multiple - 1) / multiple * multiple);
  }
  std::span<const LmRow> rows_of(std::int64_t step, int j) const {
    const auto begin = static_cast<std::size_t>((step * micro_batches() + j) * maker_.rows_);
    if (j >= micro_batches() || begin >= rows_.size()) return {};  // beyond: slots of ranks left over
    return std::span{rows_}.subspan(begin, std::min(rows_.size() - begin, static_cast<std::size_t>(maker_.rows_)));
  }

  const PoolMaker& maker_;
  DrawnDocuments documents_;
  std::vector<LmRow> rows_;
};

PoolMaker::PoolMaker(const TokenShards& shards, const spec::Vocabulary& vocabulary, PoolSettings settings)
    : shards_(shards),
      vocabulary_(vocabulary),
      settings_(settings),
      packed_(settings.batch.packing.value_or(!shards.has_source())),
      rows_(settings.batch.unit == BatchUnit::examples ? settings.sizes.micro_size
                                                       : settings.sizes.micro_size / settings.batch.sequence_length),
      sampler_(make_sampler()) {
  if (packed_ && shards.has_source())
    throw_error(Fault::config, "batch.packing", "false for pairs, since only language models pack examples", "true",
                "remove batch.packing");
  ARGOSY_CHECK(settings_.routes.empty() || settings_.routes.size() == shards.corpora().size(), "{} of {} corpora",
               settings_.routes.size(), shards.corpora().size());
  ARGOSY_CHECK(shards.has_source() || std::ranges::all_of(settings_.routes, [](auto route) { return route == 0; }),
               "routes of a language model");
  if (packed_ && rows_ < 1)
    throw_error(Fault::config, "batch.micro_size",
                fmt::format("at least batch.sequence_length ({}), so that a row fits", settings_.batch.sequence_length),
                fmt::format("{}", settings_.sizes.micro_size), "raise batch.micro_size or lower batch.sequence_length");
}

Sampler PoolMaker::make_sampler() const {
  std::vector<DrawnCorpus> corpora;
  for (const TokenShards::Corpus& corpus : shards_.corpora()) {
    corpora.push_back({.size = shards_.has_source() ? corpus.size : corpus.documents,
                       .src_tokens = corpus.src_tokens,
                       .tgt_tokens = corpus.tgt_tokens,
                       .weight = corpus.weight,
                       .start = corpus.start,
                       .end = corpus.end});
  }
  // A pool of batch.pool draws at least, and of the draws of its least micro-batches, by the mean size of a draw.
  const double pieces = std::max(pool_steps * settings_.sizes.micro_batches, pieces_of_route * route_count());
  const bool by_rows = settings_.batch.unit == BatchUnit::examples, pairs = shards_.has_source();
  double draws = pieces * static_cast<double>(settings_.sizes.micro_size);
  if (by_rows && !pairs) draws *= static_cast<double>(settings_.batch.sequence_length);
  if (!by_rows || !pairs) {
    const MeanDraw mean = mean_draw(corpora, shares_of_draws(corpora, settings_.temperature));
    draws /= mean.src_tokens + mean.tgt_tokens + (pairs ? 0 : 1);  // the start token of a document
  }
  const SamplerSettings settings{
      .seed = settings_.seed,
      .pool = std::max(settings_.batch.pool, static_cast<std::int64_t>(std::min(0x1p53, draws)) + 1),
      .temperature = settings_.temperature};
  return Sampler{settings, std::move(corpora)};
}

int PoolMaker::route_count() const {
  const std::set<std::uint32_t> routes(settings_.routes.begin(), settings_.routes.end());
  return std::max(1, narrow<int>(routes.size()));
}

BatchPlanSettings PoolMaker::plan_settings() const {
  return {.unit = settings_.batch.unit,
          .micro_size = settings_.sizes.micro_size,
          .micro_batches = settings_.sizes.micro_batches,
          .width_multiple = settings_.batch.width_multiple.value_or(1)};
}

Lengths PoolMaker::fitted(std::uint64_t example, const Lengths& lengths) const {
  const BatchPlanSettings settings = plan_settings();
  if (settings_.batch.oversized == Oversized::skip || fits(settings, lengths)) return lengths;
  if (settings_.batch.oversized == Oversized::error) {
    const auto corpus = std::ranges::find_if(
        shards_.corpora(), [&](const TokenShards::Corpus& each) { return example < each.first + each.size; });
    throw_error(Fault::data, fmt::format("corpus {}, pair {}", corpus->name, example - corpus->first + 1),
                fmt::format("pairs that fit batch.micro_size ({})", settings.micro_size),
                fmt::format("{} and {} pieces", lengths.source, lengths.target),
                "raise batch.micro_size, or set batch.oversized to skip or truncate");
  }
  // The longer side gives way first; a row of two halves always fits.
  const std::int64_t room = settings.micro_size / settings.width_multiple * settings.width_multiple;
  const std::int64_t half = std::max<std::int64_t>(1, room / 2 / settings.width_multiple * settings.width_multiple);
  const auto at_most = [&](std::uint32_t own, std::uint32_t other) {
    const std::int64_t others =
        (other + settings.width_multiple - 1) / settings.width_multiple * settings.width_multiple;
    return narrow<std::uint32_t>(std::min<std::int64_t>(own, std::max(half, room - others)));
  };
  return {.source = at_most(lengths.source, lengths.target), .target = at_most(lengths.target, lengths.source)};
}

std::vector<double> PoolMaker::passes(const PoolSource& pool, double done) const {
  std::vector<double> passes;
  passes.reserve(shards_.corpora().size());
  for (std::size_t c = 0; c < shards_.corpora().size(); ++c) {
    const TokenShards::Corpus& corpus = shards_.corpora()[c];
    const auto size = static_cast<double>(shards_.has_source() ? corpus.size : corpus.documents);
    const auto before = static_cast<double>(pool.begin().drawn[c]), after = static_cast<double>(pool.next().drawn[c]);
    passes.push_back(size > 0 ? (before + done * (after - before)) / size : 0);
  }
  return passes;
}

std::unique_ptr<PoolSource> PoolMaker::make(const PoolBegin& at) const {
  Sampler::Pool pool = sampler_.draw(at);
  const PoolKey key{.seed = settings_.seed,
                    .epoch = static_cast<std::uint64_t>(pool.begin.epoch),
                    .pool = static_cast<std::uint64_t>(pool.begin.pool)};
  std::unique_ptr<PoolSource> source;
  if (shards_.has_source()) {
    std::ranges::sort(pool.draws, {}, &Drawn::example);  // pairs of one length stand in the order of the text
    std::vector<Lengths> lengths;
    lengths.reserve(pool.draws.size());
    for (const Drawn& draw : pool.draws) {
      lengths.push_back(fitted(draw.example, shards_.lengths(draw.example)));
      shards_.go_to(draw.example);
    }
    source = std::make_unique<Pairs>(*this, std::move(pool.draws), std::move(lengths), key);
  } else {
    DrawnDocuments documents{shards_, pool.draws, settings_};
    const std::int64_t width = settings_.batch.sequence_length;
    std::vector<LmRow> rows = packed_ ? plan_packed_rows(documents.positions(), width, settings_.batch.documents)
                                      : plan_single_rows(documents.positions(), width);
    // As planned, steps would have neighbouring parts of a long document.
    RandomStream{key.seed, row_shuffle, key.epoch, key.pool}.shuffle(rows);
    if (packed_)
      source = std::make_unique<PackedRows>(*this, std::move(documents), std::move(rows));
    else
      source = std::make_unique<SingleRows>(*this, std::move(documents), std::move(rows), key);
  }
  source->begin_ = std::move(pool.begin);
  source->next_ = std::move(pool.next);
  source->next_.steps += source->steps();
  for (std::int64_t step = 0; step < source->steps(); ++step)
    source->next_.tgt_tokens += source->totals(step).tgt_tokens;
  return source;
}

}  // namespace argosy::data
