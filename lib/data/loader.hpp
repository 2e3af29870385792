#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.hpp"
#include "data/epoch_source.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer.hpp"

/// Batches of one rank, step after step, assembled ahead by a thread that reads memory-mapped token shards and calls
/// neither MPI nor HDF5. The order is a pure function of (seed, epoch): resuming at a cursor makes one plan and reads
/// no earlier text. Call from one thread.
namespace argosy::data {

/// Where a run stands in its data: what a checkpoint stores.
struct Cursor {
  std::int64_t epoch = 0, step = 0;  // step within the epoch
  bool operator==(const Cursor&) const = default;
};

/// What one rank computes in a step.
struct StepBatches {
  Cursor at;                                       // of this step
  Cursor next;                                     // of the step after it
  std::vector<Batch> batches;                      // [accumulation], by slot; empty ones where other ranks have more
  std::int64_t tgt_tokens = 0;                     // over all ranks: the gradient's denominator
  std::int64_t src_tokens = 0, padded_tokens = 0;  // over all ranks
  std::int64_t steps_in_epoch = 0;
  double epochs_done = 0;  // after this step, with the fraction
};

struct LoaderSettings {
  EpochSettings epoch;
  int canonical_rank = 0, world = 1;
  std::size_t ahead = 4;  // steps kept ready
};

class Loader {
 public:
  /// Borrows `shards` for its life and plans the first epoch. Throws Error{config} when packing is asked for pairs or a
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
  /// Steps, fill and efficiency of the epoch the loader began in (for the log; later epochs differ by a few steps).
  [[nodiscard]] const EpochSource::Report& report() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace argosy::data
