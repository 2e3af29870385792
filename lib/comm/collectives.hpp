#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/event.hpp"
#include "comm/reduction.hpp"
#include "comm/topology.hpp"
#include "comm/traffic.hpp"
#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// Moves and sums flat buffers over the ranks of one topology, on the device that holds them. Owns its communicators
/// and stream, borrows the topology. Call from one thread; operations run beside it, reductions and gathers each in
/// the order of the calls, so buffers and spaces must live until the events. After one has failed, all fail alike.
/// Every operation has two levels, inside nodes and across them, and reduces and gathers explicitly on both: (N-1)/N of
/// a buffer leaves each node, whatever N and however uneven the nodes. Exact sums run in the order (rank in node,
/// node): hierarchy, placement and timing change no bit. Every call takes the event it waits for and returns the event
/// of its completion.
namespace argosy::comm {

/// Elements on a device, borrowed.
struct BufferView {
  std::byte* at = nullptr;
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  [[nodiscard]] std::int64_t size_bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
};

struct ReduceCall {
  Levels levels = Levels::both;
  bool continues = false;  // adds to the sums that `shard` holds, instead of overwriting it
  auto operator<=>(const ReduceCall&) const = default;
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Leaves this rank's slices of the sum of `flat` over all ranks in `shard`.
  /// flat: [space.padded_size()] bf16 or fp32; shard: [space.owned_size(rank)] fp32, slices ascending; shard may alias
  /// this rank's own slice of flat when it owns exactly one. Starts after `ready`.
  /// With Levels::inner the sum is over the node, and shard: [space.owned_size(rank)·nodes], this rank's slots
  /// ascending; with Levels::outer such slots, fp32, are `flat`, and are summed over nodes: one after the other they
  /// give the bits of both. Elastic sums know both levels only.
  /// **Collective** over the topology. Throws Error{comm}: operation, bytes, step, silent ranks.
  /// Two-level reduce-scatter for ZeRO (arXiv:1910.02054).
  [[nodiscard]] virtual Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard,
                                             Event ready, ReduceCall call = {}) = 0;

  /// Fills `flat` with every rank's slices; this rank's own slices are in place already.
  /// flat: [space.padded_size()] of any type, moved as bytes. Starts after `ready`.
  /// With Levels::outer `flat` is this rank's slots alone, [space.owned_size(rank)·nodes], ascending, as they lie in
  /// the flat space, and they are completed; Levels::inner fills in the other slots from ranks whose slots are
  /// complete.
  /// **Collective** over the topology. Throws Error{comm}.
  [[nodiscard]] virtual Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready,
                                         Levels levels = Levels::both) = 0;

  /// Sum over ranks in canonical order, in place, same bits on all ranks; small host arrays (norm partials, counts).
  /// **Collective** over the topology. Throws Error{comm}.
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void all_reduce(std::span<std::int64_t> values) = 0;

  /// Of the operations waited for; to be read while none is under way.
  [[nodiscard]] virtual const Traffic& traffic() const noexcept = 0;
  /// Named in errors from here on.
  virtual void set_step(std::int64_t step) = 0;
};

struct CollectivesOptions {
  Reduction reduction = Reduction::exact;
  /// Element types on the wire of a reduction, inside the node and across nodes: f32 or bf16. A flat bf16 buffer
  /// travels as bf16 inside the node anyway. Sums are fp32; where the wire is bf16, every contribution is rounded, the
  /// own one too; elastic sums are sent as fp32.
  DType wire_inner = DType::f32, wire_outer = DType::f32;
  /// Payload in flight per owned slot and peer: what bounds the scratch of a reduction.
  std::int64_t chunk_bytes = 2 << 20;
};

/// Leaves the sum of `flat` over all ranks in `flat`, the same bits on every rank: a reduce-scatter, then an
/// all-gather, counted as these, so that each node sends 2(N-1)/N of the buffer for any N. Waits for the end. flat:
/// [space.padded_size()] bf16 or fp32; sums are rounded to its type once.
/// **Collective** over the topology. Throws Error{comm}.
void all_reduce_flat(Collectives& collectives, const partition::FlatSpace& space, int canonical_rank, BufferView flat,
                     Event ready = {});

/// What one reduce_scatter of a buffer of `flat` makes a canonical rank send.
[[nodiscard]] Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                                  const CollectivesOptions& options, Levels levels = Levels::both);

/// The MPI backend, for host memory: two-level reduction and gather by non-blocking operations, on a thread of its own
/// where there is more than one rank. Objects share no communicator: their operations overtake each other. On
/// destruction operations not waited for are abandoned.
/// **Collective** over the topology. Throws Error{comm}.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology,
                                                                CollectivesOptions options = {});

}  // namespace argosy::comm
