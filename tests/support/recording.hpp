#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/collectives.hpp"

namespace argosy::test {

/// A backend that writes down what it is asked for, in order. Alone it moves nothing; in front of another backend it
/// passes every call on. It counts what a two-level backend would send, by the formulas of comm/traffic.hpp.
class RecordingCollectives : public comm::Collectives {
 public:
  struct Call {
    std::string operation;
    std::int64_t elements = 0, size_bytes = 0;  // of the flat buffer or the values
    std::int64_t step = -1;
    comm::ReduceCall call = {};  // levels alone for all_gather
    auto operator<=>(const Call&) const = default;
  };

  /// Speaks for one rank of a layout. `inner`, when given, does the work and outlives this object. `options` are those
  /// of the backend it counts for.
  RecordingCollectives(partition::Layout layout, int canonical_rank, comm::Collectives* inner = nullptr,
                       comm::CollectivesOptions options = {})
      : layout_(std::move(layout)), canonical_rank_(canonical_rank), inner_(inner), options_(options) {}

  [[nodiscard]] comm::Event reduce_scatter(const partition::FlatSpace& space, comm::BufferView flat,
                                           comm::BufferView shard, comm::Event ready,
                                           comm::ReduceCall call = {}) override {
    record("reduce_scatter", flat.elements, flat.size_bytes(),
           comm::reduce_scatter_bytes(space, canonical_rank_, flat.dtype, options_, call.levels), call);
    return inner_ != nullptr ? inner_->reduce_scatter(space, flat, shard, std::move(ready), call) : std::move(ready);
  }
  [[nodiscard]] comm::Event all_gather(const partition::FlatSpace& space, comm::BufferView flat, comm::Event ready,
                                       comm::Levels levels = comm::Levels::both) override {
    const auto element_bytes = static_cast<std::int64_t>(size_of(flat.dtype));
    record("all_gather", flat.elements, flat.size_bytes(),
           comm::all_gather_bytes(space, canonical_rank_, element_bytes).of(levels), {.levels = levels});
    return inner_ != nullptr ? inner_->all_gather(space, flat, std::move(ready), levels) : std::move(ready);
  }
  void all_reduce(std::span<double> values) override { sum(values); }
  void all_reduce(std::span<std::int64_t> values) override { sum(values); }
  [[nodiscard]] const comm::Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t step) override {
    step_ = step;
    if (inner_ != nullptr) inner_->set_step(step);
  }

  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  /// The last one that was set.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }

 private:
  template <class T>
  void sum(std::span<T> values) {
    const auto size_bytes = static_cast<std::int64_t>(values.size_bytes());
    record("scalar", std::ssize(values), size_bytes, comm::scalar_bytes(layout_, canonical_rank_, size_bytes));
    if (inner_ != nullptr) inner_->all_reduce(values);
  }
  void record(const std::string& operation, std::int64_t elements, std::int64_t size_bytes,
              const comm::Traffic::Bytes& sent, comm::ReduceCall call = {}) {
    calls_.push_back({operation, elements, size_bytes, step_, call});
    traffic_.by_operation[operation] += sent;
  }

  partition::Layout layout_;
  int canonical_rank_;
  comm::Collectives* inner_;
  comm::CollectivesOptions options_;
  std::int64_t step_ = -1;
  comm::Traffic traffic_;
  std::vector<Call> calls_;
};

}  // namespace argosy::test
