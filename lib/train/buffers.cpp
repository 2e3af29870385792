#include "train/buffers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>

namespace argosy::train {

comm::BufferView view_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.numel(),
          tensor.scalar_type() == at::kBFloat16 ? DType::bf16 : DType::f32};
}

at::ScalarType stored_type(DType dtype) {
  return dtype == DType::u8 ? at::kByte : dtype == DType::bf16 ? at::kBFloat16 : at::kFloat;
}

Buffers::Buffers(model::Model& model, std::vector<int> canonical_ranks, const BufferChoices& choices)
    : model_(model), canonical_ranks_(std::move(canonical_ranks)) {
  const auto fp32 = at::TensorOptions(at::kFloat).device(choices.device);
  const auto weight_type = fp32.dtype(choices.compute_type);
  const plan::PlanShape shape = plan::plan_shape(model.spec(), model.units().front().space().layout());
  const std::vector<int> turns = plan::turns_of(shape);
  std::int64_t largest = 0, largest_trained = 0;  // of the units that take turns
  for (std::size_t u = 0; u < turns.size(); ++u) {
    if (turns[u] < 0 || rank_in(u) < 0) continue;
    largest = std::max(largest, model.units()[u].space().padded_size());
    if (!shape.frozen.contains(u)) largest_trained = std::max(largest_trained, model.units()[u].space().padded_size());
  }
  std::array<at::Tensor, 2> rotating_weights, rotating_gradients;
  for (std::size_t b = 0; b < 2; ++b) {
    if (plan::rotates_weights(choices.scheme)) rotating_weights[b] = at::zeros({largest}, weight_type);
    if (plan::rotates_gradients(choices.scheme)) rotating_gradients[b] = at::zeros({largest_trained}, fp32);
  }
  std::int64_t parameters = 0;
  for (std::size_t u = 0; u < turns.size(); ++u) {
    model::Unit& unit = model.units()[u];
    const partition::FlatSpace& space = unit.space();
    UnitBuffers& buffers = units_.emplace_back();
    const auto first_parameter =
        std::exchange(parameters, parameters + static_cast<std::int64_t>(space.params().size()));
    const auto reads = [u](const spec::Visit& visit) {
      return std::count(visit.units.begin(), visit.units.end(), u) > 0;
    };
    if (std::none_of(model.spec().visits.begin(), model.spec().visits.end(), reads)) continue;
    const int canonical_rank = rank_in(u);
    buffers.statistics = optim::statistics_of(model.spec().units[u], space, canonical_rank, choices.state, fp32);
    if (canonical_rank < 0) {
      for (const spec::StateTensor& tensor : model.spec().units[u].kept(choices.state))
        if (tensor.is_flat()) buffers.state.emplace_back(tensor, at::zeros({0}, fp32.dtype(stored_type(tensor.dtype))));
      continue;
    }
    const std::int64_t padded = space.padded_size(), owned = space.owned_size(canonical_rank);
    const std::vector<int> slices = space.owned_slices(canonical_rank);
    const bool takes_turns = turns[u] >= 0, trains = !shape.frozen.contains(u);
    const at::ScalarType master_type = trains ? choices.master_type : choices.compute_type;
    const auto turn = static_cast<std::size_t>(std::max(turns[u], 0));
    buffers.rotates_weights = takes_turns && plan::rotates_weights(choices.scheme);
    buffers.rotates_gradients = takes_turns && trains && plan::rotates_gradients(choices.scheme);
    buffers.weights =
        buffers.rotates_weights ? rotating_weights[turn].narrow(0, 0, padded) : at::zeros({padded}, weight_type);
    if (trains)
      buffers.gradients =
          buffers.rotates_gradients ? rotating_gradients[turn].narrow(0, 0, padded) : at::zeros({padded}, fp32);
    // What lives as long as the run and has this rank's slices in it, from element `begin` of the unit on.
    at::Tensor weights = buffers.weights, gradients = buffers.gradients;
    std::int64_t begin = 0;
    if (takes_turns && choices.scheme == plan::Scheme::hybrid) {
      const std::int64_t nodes = space.layout().nodes();
      begin = space.layout().slots_of(canonical_rank).front() * nodes * space.slice_size();
      weights = buffers.held_weights = at::zeros({owned * nodes}, weight_type);
      if (trains) gradients = buffers.held_gradients = at::zeros({owned * nodes}, fp32);
    } else {
      if (buffers.rotates_weights) weights.reset();
      if (buffers.rotates_gradients) gradients.reset();
    }
    const bool one_slice = slices.size() == 1;
    const auto own_slice = [&](const at::Tensor& of) {
      return of.narrow(0, space.slice_begin(slices.front()) - begin, owned);
    };
    optim::ShardState& shard = buffers.shard;
    buffers.sums_in_place = one_slice && gradients.defined() && choices.reduce_every == plan::ReduceEvery::step;
    const bool master_in_place = one_slice && weights.defined() && choices.compute_type == master_type;
    if (trains) shard.gradient = buffers.sums_in_place ? own_slice(gradients) : at::zeros({owned}, fp32);
    shard.master = master_in_place ? own_slice(weights) : at::zeros({owned}, fp32.dtype(master_type));
    shard.rounding = {.seed = choices.seed, .first_parameter = first_parameter};
    if (!master_in_place) shard.weights = weights;
    shard.weights_begin = begin;
    for (const spec::StateTensor& tensor : model.spec().units[u].kept(choices.state)) {
      if (!tensor.is_flat()) continue;
      const bool is_master = tensor.name == spec::weights_tensor;
      const auto [first, size] = spec::owned_parts(space, tensor)[static_cast<std::size_t>(canonical_rank)];
      const at::Tensor made = is_master ? shard.master : at::zeros({size}, fp32.dtype(stored_type(tensor.dtype)));
      if (tensor.name == spec::mean_tensor) {
        shard.ema = made;
      } else if (!is_master) {
        shard.states.push_back({made, first, tensor.block});
      }
      buffers.state.emplace_back(tensor, made);
    }
    buffers.pieces = optim::pieces_of(space, canonical_rank, shard);
    unit.bind(buffers.weights, buffers.gradients);
  }
}

