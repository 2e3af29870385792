#pragma once

#include <string>
#include <vector>

#include "comm/collectives.hpp"

/// A backend that writes down what it is asked for, in order: for tests of schedules and for the planner's replay.
/// Alone it moves nothing and counts what a two-level backend would send; in front of another backend it passes every
/// call on.
namespace argosy::comm {

class RecordingCollectives final : public Collectives {
 public:
  struct Call {
    std::string operation;
    std::int64_t elements = 0, size_bytes = 0;  // of the flat buffer or the values
    std::int64_t step = -1;
    ReduceCall call = {};  // levels alone for all_gather
    auto operator<=>(const Call&) const = default;
  };

  /// Speaks for one rank of a layout; `inner`, when given, does the work and outlives this object; `options` are those
  /// of the backend it counts for.
  RecordingCollectives(partition::Layout layout, int canonical_rank, Collectives* inner = nullptr,
                       CollectivesOptions options = {});

  [[nodiscard]] Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard, Event ready,
                                     ReduceCall call = {}) override;
  [[nodiscard]] Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready,
                                 Levels levels = Levels::both) override;
  void all_reduce(std::span<double> values) override;
  void all_reduce(std::span<std::int64_t> values) override;
  /// By the formulas of traffic.hpp, whatever `inner` counts.
  [[nodiscard]] const Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t step) override;

  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }

 private:
  void record(const std::string& operation, std::int64_t elements, std::int64_t size_bytes, const Traffic::Bytes& sent,
              ReduceCall call = {});

  partition::Layout layout_;
  int canonical_rank_;
  Collectives* inner_;
  CollectivesOptions options_;
  std::int64_t step_ = -1;
  Traffic traffic_;
  std::vector<Call> calls_;
};

}  // namespace argosy::comm
