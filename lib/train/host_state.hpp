#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "model/model.hpp"
#include "train/buffers.hpp"

/// This rank's master weights, optimizer state and running mean in host memory, made once: checkpoints are read into it
/// and written from it. A copy is begun between two steps and completed by the thread that writes it, while the next
/// step's forward and backward passes, which change none of this, run; the next update waits for it. Pinned where the
/// device is a GPU.
namespace argosy::train {

class HostState {
 public:
  /// Allocates. Borrows both.
  HostState(const model::Model& model, Buffers& buffers, c10::Device device);

  /// The units' host memory, the same at each call; without the optimizer's: for checkpoints of weights only.
  [[nodiscard]] std::vector<checkpoint::UnitState> states(bool with_optimizer = true);
  /// On a GPU: enqueues the copies behind what the compute stream was given until now.
  void begin_copy();
  /// Returns when the state that was there at begin_copy() lies in host memory. By any one thread.
  void complete_copy();
  /// Puts what has been filled in where training takes it from. By the training thread.
  void load();

 private:
  struct Pair {
    std::size_t unit;
    std::string name;
    at::Tensor live;           // flat
    std::span<float> host;     // as many
    at::Tensor pinned;         // owner of `host` on a GPU
    std::vector<float> plain;  // and on the CPU, where it is not LibTorch's to count
  };
  const model::Model& model_;
  Buffers& buffers_;
  const c10::Device device_;
  std::vector<Pair> pairs_;  // by unit, in stored order
  std::optional<c10::Event> copied_;
};

}  // namespace argosy::train
