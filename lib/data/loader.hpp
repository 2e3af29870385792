#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.hpp"
#include "data/dealing.hpp"
#include "data/pool_source.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer.hpp"

/// Batches of one rank, step after step, assembled ahead by threads that read memory-mapped token shards and call
/// neither MPI nor HDF5. The order does not depend on their number, and resuming at a cursor plans one pool and reads
/// no earlier text. Call from one thread.
namespace argosy::data {

/// Where a run stands in its data: what a checkpoint stores.
struct Cursor {
  PoolBegin pool;
  std::int64_t step = 0;  // within the pool; one beyond its end means a later pool of the epoch
  bool operator==(const Cursor&) const = default;
};

/// What one rank computes in a step.
struct StepBatches {
  Cursor at;                   // of this step
  Cursor next;                 // of the step after it
  std::vector<Batch> batches;  // by slot; empty ones where other ranks have more
  std::vector<int> routes{};   // of the micro-batches of all ranks, as PoolSource::routes
  Dealt dealt{};               // the same micro-batches, by slot and rank
  /// Over all ranks where the plan knows them (Loader::is_exact), else of this rank's batches. tgt_tokens of all ranks
  /// are the gradient's denominator.
  PoolSource::Totals totals{};

  double epochs_done = 0;        // after this step, with the fraction
  std::vector<double> passes{};  // through each corpus, after this step; of several, batches have Batch::corpora
};

struct LoaderSettings {
  PoolSettings pool;
  int canonical_rank = 0;
  DealSettings deal{};    // of the micro-batches of a step
  int workers = 1;        // threads that assemble
  std::size_t ahead = 4;  // steps kept ready
};

class Loader {
 public:
  /// Borrows `shards` for its life and plans the first pool. Throws Error{config} when packing is asked for pairs or a
  /// row does not fit micro_size, Error{data} when there is nothing to train on.
  Loader(const TokenShards& shards, const spec::Vocabulary& vocabulary, const LoaderSettings& settings,
         Cursor from = {});
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The batches of the next step; epochs follow each other without end. Rethrows what the assembling thread threw.
  [[nodiscard]] StepBatches next();
  /// Seconds next() has waited for data so far.
  [[nodiscard]] double waited_s() const noexcept;
  /// Whether the totals of a step are those of all ranks.
  [[nodiscard]] bool is_exact() const noexcept;
  /// Of the pool the loader began in; later ones differ little.
  [[nodiscard]] const PoolSource::Report& report() const noexcept;
  [[nodiscard]] std::int64_t pools_in_epoch() const noexcept;
  /// As PoolMaker::shares.
  [[nodiscard]] const std::vector<double>& shares() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace argosy::data
