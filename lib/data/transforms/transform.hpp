#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"

/// Steps between the tokenizer and the model, in the order of `data.corpora.transforms`. Each has a file of its own:
/// its configuration, a described struct with the name it is configured by (data_config.hpp lists them), and what it
/// does.
namespace argosy::data {

/// A tokenized example, without EOS. A language model's has no source.
struct Pieces {
  std::vector<std::int32_t> source, target;
};

class Transform {
 public:
  Transform() = default;
  Transform(const Transform&) = delete;
  Transform& operator=(const Transform&) = delete;
  virtual ~Transform() = default;

  /// The name it is configured by. What it leaves out is counted under it.
  [[nodiscard]] virtual std::string_view type() const = 0;
  /// Text of all that decides what it does: part of the digest of a token shard.
  [[nodiscard]] virtual std::string recipe() const = 0;
  /// Changes the example. False: it is left out.
  [[nodiscard]] virtual bool apply(Pieces& example, RandomStream& random) const = 0;
};

using Transforms = std::vector<std::unique_ptr<const Transform>>;

/// What the random numbers of an example depend on, besides the transform's place in the list: the same on any number
/// of ranks and after a resume.
struct Draw {
  std::uint64_t seed = 0, epoch = 0, example = 0;
};

/// Applies all. The transform that leaves the example out, if one does; nullptr: none.
[[nodiscard]] inline const Transform* apply(const Transforms& transforms, Pieces& example, const Draw& draw) {
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    RandomStream random(draw.seed, draw.epoch, draw.example, i);
    if (!transforms[i]->apply(example, random)) return transforms[i].get();
  }
  return nullptr;
}

}  // namespace argosy::data
