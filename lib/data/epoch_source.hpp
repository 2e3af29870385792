#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "data/batcher.hpp"
#include "data/data_config.hpp"
#include "data/sampler.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer.hpp"

/// The steps of one epoch as batches: pairs, packed rows or single rows of a language model behind one face. Immutable
/// once made; assemble() may run on any thread. Borrows shards.
namespace argosy::data {

class EpochSource {
 public:
  struct Totals {  // over all micro-batches of a step
    std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  };
  struct Report {
    std::int64_t steps = 0, examples = 0, dropped_oversized = 0;  // examples: pairs, or rows
    double fill = 0, target_efficiency = 0;
  };

  virtual ~EpochSource() = default;
  [[nodiscard]] virtual std::int64_t steps() const = 0;
  [[nodiscard]] virtual Totals totals(std::int64_t step) const = 0;
  /// Micro-batch j of a step; empty where the step has fewer.
  [[nodiscard]] virtual Batch assemble(std::int64_t step, int j) const = 0;
  [[nodiscard]] virtual Report report() const = 0;
};

struct EpochSettings {
  std::uint64_t seed = 1;
  StepSizes sizes;
  BatchConfig batch;
  double temperature = 1.0;
};

/// Makes epochs of shards by settings: a pure function of (seed, epoch).
class EpochMaker {
 public:
  /// Throws Error{config} when packing is asked for pairs or a row does not fit micro_size, Error{data} when nothing
  /// can be trained on.
  EpochMaker(const TokenShards& shards, const spec::Vocabulary& vocabulary, EpochSettings settings);
  /// The epoch borrows from this.
  [[nodiscard]] std::unique_ptr<EpochSource> make(std::int64_t epoch) const;
  /// Share of the drawn examples (documents, pieces) that comes from each corpus.
  [[nodiscard]] const std::vector<double>& shares() const { return sampler_->shares(); }

 private:
  class PlannedEpoch;
  class PairEpoch;
  class SingleRowEpoch;
  class PackedEpoch;
  [[nodiscard]] std::vector<std::int32_t> ids_of(std::uint64_t document) const;

  const TokenShards& shards_;
  spec::Vocabulary vocabulary_;
  EpochSettings settings_;
  bool packed_ = false;
  std::int64_t rows_ = 0;              // packed: rows of a micro-batch
  std::vector<LmDocument> documents_;  // language model
  std::vector<LmRow> pieces_;          // language model, one document piece a row
  std::vector<Lengths> lengths_;       // of what the sampler draws
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace argosy::data