void Buffers::initialise(std::uint64_t seed) {
  initialise([seed](const spec::Parameter& parameter, std::int64_t begin, std::int64_t end, float* values) {
    model::initial_values(parameter, seed, begin, end, values);
  });
}

void Buffers::initialise(const InitialValues& initial_values) {
  constexpr std::int64_t most = 1 << 24;  // elements at a time
  at::Tensor room;                        // what a GPU copies fast
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].is_here()) continue;
    const partition::FlatSpace& space = model_.units()[u].space();
    optim::ShardState& shard = units_[u].shard;
    const std::int64_t wanted = std::min(most, space.owned_size(rank_in(u)));
    if (!room.defined() || room.numel() < wanted) {
      const bool pinned = !shard.master.device().is_cpu();
      room = at::empty({wanted}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
    }
    shard.master.zero_();
    for (const partition::Interval& interval : partition::intervals_of(space, rank_in(u))) {
      const spec::Parameter& parameter = model_.spec().units[u].parameter(space.params()[interval.param].name);
      for (std::int64_t begin = interval.begin; begin < interval.end; begin += most) {
        const std::int64_t count = std::min(most, interval.end - begin);
        initial_values(parameter, begin, begin + count, room.mutable_data_ptr<float>());
        shard.master.narrow(0, interval.local_offset + begin - interval.begin, count).copy_(room.narrow(0, 0, count));
      }
    }
    if (shard.ema.defined()) shard.ema.copy_(shard.master);
  }
  cast_masters();
}

void Buffers::swap_ema() {
  for (UnitBuffers& unit : units_) {
    if (unit.is_frozen()) continue;
    const at::Tensor master = unit.shard.master.clone();
    unit.shard.master.copy_(unit.shard.ema);
    unit.shard.ema.copy_(master);
  }
  cast_masters();
}

void Buffers::cast_masters() {
  for (UnitBuffers& unit : units_) {
    unit.is_complete = false;
    for (optim::Piece& piece : unit.pieces) {
      if (piece.weights) piece.weights->copy_(piece.master);
    }
  }
}

void Buffers::place_own_weights(std::size_t unit) {
  UnitBuffers& buffers = units_[unit];
  if (!buffers.rotates_weights) return;
  if (buffers.held_weights.defined()) {
    buffers.weights.narrow(0, buffers.shard.weights_begin, buffers.held_weights.numel()).copy_(buffers.held_weights);
    return;
  }
  copy_own_slices(unit, buffers.weights, buffers.shard.master, Copy::to_flat);
}

void Buffers::copy_own_slices(std::size_t unit, const at::Tensor& flat, const at::Tensor& shard, Copy copy) const {
  const partition::FlatSpace& space = model_.units()[unit].space();
  for (std::int64_t local = 0; const int slice : space.owned_slices(rank_in(unit))) {
    const at::Tensor own = shard.narrow(0, local, space.slice_size());
    const at::Tensor place = flat.narrow(0, space.slice_begin(slice), space.slice_size());
    if (place.const_data_ptr() != own.const_data_ptr()) copy == Copy::to_flat ? place.copy_(own) : own.copy_(place);
    local += space.slice_size();
  }
}

void Buffers::place_own_gradients(std::size_t unit) {
  copy_own_slices(unit, units_[unit].gradients, units_[unit].shard.gradient, Copy::to_flat);
}

void Buffers::take_own_gradients(std::size_t unit) {
  copy_own_slices(unit, units_[unit].gradients, units_[unit].shard.gradient, Copy::to_shard);
}

void Buffers::clear_gaps(std::size_t unit) {
  if (!units_[unit].rotates_gradients) return;
  const partition::FlatSpace& space = model_.units()[unit].space();
  std::int64_t end = 0;  // of the parameter before the gap
  const auto clear_until = [&](std::int64_t begin) {
    if (begin > end) units_[unit].gradients.narrow(0, end, begin - end).zero_();
  };
  for (std::size_t p = 0; p < space.params().size(); ++p) {
    clear_until(space.offset(p));
    end = space.offset(p) + space.params()[p].numel();
  }
  clear_until(space.padded_size());
}

}  // namespace argosy::train
