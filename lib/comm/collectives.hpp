#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/event.hpp"
#include "comm/topology.hpp"
#include "comm/traffic.hpp"
#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// Moves and sums flat buffers over the ranks of one topology, on the device that holds them. Owns its communicators
/// and stream, borrows the topology. Call from one thread. Exact sums run in the order (rank in node, node): hierarchy,
/// placement and timing change no bit. Every call takes the event it waits for and returns the event of its completion.
namespace argosy::comm {

/// Elements on a device, borrowed.
struct BufferView {
  std::byte* at = nullptr;
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  [[nodiscard]] std::int64_t size_bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Leaves this rank's slices of the sum of `flat` over all ranks in `shard`.
  /// flat: [space.padded_size()] bf16 or fp32; shard: [space.owned_size(rank)] fp32, slices ascending; shard may alias
  /// this rank's own slice of flat when it owns exactly one. Starts after `ready`.
  /// **Collective** over the topology. Throws Error{comm}: operation, bytes, step, silent ranks.
  /// Two-level reduce-scatter for ZeRO stages 1-2 (arXiv:1910.02054).
  [[nodiscard]] virtual Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard,
                                             Event ready) = 0;

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

struct CollectivesOptions {
  /// Element types on the wire of a reduction, inside the node and across nodes: f32 or bf16. A flat bf16 buffer
  /// travels as bf16 inside the node anyway. Sums are fp32; where the wire is bf16, every contribution is rounded, the
  /// own one too.
  DType wire_inner = DType::f32, wire_outer = DType::f32;
  /// Payload in flight per owned slot and peer: what bounds the scratch of a reduction.
  std::int64_t chunk_bytes = 2 << 20;
};

/// The MPI backend, for host memory: exact two-level reduction and two-level gather by non-blocking messages. Runs each
/// operation before returning (the events are complete). Objects share no communicator, so each may live on a thread of
/// its own.
/// **Collective** over the topology. Throws Error{comm}.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology,
                                                                CollectivesOptions options = {});

}  // namespace argosy::comm
