#include "spec/state.hpp"

namespace argosy::spec {

std::vector<OwnedPart> owned_parts(const partition::FlatSpace& space, const StateTensor& tensor) {
  const std::vector<std::int64_t> without_decay = space.owned_before(space.decay_begin()),
                                  all = space.owned_before(space.padded_size());
  std::vector<OwnedPart> parts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::int64_t begin = tensor.covers == Covers::with_decay ? without_decay[rank] : 0;
    const std::int64_t end = tensor.covers == Covers::without_decay ? without_decay[rank] : all[rank];
    parts.push_back({begin, (end - begin) / tensor.elements()});
  }
  return parts;
}

}  // namespace argosy::spec
