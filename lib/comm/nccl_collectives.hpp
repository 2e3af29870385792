#pragma once

#include <memory>
#include <string>

#include "comm/collectives.hpp"
#include "comm/nccl_table.hpp"

/// The NCCL backend of Collectives, for buffers on a GPU. Reductions and gathers have a stream and communicators each,
/// or a reduction would delay the next gather; all ranks must ask for operations in one order. Exact sums exchange
/// slots and are added by a kernel of ours in the order (rank in node, node), with the bits of the MPI backend; fast
/// ones are NCCL's. Small sums of the host travel by MPI. Operations do not hold the host; the watch of nccl_watch.hpp
/// ends those that hang.
namespace argosy::comm {

/// Waits are for events of the device where record_event or this backend made them. `table` outlives all events.
/// **Collective** over the topology. Throws Error{comm}, Error{device}.
[[nodiscard]] std::unique_ptr<Collectives> make_nccl_collectives(const Topology& topology, CollectivesOptions options,
                                                                 const NcclTable& table);

/// The table of libargosy_cuda.so, which kernels::open_cuda_plugin has opened. Throws Error{device}: the plug-in is not
/// open, or NCCL lacks a function.
[[nodiscard]] const NcclTable& nccl_table();

/// The backend for buffers of the host or, with nccl_table(), of the GPU.
/// **Collective** over the topology. Throws Error{comm}, Error{device}.
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(const Topology& topology, CollectivesOptions options,
                                                            bool on_gpu);

/// "2.28.9". Throws Error{comm}.
[[nodiscard]] std::string nccl_version(const NcclTable& table);

/// Bytes of device memory that exact sums of `space` take on a rank: contributions received at both levels, node's sums
/// on their way to other nodes, and rounded copies where a wire is narrower than the buffer.
[[nodiscard]] std::int64_t nccl_scratch_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                              const CollectivesOptions& options);

}  // namespace argosy::comm
