#include "comm/recording.hpp"

#include <utility>

namespace argosy::comm {

RecordingCollectives::RecordingCollectives(partition::Layout layout, int canonical_rank, Collectives* inner,
                                           CollectivesOptions options)
    : layout_(std::move(layout)), canonical_rank_(canonical_rank), inner_(inner), options_(options) {}

Event RecordingCollectives::reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard,
                                           Event ready, ReduceCall call) {
  record("reduce_scatter", flat.elements, flat.size_bytes(),
         reduce_scatter_bytes(space, canonical_rank_, flat.dtype, options_, call.levels), call);
  return inner_ != nullptr ? inner_->reduce_scatter(space, flat, shard, std::move(ready), call) : std::move(ready);
}

Event RecordingCollectives::all_gather(const partition::FlatSpace& space, BufferView flat, Event ready, Levels levels) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(flat.dtype));
  record("all_gather", flat.elements, flat.size_bytes(),
         all_gather_bytes(space, canonical_rank_, element_bytes).of(levels), {.levels = levels});
  return inner_ != nullptr ? inner_->all_gather(space, flat, std::move(ready), levels) : std::move(ready);
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
                                  const Traffic::Bytes& sent, ReduceCall call) {
  calls_.push_back({operation, elements, size_bytes, step_, call});
  traffic_.by_operation[operation] += sent;
}

}  // namespace argosy::comm
