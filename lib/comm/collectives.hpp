#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/topology.hpp"
#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// Moves and sums flat buffers over the ranks of one topology, on the device that holds them. Owns its communicators and stream,
/// borrows the topology. Call from one thread. Exact sums run in the order (rank in node, node): hierarchy, placement and timing
/// change no bit. Every call takes the event it waits for and returns the event of its completion.
namespace argosy::comm {

/// Completion of an operation on some stream. A default one is already complete (host code that ran in order).
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks the host until done; rethrows the operation's Error.
  void wait() const;
  [[nodiscard]] bool done() const noexcept;
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Elements on a device, borrowed.
struct BufferView {
  std::byte* at = nullptr;
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  [[nodiscard]] std::int64_t size_bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
};

/// Payload sent by this rank, by operation name ("reduce_scatter", "all_gather", "scalar"): inside the node and across nodes.
struct Traffic {
  struct Bytes {
    std::int64_t inner = 0, outer = 0, calls = 0;
  };
  std::map<std::string, Bytes> by_operation;
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Leaves this rank's slices of the sum of `flat` over all ranks in `shard`.
  /// flat: [space.padded_size()] bf16 or fp32; shard: [space.owned_size(rank)] fp32, slices ascending; shard may alias this
  /// rank's own slice of flat when it owns exactly one. Starts after `ready`.
  /// **Collective** over the topology. Throws Error{comm}: operation, bytes, step, silent ranks.
  /// Two-level reduce-scatter for ZeRO stages 1-2 (arXiv:1910.02054).
  [[nodiscard]] virtual Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard, Event ready) = 0;

  /// Fills `flat` with every rank's slices; this rank's own slices are in place already.
  /// flat: [space.padded_size()] of any type, moved as bytes. Starts after `ready`.
  /// **Collective** over the topology. Throws Error{comm}.
  [[nodiscard]] virtual Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready) = 0;

  /// Sum over ranks in canonical order, in place, same bits on all ranks; small host arrays (norm partials, counts).
  /// **Collective** over the topology. Throws Error{comm}.
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void all_reduce(std::span<std::int64_t> values) = 0;

  [[nodiscard]] virtual const Traffic& traffic() const noexcept = 0;
  /// Named in errors from here on.
  virtual void set_step(std::int64_t step) = 0;
};

/// The MPI backend, for host memory. Runs each operation before returning (the events are complete).
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology);

}  // namespace argosy::comm
