#include "comm/collectives.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/ordered_sum.hpp"

namespace argosy::comm {

void all_reduce_flat(Collectives& collectives, const partition::FlatSpace& space, int canonical_rank, BufferView flat,
                     Event ready) {
  std::vector<float> shard(static_cast<std::size_t>(space.owned_size(canonical_rank)));
  const BufferView sums{reinterpret_cast<std::byte*>(shard.data()), std::ssize(shard), DType::f32};
  const Event reduced = collectives.reduce_scatter(space, flat, sums, std::move(ready));
  reduced.wait();
  const std::int64_t size = space.slice_size();
  const float* from = shard.data();
  for (const int slice : space.owned_slices(canonical_rank)) {
    if (flat.dtype == DType::bf16) {
      round_to_bf16(from, reinterpret_cast<std::uint16_t*>(flat.at) + space.slice_begin(slice), size);
    } else {
      std::copy_n(from, size, reinterpret_cast<float*>(flat.at) + space.slice_begin(slice));
    }
    from += size;
  }
  collectives.all_gather(space, flat, reduced).wait();
}

Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                    const CollectivesOptions& options, Levels levels) {
  if (options.reduction == Reduction::elastic) return elastic_bytes(space, canonical_rank);
  const auto inner = static_cast<std::int64_t>(size_of(flat == DType::bf16 ? flat : options.wire_inner));
  const auto outer = static_cast<std::int64_t>(size_of(options.wire_outer));
  return reduce_scatter_bytes(space, canonical_rank, inner, outer).of(levels);
}

}  // namespace argosy::comm
