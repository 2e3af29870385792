#include <gmock/gmock.h>

#include "data/data_config.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::SizeIs;

/// Replaces each piece of the source by a random one, with some probability; what stays untouched is left out.
class Replace final : public Transform {
 public:
  explicit Replace(double probability) : probability_(probability) {}
  [[nodiscard]] std::string_view type() const override { return "replace"; }
  [[nodiscard]] std::string recipe() const override { return "replace"; }
  [[nodiscard]] bool apply(Pieces& example, RandomStream& random) const override {
    bool changed = false;
    for (std::int32_t& piece : example.source) {
      if (random.uniform() >= probability_) continue;
      piece = static_cast<std::int32_t>(random.below(1 << 20));
      changed = true;
    }
    return changed;
  }

 private:
  double probability_;
};

Transforms of(std::unique_ptr<const Transform> first, std::unique_ptr<const Transform> second = nullptr) {
  Transforms transforms;
  transforms.push_back(std::move(first));
  if (second) transforms.push_back(std::move(second));
  return transforms;
}

Pieces pair_of(std::size_t source, std::size_t target) {
  return {std::vector<std::int32_t>(source, 7), std::vector<std::int32_t>(target, 8)};
}

TEST(Transforms, MaxLengthLeavesOutPairsWithALongerSide) {
  const Transforms transforms = of(MaxLength{.source = 3, .target = 2}.make());
  for (const auto& [source, target, kept] : {std::tuple{3, 2, true}, {4, 2, false}, {3, 3, false}, {1, 1, true}}) {
    Pieces example = pair_of(static_cast<std::size_t>(source), static_cast<std::size_t>(target));
    EXPECT_EQ(apply(transforms, example, {}) == nullptr, kept) << source << " " << target;
  }
  EXPECT_EQ(transforms[0]->type(), "max_length");
  EXPECT_NE(transforms[0]->recipe(), MaxLength{}.make()->recipe());
}

TEST(Transforms, AreAppliedInOrderAndTheFirstThatRefusesIsNamed) {
  Pieces example = pair_of(5, 5);
  EXPECT_EQ(apply(of(std::make_unique<Replace>(1.0), MaxLength{.source = 4}.make()), example, {})->type(),
            "max_length");
  EXPECT_NE(example.source, pair_of(5, 5).source) << "the one before has changed it";
  example = pair_of(5, 5);
  EXPECT_EQ(apply(of(MaxLength{.source = 4}.make(), std::make_unique<Replace>(1.0)), example, {})->type(),
            "max_length");
  EXPECT_EQ(example.source, pair_of(5, 5).source);
  EXPECT_EQ(apply(of(std::make_unique<Replace>(0.0)), example, {})->type(), "replace");
}

TEST(Transforms, DrawTheSameForTheSameSeedEpochAndExample) {
  const auto drawn = [](const Draw& draw) {
    Pieces example = pair_of(6, 1);
    EXPECT_EQ(apply(of(std::make_unique<Replace>(1.0)), example, draw), nullptr);
    return example.source;
  };
  const Draw draw{.seed = 1, .epoch = 2, .example = 3};
  EXPECT_EQ(drawn(draw), drawn(draw));
  for (const Draw& other : {Draw{2, 2, 3}, {1, 3, 3}, {1, 2, 4}}) EXPECT_NE(drawn(other), drawn(draw));
  Pieces once = pair_of(6, 1), twice = once;
  EXPECT_EQ(apply(of(std::make_unique<Replace>(1.0)), once, draw), nullptr);
  EXPECT_EQ(apply(of(std::make_unique<Replace>(1.0), std::make_unique<Replace>(1.0)), twice, draw), nullptr);
  EXPECT_NE(once.source, twice.source) << "each has a stream of its own";
}

TEST(Transforms, AreMadeFromTheirConfigurations) {
  const std::vector<TransformConfig> configs{{MaxLength{.source = 1, .target = 1}}, {MaxLength{}}};
  const Transforms transforms = make_transforms(configs);
  ASSERT_THAT(transforms, SizeIs(2));
  Pieces example = pair_of(2, 1);
  EXPECT_EQ(apply(transforms, example, {}), transforms[0].get());
  EXPECT_THAT(example.target, ElementsAre(8));
}

}  // namespace
}  // namespace argosy::data
