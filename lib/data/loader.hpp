#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "data/data_config.hpp"
#include "data/sampler.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer.hpp"

/// Batches of one rank, step after step, assembled ahead by threads that read memory-mapped token shards and call
/// neither MPI nor HDF5. The order is a pure function of (seed, epoch): resuming at a cursor makes one plan and reads
/// no earlier text. Call next() from one thread.
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
  double epoch_done = 0;  // epochs finished after this step, with the fraction
};

struct LoaderSettings {
  std::uint64_t seed = 1;
  StepSizes sizes;
  BatchConfig batch;
  double temperature = 1.0;
  int workers = 2;  // threads that assemble
  int canonical_rank = 0, world = 1;
  int ahead = 4;  // steps kept ready
};

class Loader {
 public:
  /// Borrows `shards` (training part) for its life. Throws Error{config} when packing is asked for pairs, Error{data}
  /// when the corpora mix pairs and language-model text or hold nothing to train on.
  Loader(const TokenShards& shards, const Vocabulary& vocabulary, LoaderSettings settings, Cursor from = {});
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The batches of the next step; epochs follow each other without end. Rethrows what an assembling thread threw.
  [[nodiscard]] StepBatches next();
  /// Seconds next() has waited for data so far.
  [[nodiscard]] double waited_s() const noexcept;
  /// Steps of an epoch, and what its plan says of batches (for the log).
  [[nodiscard]] std::int64_t steps_in_epoch(std::int64_t epoch);
  [[nodiscard]] std::string report(std::int64_t epoch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace argosy::data
