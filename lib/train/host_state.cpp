#include "train/host_state.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace argosy::train {
namespace {

at::Tensor view_of_host(std::span<float> values) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat);
}

}  // namespace

HostState::HostState(const model::Model& model, Buffers& buffers, c10::Device device)
    : model_(model), buffers_(buffers), device_(device) {
  for (const UnitBuffers& unit : buffers.units()) {
    for (const at::Tensor& live : {unit.shard.master, unit.shard.exp_avg, unit.shard.exp_avg_sq, unit.shard.ema}) {
      if (!live.defined()) continue;
      Pair& pair = pairs_.emplace_back(Pair{.live = live, .host = {}, .pinned = {}, .plain = {}});
      if (device.is_cpu()) {
        pair.plain.resize(static_cast<std::size_t>(live.numel()));
        pair.host = pair.plain;
      } else {
        pair.pinned = at::empty(live.sizes(), at::TensorOptions(at::kFloat).pinned_memory(true));
        pair.host = {pair.pinned.mutable_data_ptr<float>(), static_cast<std::size_t>(live.numel())};
      }
    }
  }
}

std::vector<checkpoint::UnitState> HostState::states(bool with_moments) {
  std::vector<checkpoint::UnitState> states;
  states.reserve(model_.units().size());
  const std::size_t tensors = pairs_.size() / model_.units().size();
  for (std::size_t u = 0; u < model_.units().size(); ++u) {
    const Pair* const pair = &pairs_[tensors * u];
    states.push_back({.name = model_.units()[u].name(),
                      .space = &model_.units()[u].space(),
                      .master = pair[0].host,
                      .exp_avg = with_moments ? pair[1].host : std::span<float>{},
                      .exp_avg_sq = with_moments ? pair[2].host : std::span<float>{},
                      .ema = tensors > 3 ? pair[3].host : std::span<float>{}});
  }
  return states;
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
  for (Pair& pair :
       pairs_) {  // by this thread alone: LibTorch's own copy would start a team of threads beside training's
    if (pair.live.scalar_type() == at::kFloat) {
      std::copy_n(pair.live.const_data_ptr<float>(), pair.host.size(), pair.host.data());
    } else {
      std::copy_n(pair.live.const_data_ptr<c10::BFloat16>(), pair.host.size(), pair.host.data());
    }
  }
}

void HostState::load() {
  for (Pair& pair : pairs_) pair.live.copy_(view_of_host(pair.host));
  buffers_.cast_masters();
}

}  // namespace argosy::train
