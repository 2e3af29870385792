#include "data/epoch_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "data/batcher.hpp"

namespace argosy::data {

/// An epoch whose steps the sampler has planned.
class EpochMaker::PlannedEpoch : public EpochSource {
 public:
  PlannedEpoch(const EpochMaker& maker, std::int64_t epoch) : maker_(maker), plan_(maker.sampler_->plan(epoch)) {}

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
  Report report() const override {
    return {plan_.steps(), plan_.drawn(), plan_.dropped_oversized(), plan_.fill(), plan_.target_efficiency()};
  }

 protected:
  const EpochMaker& maker_;
  EpochPlan plan_;
};

class EpochMaker::PairEpoch final : public PlannedEpoch {
 public:
  using PlannedEpoch::PlannedEpoch;

  Batch assemble(std::int64_t step, int j) const override {
    const MicroBatch micro_batch = plan_.micro_batch(step, j);
    std::vector<std::vector<std::int32_t>> ids(2 * micro_batch.examples.size());
    std::vector<PairIds> examples;
    for (std::size_t i = 0; i < micro_batch.examples.size(); ++i) {
      maker_.shards_.source(micro_batch.examples[i], ids[2 * i]);
      maker_.shards_.target(micro_batch.examples[i], ids[2 * i + 1]);
      examples.push_back({ids[2 * i], ids[2 * i + 1], micro_batch.examples[i]});
    }
    return batch_of_pairs(examples, maker_.vocabulary_, micro_batch.source_width, micro_batch.target_width);
  }
};

class EpochMaker::SingleRowEpoch final : public PlannedEpoch {
 public:
  using PlannedEpoch::PlannedEpoch;

  Batch assemble(std::int64_t step, int j) const override {
    const MicroBatch micro_batch = plan_.micro_batch(step, j);
    LmBatcher batcher{maker_.vocabulary_, std::ssize(micro_batch.examples), micro_batch.target_width};
    for (const std::uint64_t piece : micro_batch.examples) {
      add_row(batcher, maker_.pieces_[piece], [&](std::uint64_t document) { return maker_.ids_of(document); });
    }
    return batcher.take();
  }
};

class EpochMaker::PackedEpoch final : public EpochSource {
 public:
  PackedEpoch(const EpochMaker& maker, std::int64_t epoch) : maker_(maker), order_(maker.sampler_->draws(epoch)) {
    std::vector<std::int64_t> positions;
    positions.reserve(order_.size());
    for (const std::uint64_t document : order_) positions.push_back(maker.documents_[document].positions());
    const BatchConfig& batch = maker.settings_.batch;
    rows_ = plan_packed_rows(positions, batch.sequence_length, batch.documents);
  }

  std::int64_t steps() const override {
    const std::int64_t rows = maker_.rows_ * micro_batches();
    return (std::ssize(rows_) + rows - 1) / rows;
  }
  Totals totals(std::int64_t step) const override {
    Totals totals;
    for (int j = 0; j < micro_batches(); ++j) {
      const std::span<const LmRow> rows = rows_of(step, j);
      for (const LmRow& row : rows) totals.tgt_tokens += row.tgt_tokens;
      totals.padded_tokens += widest(rows) * std::ssize(rows);
    }
    return totals;
  }
  Batch assemble(std::int64_t step, int j) const override {
    const std::span<const LmRow> rows = rows_of(step, j);
    LmBatcher batcher{maker_.vocabulary_, std::ssize(rows), widest(rows)};
    for (const LmRow& row : rows) {
      add_row(batcher, row, [&](std::uint64_t place) { return maker_.ids_of(order_[place]); });
    }
    return batcher.take();
  }
  Report report() const override {
    double positions = 0, labels = 0;
    for (const LmRow& row : rows_) {
      positions += static_cast<double>(row.positions);
      labels += static_cast<double>(row.tgt_tokens);
    }
    const double cells =
        static_cast<double>(rows_.size()) * static_cast<double>(maker_.settings_.batch.sequence_length);
    return {steps(), std::ssize(rows_), 0, positions / cells, labels / cells};
  }

