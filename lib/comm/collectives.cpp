#include "comm/collectives.hpp"

#include "core/error.hpp"

namespace argosy::comm {

Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                    const CollectivesOptions& options, Levels levels) {
  if (options.reduction == Reduction::elastic) return elastic_bytes(space, canonical_rank);
  const auto inner = static_cast<std::int64_t>(size_of(flat == DType::bf16 ? flat : options.wire_inner));
  const auto outer = static_cast<std::int64_t>(size_of(options.wire_outer));
  return reduce_scatter_bytes(space, canonical_rank, inner, outer).of(levels);
}

void check_options(const CollectivesOptions& options) {
  for (const DType wire : {options.wire_inner, options.wire_outer})
    ARGOSY_CHECK(wire == DType::f32 || wire == DType::bf16, "{} on the wire", name_of(wire));
}

void check_reduce_scatter(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                          BufferView flat, BufferView shard, ReduceCall call) {
  const std::int64_t slices = space.owned_size(canonical_rank), slots = slices * layout.nodes();
  ARGOSY_CHECK(space.layout() == layout, "a flat space of another layout");
  ARGOSY_CHECK(flat.elements == (call.levels == Levels::outer ? slots : space.padded_size()) &&
                   shard.elements == (call.levels == Levels::inner ? slots : slices),
               "{} elements into {}", flat.elements, shard.elements);
  ARGOSY_CHECK((flat.dtype == DType::f32 || (flat.dtype == DType::bf16 && call.levels != Levels::outer)) &&
                   shard.dtype == DType::f32,
               "{} into {}", name_of(flat.dtype), name_of(shard.dtype));
}

void check_all_gather(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                      BufferView flat, Levels levels) {
  const std::int64_t slots = space.owned_size(canonical_rank) * layout.nodes();
  const std::int64_t elements = levels == Levels::outer ? slots : space.padded_size();
  ARGOSY_CHECK(space.layout() == layout, "a flat space of another layout");
  ARGOSY_CHECK(flat.elements == elements, "{} elements of {}", flat.elements, elements);
}

}  // namespace argosy::comm
