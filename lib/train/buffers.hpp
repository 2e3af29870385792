#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "comm/collectives.hpp"
#include "model/model.hpp"
#include "optim/adamw.hpp"
#include "train/step_plan.hpp"

/// All memory of a ZeRO stage 1 run, made before step 1: per unit the flat weights and gradients, and this rank's shard
/// of master weights, gradient sums and moments. Where a rank owns one slice, the sums, and in fp32 the master weights,
/// are views of the flat buffers: a world of one copies nothing. Sums that go on from micro-batch to micro-batch have
/// memory of their own.
namespace argosy::train {

struct UnitBuffers {
  at::Tensor weights;       // [padded] compute type
  at::Tensor gradients;     // [padded] fp32; gaps stay zero
  optim::ShardState shard;  // [owned] fp32 each
  std::vector<optim::Stretch> stretches;
};

class Buffers {
 public:
  /// Binds `model`'s units to new buffers on `device`, for plans that reduce so often. Not collective.
  Buffers(model::Model& model, int canonical_rank, at::ScalarType compute_type, c10::Device device,
          ReduceEvery reduce_every = ReduceEvery::step);

  /// This rank's slices of the initial weights. Not collective; publish() brings them to all ranks.
  void initialise(std::uint64_t seed);
  /// Master weights into the own slices of the flat weights, and every rank's slices to all ranks. **Collective.**
  void publish(comm::Collectives& collectives);

  [[nodiscard]] std::vector<UnitBuffers>& units() noexcept { return units_; }
  /// This rank's state in host memory, to be saved or filled; valid until the next call. Where the device is not the
  /// host, `load` copies back what has been filled in.
  [[nodiscard]] std::vector<checkpoint::UnitState> host_states();
  void load_host_states();

 private:
  model::Model& model_;
  int canonical_rank_;
  std::vector<UnitBuffers> units_;
  std::vector<at::Tensor> host_;  // master, exp_avg, exp_avg_sq by unit
};

/// The view a collective takes of a flat tensor.
[[nodiscard]] comm::BufferView view_of(const at::Tensor& tensor);

}  // namespace argosy::train
