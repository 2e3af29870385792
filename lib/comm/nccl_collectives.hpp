#pragma once

#include <memory>
#include <string>

#include "comm/collectives.hpp"
#include "comm/nccl_table.hpp"

/// The NCCL backend of Collectives, for buffers on a GPU. Reductions and gathers each have a stream and communicators,
/// so that a reduction does not delay the next gather. All ranks must call operations in the same order. For exact sums
/// ranks exchange slots, and our kernel adds them in the order (rank in node, node), with the bits of the MPI backend.
/// NCCL does fast sums. Small sums of host values use MPI. Operations do not block the host; nccl_watch.hpp ends those
/// that hang.
namespace argosy::comm {

/// Events made by record_event or by this backend are waited for on the device, others on the host. `table` outlives
/// all events.
/// **Collective** over the topology. Throws Error{comm}, Error{device}.
[[nodiscard]] std::unique_ptr<Collectives> make_nccl_collectives(const Topology& topology, CollectivesOptions options,
                                                                 const NcclTable& table);

/// The table of libargosy_cuda.so, which kernels::open_cuda_plugin has opened. Throws Error{device} if the plug-in is
/// not open or NCCL lacks a function.
[[nodiscard]] const NcclTable& nccl_table();

/// The backend for buffers of the host or, with nccl_table(), of the GPU.
/// **Collective** over the topology. Throws Error{comm}, Error{device}.
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(const Topology& topology, CollectivesOptions options,
                                                            bool on_gpu);

/// "2.28.9". Throws Error{comm}.
[[nodiscard]] std::string nccl_version(const NcclTable& table);

}  // namespace argosy::comm
