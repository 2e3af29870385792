#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch.hpp"
#include "data/batch_plan.hpp"
#include "data/batcher.hpp"
#include "data/data_config.hpp"
#include "data/sampler.hpp"
#include "data/token_shards.hpp"
#include "spec/vocabulary.hpp"

/// The steps of one pool as batches: pairs, packed rows or single rows of a language model behind one face. Immutable
/// once made; assemble() may run on any thread. Borrows its maker and the shards.
namespace argosy::data {

class PoolSource {
 public:
  struct Totals {  // over all micro-batches of a step
    std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  };
  struct Report {                                         // of the pool
    std::int64_t steps = 0, examples = 0, oversized = 0;  // examples: pairs, or rows
    double fill = 0, target_efficiency = 0;
  };

  PoolSource() = default;
  PoolSource(const PoolSource&) = delete;
  PoolSource& operator=(const PoolSource&) = delete;
  virtual ~PoolSource() = default;

  [[nodiscard]] virtual std::int64_t steps() const = 0;
  /// As planned: what the batches hold where TokenShards::is_exact().
  [[nodiscard]] virtual Totals totals(std::int64_t step) const = 0;
  /// Route of each of the `micro_batches` micro-batches of a step, or -1 where the step has fewer.
  [[nodiscard]] virtual std::vector<int> routes(std::int64_t step) const = 0;
  /// Micro-batch j of a step; empty where the step has fewer.
  [[nodiscard]] virtual Batch assemble(std::int64_t step, int j) const = 0;
  [[nodiscard]] virtual Report report() const = 0;

  [[nodiscard]] const PoolBegin& begin() const noexcept { return begin_; }
  /// Where the pool after it begins.
  [[nodiscard]] const PoolBegin& next() const noexcept { return next_; }

 private:
  friend class PoolMaker;
  PoolBegin begin_, next_;
};

struct PoolSettings {
  std::uint64_t seed = 1;
  StepSizes sizes;
  BatchConfig batch;
  double temperature = 1.0;
  std::vector<std::uint32_t> routes{};  // through the model, of the pairs of each corpus; empty: route 0
  std::int64_t position_shift_max = 0;  // model.position_shift_max; 0 for validation
  bool draws = true;                    // false, for validation: transforms that draw are applied without chance
};

/// Makes pools of shards by settings: a pure function of the seed and of where a pool begins.
class PoolMaker {
 public:
  /// Throws Error{config} when packing is asked for pairs or a row does not fit micro_size, Error{data} when there is
  /// nothing to train on.
  PoolMaker(const TokenShards& shards, const spec::Vocabulary& vocabulary, PoolSettings settings);
  /// Throws Error{data} under batch.oversized `error` for a pair that does not fit a micro-batch.
  [[nodiscard]] std::unique_ptr<PoolSource> make(const PoolBegin& at) const;
  [[nodiscard]] std::int64_t pools_in_epoch() const noexcept { return sampler_.pools_in_epoch(); }
  /// Share of the drawn pairs or documents that comes from each corpus.
  [[nodiscard]] const std::vector<double>& shares() const noexcept { return sampler_.shares(); }
  /// How often each corpus has been drawn as a whole, when a share of the pool is done.
  [[nodiscard]] std::vector<double> passes(const PoolSource& pool, double done) const;
  /// Whether the totals of a plan are what its batches hold.
  [[nodiscard]] bool is_exact() const noexcept { return shards_.is_exact(); }

 private:
  class Planned;
  class Pairs;
  class SingleRows;
  class PackedRows;
  [[nodiscard]] Sampler make_sampler() const;
  [[nodiscard]] int route_count() const;
  [[nodiscard]] BatchPlanSettings plan_settings() const;
  [[nodiscard]] Lengths fitted(std::uint64_t example, const Lengths& lengths) const;

  const TokenShards& shards_;
  spec::Vocabulary vocabulary_;
  PoolSettings settings_;
  bool packed_;
  std::int64_t rows_;  // packed: rows of a micro-batch
  Sampler sampler_;
};

}  // namespace argosy::data
