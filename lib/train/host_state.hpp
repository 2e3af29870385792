#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <deque>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "model/model.hpp"
#include "plan/placement.hpp"
#include "train/buffers.hpp"

/// This rank's master weights, optimizer state and running mean in host memory, allocated once. Checkpoints are read
/// into it and written from it. A copy begins between two steps. The writing thread completes it during the forward and
/// backward passes of the next step, which do not change the state; the next update waits for it. The memory is pinned
/// if the device is a GPU.
namespace argosy::train {

class HostState {
 public:
  /// Allocates. Borrows model and buffers. Where not all of the `world` ranks have all components, checkpoints number
  /// the owners of each unit among all ranks.
  HostState(const model::Model& model, Buffers& buffers, c10::Device device, const plan::Placement& placement = {},
            int world = 1);

  /// The host memory of the units, the same at each call. Without the optimizer, for checkpoints of weights only.
  [[nodiscard]] std::vector<checkpoint::UnitState> states(bool with_optimizer = true);
  /// Of the host memory.
  [[nodiscard]] std::int64_t size_bytes() const noexcept;
  /// On a GPU: enqueues the copies after the work that the compute stream has so far.
  void begin_copy();
  /// Returns when the state as of begin_copy() is in host memory. Any one thread may call it.
  void complete_copy();
  /// Copies the host memory to the buffers of training. The training thread calls it.
  void load();

 private:
  struct Pair {
    std::size_t unit;  // in stored order
    spec::StateTensor tensor;
    at::Tensor live;               // flat
    MutableBytes host;             // as many numbers, of tensor.dtype
    at::Tensor pinned;             // owns `host` on a GPU
    std::vector<std::byte> plain;  // owns it on the CPU, where tensor_memory must not count it
  };
  void add(std::size_t unit, const spec::StateTensor& tensor, const at::Tensor& live);
  [[nodiscard]] const partition::FlatSpace* among_all(const partition::FlatSpace& space,
                                                      const std::vector<int>& members, int world);

  std::deque<partition::FlatSpace> spaces_;  // of units that some of the ranks have
  Buffers& buffers_;
  const c10::Device device_;
  std::vector<checkpoint::UnitState> units_;  // without their tensors: the model's, then those of statistics
  std::vector<Pair> pairs_;                   // by unit, in stored order
  std::optional<c10::Event> copied_;
};

}  // namespace argosy::train
