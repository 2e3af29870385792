#include "train/buffers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>

namespace argosy::train {

comm::BufferView view_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.numel(),
          tensor.scalar_type() == at::kBFloat16 ? DType::bf16 : DType::f32};
}

Buffers::Buffers(model::Model& model, int canonical_rank, at::ScalarType compute_type, c10::Device device,
                 ReduceEvery reduce_every)
    : model_(model), canonical_rank_(canonical_rank) {
  const auto fp32 = at::TensorOptions(at::kFloat).device(device);
  for (model::Unit& unit : model.units()) {
    const partition::FlatSpace& space = unit.space();
    const std::int64_t owned = space.owned_size(canonical_rank);
    const std::vector<int> slices = space.owned_slices(canonical_rank);
    UnitBuffers buffers;
    buffers.weights = at::zeros({space.padded_size()}, fp32.dtype(compute_type));
    buffers.gradients = at::zeros({space.padded_size()}, fp32);
    const bool one_slice = slices.size() == 1, master_in_place = one_slice && compute_type == at::kFloat;
    const auto own_slice = [&](const at::Tensor& flat) { return flat.narrow(0, space.slice_begin(slices[0]), owned); };
    optim::ShardState& shard = buffers.shard;
    shard.gradient =
        one_slice && reduce_every == ReduceEvery::step ? own_slice(buffers.gradients) : at::zeros({owned}, fp32);
    shard.master = master_in_place ? own_slice(buffers.weights) : at::zeros({owned}, fp32);
    if (!master_in_place) shard.weights = buffers.weights;
    shard.exp_avg = at::zeros({owned}, fp32);
    shard.exp_avg_sq = at::zeros({owned}, fp32);
    buffers.stretches = optim::stretches_of(space, canonical_rank, shard);
    unit.bind(buffers.weights, buffers.gradients);
    units_.push_back(std::move(buffers));
  }
}

void Buffers::initialise(std::uint64_t seed) {
  const std::vector<checkpoint::UnitState> states = host_states();
  for (const checkpoint::UnitState& state : states) {
    for (const partition::Interval& interval : partition::intervals_of(*state.space, canonical_rank_)) {
      model::initial_values(model_.shape(), state.space->params()[interval.param], seed, interval.begin, interval.end,
                            state.master.data() + interval.local_offset);
    }
  }
  load_host_states();
}

void Buffers::publish(comm::Collectives& collectives) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (optim::Stretch& stretch : units_[u].stretches) {
      if (stretch.weights) stretch.weights->copy_(stretch.master);
    }
    collectives.all_gather(model_.units()[u].space(), view_of(units_[u].weights), {}).wait();
  }
}

std::vector<checkpoint::UnitState> Buffers::host_states() {
  host_.clear();
  std::vector<checkpoint::UnitState> states;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const optim::ShardState& shard = units_[u].shard;
    std::array<std::span<float>, 3> spans;
    for (std::size_t i = 0; const at::Tensor& tensor : {shard.master, shard.exp_avg, shard.exp_avg_sq}) {
      const at::Tensor& host = host_.emplace_back(tensor.cpu());  // the tensor itself where it is on the host
      spans[i++] = {host.mutable_data_ptr<float>(), static_cast<std::size_t>(host.numel())};
    }
    states.push_back({.name = model_.units()[u].name(),
                      .space = &model_.units()[u].space(),
                      .master = spans[0],
                      .exp_avg = spans[1],
                      .exp_avg_sq = spans[2]});
  }
  return states;
}

void Buffers::load_host_states() {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const optim::ShardState& shard = units_[u].shard;
    for (std::size_t i = 0; at::Tensor tensor : {shard.master, shard.exp_avg, shard.exp_avg_sq}) {
      const at::Tensor& host = host_[3 * u + i++];
      if (!tensor.is_same(host)) tensor.copy_(host);
    }
  }
}

}  // namespace argosy::train
