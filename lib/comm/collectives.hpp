#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/comm_config.hpp"
#include "comm/event.hpp"
#include "comm/topology.hpp"
#include "comm/traffic.hpp"
#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// Moves and sums flat buffers over the ranks of one topology, on the device that holds them. Owns its communicators
/// and streams; borrows the topology.
/// Call from one thread. A call takes the event it waits for and returns the event of its completion: the operation
/// runs next to the caller, so buffers and spaces must live until that event. Reductions run in the order of their
/// calls, gathers likewise. After one operation has failed, every later one fails with the same error.
/// An operation has two levels, inside nodes and across nodes. (N-1)/N of a buffer leaves each of N nodes, even if the
/// nodes are uneven. Exact sums run in the order (rank in node, node), so hierarchy, placement and timing change no
/// bit.
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
  /// Levels::inner sums over the node; shard: [space.owned_size(rank)·nodes], this rank's slots ascending.
  /// Levels::outer sums such slots over the nodes; they are `flat`, in fp32. Inner, then outer gives the bits of both.
  /// Elastic sums take Levels::both only.
  /// **Collective** over the topology. Throws Error{comm}: operation, bytes, step, silent ranks.
  /// Two-level reduce-scatter for ZeRO (arXiv:1910.02054).
  [[nodiscard]] virtual Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard,
                                             Event ready, ReduceCall call = {}) = 0;

  /// Fills `flat` with every rank's slices; this rank's own slices are in place already.
  /// flat: [space.padded_size()] of any type, moved as bytes. Starts after `ready`.
  /// Levels::outer completes this rank's slots; `flat` is these slots alone, [space.owned_size(rank)·nodes], ascending.
  /// Levels::inner fills in the other slots of `flat` from ranks whose slots are complete.
  /// **Collective** over the topology. Throws Error{comm}.
  [[nodiscard]] virtual Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready,
                                         Levels levels = Levels::both) = 0;

  /// Sum over ranks in canonical order, in place, same bits on all ranks; small host arrays (norm partials, counts).
  /// **Collective** over the topology. Throws Error{comm}.
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void all_reduce(std::span<std::int64_t> values) = 0;

  /// What the operations so far have sent. Read it while none is running.
  [[nodiscard]] virtual const Traffic& traffic() const noexcept = 0;
  /// The step that errors name from now on.
  virtual void set_step(std::int64_t step) = 0;
};

/// The ranks that share the weights of a component of the model: who owns what, and how they exchange it. Borrows both.
struct Group {
  const partition::Layout& layout;
  int canonical_rank;
  Collectives& collectives;
};

struct CollectivesOptions {
  Reduction reduction = Reduction::exact;
  /// Element types that a reduction sends, inside the node and across nodes: f32 or bf16. A bf16 buffer is sent as bf16
  /// inside the node in any case. Sums are fp32. If the type is bf16, every contribution is rounded, the rank's own
  /// included. Elastic sums are sent as fp32.
  DType wire_inner = DType::f32, wire_outer = DType::f32;
  /// Payload in flight per owned slot and peer. It bounds the scratch memory of a reduction.
  std::int64_t chunk_bytes = 2 << 20;
};

/// What a canonical rank sends in one reduce_scatter of a buffer of type `flat`.
[[nodiscard]] Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                                  const CollectivesOptions& options, Levels levels = Levels::both);

/// For backends: a call whose sizes or types are not those above is a defect of the caller. Throws Error{internal}.
void check_options(const CollectivesOptions& options);
void check_reduce_scatter(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                          BufferView flat, BufferView shard, ReduceCall call);
void check_all_gather(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                      BufferView flat, Levels levels);

/// The MPI backend, for host memory: two-level reductions and gathers by non-blocking operations, on a thread of its
/// own if there is more than one rank. Two objects share no communicator, so operations of one may overtake those of
/// the other. The destructor abandons operations that nobody has waited for.
/// **Collective** over the topology. Throws Error{comm}.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology,
                                                                CollectivesOptions options = {});

}  // namespace argosy::comm
