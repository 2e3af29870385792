#include "data/transforms/transform.hpp"

namespace argosy::data {

const Transform* apply(const Transforms& transforms, Pieces& example, const Draw& draw) {
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    RandomStream random(draw.seed, draw.epoch, draw.example, i);
    if (!transforms[i]->apply(example, random)) return transforms[i].get();
  }
  return nullptr;
}

}  // namespace argosy::data
