#include "comm/recording.hpp"

#include <utility>

namespace argosy::comm {

RecordingCollectives::RecordingCollectives(partition::Layout layout, int canonical_rank, Collectives* inner)
    : layout_(std::move(layout)), canonical_rank_(canonical_rank), inner_(inner) {}

Event RecordingCollectives::reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard,
                                           Event ready) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(flat.dtype));
  record("reduce_scatter", flat.elements, flat.size_bytes(),
         reduce_scatter_bytes(space, canonical_rank_, element_bytes, 4));
  return inner_ != nullptr ? inner_->reduce_scatter(space, flat, shard, std::move(ready)) : std::move(ready);
}

Event RecordingCollectives::all_gather(const partition::FlatSpace& space, BufferView flat, Event ready) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(flat.dtype));
  record("all_gather", flat.elements, flat.size_bytes(), all_gather_bytes(space, canonical_rank_, element_bytes));
  return inner_ != nullptr ? inner_->all_gather(space, flat, std::move(ready)) : std::move(ready);
}

void RecordingCollectives::all_reduce(std::span<double> values) {
  const auto size_bytes = static_cast<std::int64_t>(values.size_bytes());
  record("scalar", static_cast<std::int64_t>(values.size()), size_bytes,
         scalar_bytes(layout_, canonical_rank_, size_bytes));
  if (inner_ != nullptr) inner_->all_reduce(values);
}

void RecordingCollectives::all_reduce(std::span<std::int64_t> values) {
  const auto size_bytes = static_cast<std::int64_t>(values.size_bytes());
  record("scalar", static_cast<std::int64_t>(values.size()), size_bytes,
         scalar_bytes(layout_, canonical_rank_, size_bytes));
  if (inner_ != nullptr) inner_->all_reduce(values);
}

void RecordingCollectives::set_step(std::int64_t step) {
  step_ = step;
  if (inner_ != nullptr) inner_->set_step(step);
}

void RecordingCollectives::record(const std::string& operation, std::int64_t elements, std::int64_t size_bytes,
                                  const Traffic::Bytes& sent) {
  calls_.push_back({operation, elements, size_bytes, step_});
  Traffic::Bytes& counted = traffic_.by_operation[operation];
  counted.inner += sent.inner;
  counted.outer += sent.outer;
  counted.calls += sent.calls;
}

}  // namespace argosy::comm
