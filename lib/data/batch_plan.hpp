#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/data_config.hpp"

/// How the examples of a pool become the micro-batches of steps: sorted by route and lengths, cut into micro-batches of
/// one route each, dealt to steps so that each step has every route by its share, and the steps are shuffled. With one
/// route, neighbours form a step. Pure, the same for any world size. dealing.hpp gives the micro-batches of a step to
/// ranks. Lengths are those of the plan: EOS included.
namespace argosy::data {

/// A micro-batch of a plan; empty for ranks left over. Examples are places in the list that was planned.
struct MicroBatch {
  std::span<const std::uint32_t> examples;
  std::int64_t source_width = 0, target_width = 0;  // S, T
  std::int64_t src_tokens = 0, tgt_tokens = 0;
  std::uint32_t route = 0;  // through the model, of all its examples
  [[nodiscard]] std::int64_t padded_tokens() const {
    return static_cast<std::int64_t>(examples.size()) * (source_width + target_width);
  }
};

struct BatchPlanSettings {
  BatchUnit unit = BatchUnit::padded_tokens;
  std::int64_t micro_size = 0;  // rows · (S + T), or rows
  int micro_batches = 0;        // of a step
  std::int64_t width_multiple = 1;
};

/// Numbers that the shuffle of a pool's steps depends on.
struct PoolKey {
  std::uint64_t seed = 1, epoch = 0, pool = 0;
};

/// Move-only: its micro-batches borrow from it.
class BatchPlan {
 public:
  /// Plans examples of these lengths, and of these routes (empty: all have route 0). Those that alone exceed micro_size
  /// are left out and counted.
  BatchPlan(const BatchPlanSettings& settings, std::span<const Lengths> lengths, const PoolKey& key,
            std::span<const std::uint32_t> routes = {});
  BatchPlan(BatchPlan&&) noexcept = default;
  BatchPlan& operator=(BatchPlan&&) noexcept = default;

  [[nodiscard]] std::int64_t steps() const noexcept { return std::ssize(steps_); }
  /// Micro-batches of a step that hold examples: settings.micro_batches, fewer in the short last step of a pool.
  [[nodiscard]] int micro_batches(std::int64_t step) const;
  /// Micro-batch j of a step; empty from micro_batches(step) on.
  [[nodiscard]] MicroBatch micro_batch(std::int64_t step, int j) const;
  [[nodiscard]] const std::vector<MicroBatch>& all() const noexcept { return pieces_; }
  [[nodiscard]] std::int64_t oversized() const noexcept { return oversized_; }

 private:
  struct Step {
    std::uint32_t first_piece = 0, pieces = 0;
  };
  /// Puts the pieces, which are sorted by route and length, in the order of steps of so many.
  void deal(std::size_t micro_batches);

  std::vector<std::uint32_t> examples_;
  std::vector<MicroBatch> pieces_;
  std::vector<Step> steps_;
  std::int64_t oversized_ = 0;
};

/// Whether an example of these lengths fits a micro-batch.
[[nodiscard]] bool fits(const BatchPlanSettings& settings, const Lengths& lengths);

}  // namespace argosy::data
