#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/data_config.hpp"

/// Which examples form which micro-batch of which step: a pure function of (seed, epoch), without I/O, MPI or threads,
/// the same for any world size (reference: sorted pools as in Marian, adjacent micro-batches in a step). Micro-batch j
/// of a step belongs to canonical rank j mod W, slot j div W. Lengths are those of the plan: EOS included.
namespace argosy::data {

struct CorpusLengths {
  std::span<const Lengths> lengths;  // borrowed for the life of the sampler
  double weight = 1.0;
};

/// A micro-batch of a plan; empty for ranks left over. Examples are numbered through all corpora, in their order.
struct MicroBatch {
  std::span<const std::uint64_t> examples;
  std::int64_t source_width = 0, target_width = 0;  // S, T
  std::int64_t src_tokens = 0, tgt_tokens = 0;
  [[nodiscard]] std::int64_t padded_tokens() const {
    return static_cast<std::int64_t>(examples.size()) * (source_width + target_width);
  }
};

struct SamplerSettings {
  std::uint64_t seed = 1;
  BatchUnit unit = BatchUnit::padded_tokens;
  std::int64_t micro_size = 0;  // rows · (S + T), or rows
  int micro_batches = 0;        // of a step
  std::int64_t pool = 100000;   // examples; at least those of 64 steps
  std::int64_t width_multiple = 1;
  double temperature = 1.0;
};

/// The steps of one epoch. Move-only: its micro-batches borrow from it.
class EpochPlan {
 public:
  EpochPlan(EpochPlan&&) noexcept = default;
  [[nodiscard]] std::int64_t steps() const noexcept { return static_cast<std::int64_t>(steps_.size()); }
  /// Micro-batches of a step that hold examples: settings.micro_batches, fewer in the short last step of a pool.
  [[nodiscard]] int micro_batches(std::int64_t step) const;
  /// Micro-batch j of a step; empty from micro_batches(step) on.
  [[nodiscard]] MicroBatch micro_batch(std::int64_t step, int j) const;

  [[nodiscard]] std::int64_t drawn() const noexcept { return drawn_; }  // examples of the epoch
  /// Examples that alone exceed micro_size.
  [[nodiscard]] std::int64_t dropped_oversized() const noexcept { return dropped_oversized_; }
  /// padded_tokens / (micro_size · micro-batches) (rows / micro_size under unit examples).
  [[nodiscard]] double fill() const;
  /// Loss-bearing share of rows · T.
  [[nodiscard]] double target_efficiency() const;

 private:
  friend class Sampler;
  explicit EpochPlan(const SamplerSettings& settings) : settings_(settings) {}
  struct Step {
    std::uint32_t first_piece = 0, pieces = 0;
  };
  SamplerSettings settings_;
  std::vector<std::uint64_t> examples_;
  std::vector<MicroBatch> pieces_;
  std::vector<Step> steps_;
  std::int64_t drawn_ = 0, dropped_oversized_ = 0;
};

class Sampler {
 public:
  /// Throws Error{data} when there is no example at all or every one exceeds micro_size.
  Sampler(SamplerSettings settings, std::vector<CorpusLengths> corpora);

  /// The plan of an epoch (from 0). Draws from corpora by p ∝ weight · tgt_tokens^(1/temperature), inside a corpus a
  /// keyed permutation, new for each pass through it.
  [[nodiscard]] EpochPlan plan(std::int64_t epoch) const;

  /// The examples of an epoch in the order they are drawn, before sorting: [number of examples].
  [[nodiscard]] std::vector<std::uint64_t> draws(std::int64_t epoch) const;

  /// How often each corpus has been drawn when `epoch` begins.
  [[nodiscard]] std::vector<std::int64_t> drawn_before(std::int64_t epoch) const;
  /// Share of examples each corpus is drawn with.
  [[nodiscard]] const std::vector<double>& shares() const noexcept { return shares_; }

 private:
  [[nodiscard]] const Lengths& lengths_of(std::uint64_t example) const;
  [[nodiscard]] std::int64_t width(std::uint32_t length) const;
  [[nodiscard]] bool fits(const Lengths& lengths) const;

  SamplerSettings settings_;
  std::vector<CorpusLengths> corpora_;
  std::vector<std::uint64_t> first_;  // number of each corpus's first example, and the total
  std::vector<double> shares_;
};

}  // namespace argosy::data