 private:
  static std::int64_t widest(std::span<const LmRow> rows) {
    std::int64_t widest = 0;
    for (const LmRow& row : rows) widest = std::max(widest, row.positions);
    return widest;
  }
  int micro_batches() const { return maker_.settings_.sizes.micro_batches; }
  std::span<const LmRow> rows_of(std::int64_t step, int j) const {
    const auto begin = static_cast<std::size_t>((step * micro_batches() + j) * maker_.rows_);
    if (j >= micro_batches() || begin >= rows_.size()) return {};  // beyond: slots of ranks left over
    return std::span{rows_}.subspan(begin, std::min(rows_.size() - begin, static_cast<std::size_t>(maker_.rows_)));
  }

  const EpochMaker& maker_;
  std::vector<std::uint64_t> order_;  // documents as drawn
  std::vector<LmRow> rows_;
};

EpochMaker::EpochMaker(const TokenShards& shards, const spec::Vocabulary& vocabulary, EpochSettings settings)
    : shards_(shards), vocabulary_(vocabulary), settings_(settings) {
  const BatchConfig& batch = settings_.batch;
  packed_ = batch.packing.value_or(!shards.has_source());
  if (packed_ && shards.has_source())
    throw_error(Fault::config, "batch.packing", "false for pairs, since only language models pack examples", "true",
                "remove batch.packing");
  rows_ = batch.unit == BatchUnit::examples ? settings_.sizes.micro_size
                                            : settings_.sizes.micro_size / batch.sequence_length;
  if (packed_ && rows_ < 1)
    throw_error(Fault::config, "batch.micro_size",
                fmt::format("at least batch.sequence_length ({}), so that a row fits", batch.sequence_length),
                fmt::format("{}", settings_.sizes.micro_size), "raise batch.micro_size or lower batch.sequence_length");

  // What is drawn: pairs, documents (packed) or document pieces.
  std::vector<std::size_t> first{0};
  for (const TokenShards::Corpus& corpus : shards.corpora()) {
    if (shards.has_source()) break;  // pairs are drawn by the lengths of the shards
    const std::size_t first_document = documents_.size();
    for (std::uint64_t i = corpus.first; i < corpus.first + corpus.size; ++i) {
      if (i == corpus.first || shards.starts_document(i)) documents_.push_back({.first = i});
      ++documents_.back().examples;
      documents_.back().ids += shards.lengths()[i].target;
    }
    std::vector<std::int64_t> positions;
    for (std::size_t d = first_document; d < documents_.size(); ++d) positions.push_back(documents_[d].positions());
    if (packed_) {
      constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
      for (const std::int64_t size : positions)
        lengths_.push_back({.target = static_cast<std::uint32_t>(std::min(size, most))});
    } else {
      for (LmRow piece : plan_single_rows(positions, batch.sequence_length)) {
        piece.first += first_document;
        pieces_.push_back(piece);
        lengths_.push_back({.target = static_cast<std::uint32_t>(piece.positions)});
      }
    }
    first.push_back(lengths_.size());
  }
  std::vector<CorpusLengths> corpora;
  for (std::size_t c = 0; c < shards.corpora().size(); ++c) {
    const TokenShards::Corpus& corpus = shards.corpora()[c];
    corpora.push_back({shards.has_source() ? shards.lengths().subspan(corpus.first, corpus.size)
                                           : std::span{lengths_}.subspan(first[c], first[c + 1] - first[c]),
                       corpus.weight});
  }
  SamplerSettings sampling{.seed = settings_.seed,
                           .unit = packed_ ? BatchUnit::examples : batch.unit,  // documents are only drawn, not sorted
                           .micro_size = settings_.sizes.micro_size,
                           .micro_batches = settings_.sizes.micro_batches,
                           .pool = batch.pool,
                           .width_multiple = batch.width_multiple.value_or(1),
                           .temperature = settings_.temperature};
  sampler_ = std::make_unique<Sampler>(sampling, std::move(corpora));
}

std::vector<std::int32_t> EpochMaker::ids_of(std::uint64_t document) const {
  const auto& [first, examples, count] = documents_[document];
  std::vector<std::int32_t> ids, line;
  ids.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = first; i < first + examples; ++i) {
    shards_.target(i, line);
    ids.insert(ids.end(), line.begin(), line.end());
  }
  return ids;
}

std::unique_ptr<EpochSource> EpochMaker::make(std::int64_t epoch) const {
  if (shards_.has_source()) return std::make_unique<PairEpoch>(*this, epoch);
  if (packed_) return std::make_unique<PackedEpoch>(*this, epoch);
  return std::make_unique<SingleRowEpoch>(*this, epoch);
}

}  // namespace argosy::data
