#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/ordered_sum.hpp"

namespace argosy::test {

/// Leaves the sum of `flat` over all ranks in `flat`, rounded to its type once, the same bits on every rank: a
/// reduce-scatter, then an all-gather. Each node sends 2(N-1)/N of the buffer, whatever their number N. **Collective.**
inline void all_reduce_flat(comm::Collectives& collectives, const partition::FlatSpace& space, int canonical_rank,
                            comm::BufferView flat) {
  std::vector<float> shard(static_cast<std::size_t>(space.owned_size(canonical_rank)));
  const comm::BufferView sums{reinterpret_cast<std::byte*>(shard.data()), std::ssize(shard), DType::f32};
  const comm::Event reduced = collectives.reduce_scatter(space, flat, sums, {});
  reduced.wait();
  const std::int64_t size = space.slice_size();
  const float* from = shard.data();
  for (const int slice : space.owned_slices(canonical_rank)) {
    if (flat.dtype == DType::bf16) {
      comm::round_to_bf16(from, reinterpret_cast<std::uint16_t*>(flat.at) + space.slice_begin(slice), size);
    } else {
      std::copy_n(from, size, reinterpret_cast<float*>(flat.at) + space.slice_begin(slice));
    }
    from += size;
  }
  collectives.all_gather(space, flat, reduced).wait();
}

}  // namespace argosy::test
