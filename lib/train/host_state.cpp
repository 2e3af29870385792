#include "train/host_state.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace argosy::train {

HostState::HostState(const model::Model& model, Buffers& buffers, c10::Device device, const plan::Placement& placement,
                     int world)
    : buffers_(buffers), device_(device) {
  const auto members = [&](std::size_t u) { return placement.members(model.spec().units[u].component); };
  for (std::size_t u = 0; u < buffers.units().size(); ++u) {
    units_.push_back({model.units()[u].name(), among_all(model.units()[u].space(), members(u), world), {}});
    for (const auto& [tensor, live] : buffers.units()[u].state) add(u, tensor, live);
  }
  for (std::size_t u = 0; u < buffers.units().size(); ++u) {
    for (const optim::Statistics::Tensor& tensor : buffers.units()[u].statistics.tensors) {
      units_.push_back({model.units()[u].name() + "." + tensor.name, among_all(tensor.space, members(u), world), {}});
      add(units_.size() - 1, {tensor.name}, tensor.shard);
    }
  }
}

const partition::FlatSpace* HostState::among_all(const partition::FlatSpace& space, const std::vector<int>& members,
                                                 int world) {
  return members.empty() ? &space : &spaces_.emplace_back(space.among(members, world));
}

void HostState::add(std::size_t unit, const spec::StateTensor& tensor, const at::Tensor& live) {
  Pair& pair =
      pairs_.emplace_back(Pair{.unit = unit, .tensor = tensor, .live = live, .host = {}, .pinned = {}, .plain = {}});
  const std::size_t size_bytes = static_cast<std::size_t>(live.numel()) * size_of(tensor.dtype);
  if (device_.is_cpu()) {
    pair.plain.resize(size_bytes);
    pair.host = pair.plain;
  } else {
    pair.pinned = at::zeros(live.sizes(), at::TensorOptions(stored_type(tensor.dtype)).pinned_memory(true));
    pair.host = {static_cast<std::byte*>(pair.pinned.mutable_data_ptr()), size_bytes};
  }
}

std::vector<checkpoint::UnitState> HostState::states(bool with_optimizer) {
  std::vector<checkpoint::UnitState> states = units_;
  for (const Pair& pair : pairs_) {
    const bool is_optimizers = pair.tensor.name != spec::weights_tensor && pair.tensor.name != spec::mean_tensor;
    if (with_optimizer || !is_optimizers) states[pair.unit].tensors.push_back({pair.tensor, pair.host});
  }
  std::erase_if(states, [](const checkpoint::UnitState& unit) { return unit.tensors.empty(); });
  return states;
}

std::int64_t HostState::size_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Pair& pair : pairs_) sum += static_cast<std::int64_t>(pair.host.size());
  return sum;
}

void HostState::begin_copy() {
  if (device_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device_.type());
  const c10::Stream side = devices.getStreamFromGlobalPool(device_);
  c10::Event updated(device_.type());
  updated.record(devices.getStream(device_));
  updated.block(side);
  const c10::StreamGuard on_the_side(side);
  for (Pair& pair : pairs_) pair.pinned.copy_(pair.live, /*non_blocking=*/true);
  copied_.emplace(device_.type()).record(side);
}

void HostState::complete_copy() {
  if (!device_.is_cpu()) return copied_->synchronize();
  // LibTorch's copy would start a team of threads next to that of training.
  for (Pair& pair : pairs_) {
    if (pair.live.scalar_type() == at::kBFloat16 && pair.tensor.dtype == DType::f32) {
      std::copy_n(pair.live.const_data_ptr<c10::BFloat16>(), pair.live.numel(),
                  reinterpret_cast<float*>(pair.host.data()));
    } else {
      std::copy_n(static_cast<const std::byte*>(pair.live.const_data_ptr()), pair.host.size(), pair.host.data());
    }
  }
}

void HostState::load() {
  for (Pair& pair : pairs_)
    pair.live.copy_(at::from_blob(pair.host.data(), pair.live.sizes(), stored_type(pair.tensor.dtype)));
  buffers_.cast_masters();
}

}  // namespace argosy::train
