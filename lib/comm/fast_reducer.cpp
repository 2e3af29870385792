// Fast sums: MPI's own reduce-scatter inside the node, then one for each owned slot across nodes. The order of terms is
// MPI's; on a bf16 wire it rounds at each addition.
#include <algorithm>
#include <vector>

#include "comm/mpi_links.hpp"
#include "comm/ordered_sum.hpp"

namespace argosy::comm {
namespace {

/// MPI has no bf16. It sends 16-bit integers, and this adds the values they stand for.
void add_bf16(void* in, void* inout, MPI_Count* elements, MPI_Datatype* /*type*/) {
  const auto* const from = static_cast<const std::uint16_t*>(in);
  auto* const to = static_cast<std::uint16_t*>(inout);
  for (MPI_Count i = 0; i < *elements; ++i) to[i] = bf16_from_f32(f32_from_bf16(from[i]) + f32_from_bf16(to[i]));
}

class FastReducer final : public Reducer {
 public:
  FastReducer(Links& links, const CollectivesOptions& options) : links_(links), options_(options) {
    const std::lock_guard lock(links_.node_comm.impl().session.mutex);
    MPI_Op_create_c(add_bf16, 1, &add_bf16_);
  }
  ~FastReducer() override {
    const std::lock_guard lock(links_.node_comm.impl().session.mutex);
    MPI_Op_free(&add_bf16_);
  }
  FastReducer(const FastReducer&) = delete;
  FastReducer& operator=(const FastReducer&) = delete;

  Traffic::Bytes run(const partition::FlatSpace& space, BufferView flat, float* shard, ReduceCall call) override {
    // MPI does not say what it sends; its reduce-scatters send each rank's part of the others' sums.
    const Traffic::Bytes sent = reduce_scatter_bytes(space, links_.canonical_rank, flat.dtype, options_, call.levels);
    const std::int64_t slots_size = space.owned_size(links_.canonical_rank) * links_.layout.nodes();
    if (slots_size == 0) return sent;
    if (call.levels == Levels::outer) {
      reduce_across(space, reinterpret_cast<const float*>(flat.at), shard, call.continues, flat.size_bytes());
    } else {
      const float* const slots = reduce_in_node(space, flat);
      if (call.levels == Levels::inner) {
        put(DType::f32, slots, shard, slots_size, call.continues);
      } else {
        reduce_across(space, slots, shard, call.continues, flat.size_bytes());
      }
    }
    return sent;
  }

 private:
  [[nodiscard]] MPI_Op sum_of(DType wire) const { return wire == DType::bf16 ? add_bf16_ : MPI_SUM; }
  [[nodiscard]] static MPI_Datatype type_of(DType wire) { return wire == DType::bf16 ? MPI_UINT16_T : MPI_FLOAT; }

  /// `from`, of `dtype`, to `out` or added to it.
  static void put(DType dtype, const void* from, float* out, std::int64_t elements, bool continues) {
    if (!continues) {
      const auto* const term = static_cast<const std::byte*>(from);
      return ordered_sum(dtype, {&term, 1}, out, elements);
    }
    for (std::int64_t i = 0; i < elements; ++i) {
      out[i] += dtype == DType::bf16 ? f32_from_bf16(static_cast<const std::uint16_t*>(from)[i])
                                     : static_cast<const float*>(from)[i];
    }
  }
  /// What is sent for `from`: itself, or its rounded copy.
  const std::byte* wired(const void* from, DType dtype, DType wire, std::int64_t elements, Scratch& rounded) {
    if (dtype == wire) return static_cast<const std::byte*>(from);
    std::byte* const copy = rounded.at_least(elements * 2);
    round_to_bf16(static_cast<const float*>(from), reinterpret_cast<std::uint16_t*>(copy), elements);
    return copy;
  }

  /// This node's sums of the own slots.
  const float* reduce_in_node(const partition::FlatSpace& space, BufferView flat) {
    const partition::Layout& layout = links_.layout;
    const std::int64_t slot_size = space.slice_size() * layout.nodes();
    const bool narrow = flat.dtype == DType::bf16 || (layout.slots() > 1 && options_.wire_inner == DType::bf16);
    const DType wire = narrow ? DType::bf16 : DType::f32;
    const std::byte* const mine = wired(flat.at, flat.dtype, wire, flat.elements, rounded_);
    std::vector<MPI_Count> counts(static_cast<std::size_t>(layout.node_size(links_.node)));
    for (int local = 0; MPI_Count & count : counts) {
      count = std::ssize(layout.slots_of(layout.canonical_rank(links_.node, local++))) * slot_size;
    }
    const std::int64_t own = counts[static_cast<std::size_t>(links_.local_rank)];
    const std::byte* result = mine;
    if (counts.size() > 1) {
      std::byte* const to = in_node_.at_least(own * static_cast<std::int64_t>(size_of(wire)));
      Messages messages(links_.node_comm, "reduce_scatter in the node", flat.size_bytes());
      messages.start(links_.node_comm, [&](MPI_Comm comm, MPI_Request* request) {
        return MPI_Ireduce_scatter_c(mine, to, counts.data(), type_of(wire), sum_of(wire), comm, request);
      });
      messages.wait();
      result = to;
    }
    if (wire == DType::f32) return reinterpret_cast<const float*>(result);
    float* const wide = slots_.floats(own);
    put(wire, result, wide, own, false);
    return wide;
  }

  /// All owned slots at a time; every owner starts them in increasing order.
  void reduce_across(const partition::FlatSpace& space, const float* slots, float* shard, bool continues,
                     std::int64_t size_bytes) {
    const std::int64_t nodes = links_.layout.nodes(), size = space.slice_size();
    const std::int64_t owned = std::ssize(links_.owned);
    const DType wire = nodes > 1 ? options_.wire_outer : DType::f32;
    if (nodes == 1) return put(wire, slots, shard, owned * size, continues);
    const auto element = static_cast<std::int64_t>(size_of(wire));
    const std::byte* const mine = wired(slots, DType::f32, wire, owned * nodes * size, outer_rounded_);
    std::byte* const to = across_.at_least(owned * size * element);
    Messages messages(links_.canonical_comm, "reduce_scatter across nodes", size_bytes);
    for (std::int64_t i = 0; i < owned; ++i) {
      const Communicator& over = links_.slot_comms[static_cast<std::size_t>(i)];
      messages.start(over, [&](MPI_Comm comm, MPI_Request* request) {
        return MPI_Ireduce_scatter_block_c(mine + i * nodes * size * element, to + i * size * element, size,
                                           type_of(wire), sum_of(wire), comm, request);
      });
    }
    messages.wait();
    put(wire, to, shard, owned * size, continues);
  }

  Links& links_;
  const CollectivesOptions options_;
  MPI_Op add_bf16_ = MPI_OP_NULL;
  Scratch rounded_, in_node_, slots_, outer_rounded_, across_;
};

}  // namespace

std::unique_ptr<Reducer> make_fast_reducer(Links& links, const CollectivesOptions& options) {
  return std::make_unique<FastReducer>(links, options);
}

}  // namespace argosy::comm
