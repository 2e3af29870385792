#pragma once

#include "comm/collectives.hpp"

/// What every backend demands of a call, for comm/ itself: sizes and types as collectives.hpp gives them. A breach is a
/// defect of the caller's: Error{internal}.
namespace argosy::comm {

void check_options(const CollectivesOptions& options);
void check_reduce_scatter(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                          BufferView flat, BufferView shard, ReduceCall call);
void check_all_gather(const partition::FlatSpace& space, const partition::Layout& layout, int canonical_rank,
                      BufferView flat, Levels levels);

}  // namespace argosy::comm
