#include "data/pipeline.hpp"

#include <gmock/gmock.h>

#include "support/refusal.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::IsEmpty;

/// A character is an id.
class Characters final : public Transform {
 public:
  [[nodiscard]] std::string_view type() const override { return "characters"; }
  [[nodiscard]] std::string recipe() const override { return "characters"; }
  [[nodiscard]] Stage stage() const override { return Stage::tokenize; }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    example.source.assign(example.source_text.begin(), example.source_text.end());
    example.target.assign(example.target_text.begin(), example.target_text.end());
    return true;
  }
};

/// Repeats the source up to three times by chance, but plans for twice.
template <Stage at>
class Repeat final : public Transform {
 public:
  [[nodiscard]] std::string_view type() const override { return "repeat"; }
  [[nodiscard]] std::string recipe() const override { return "repeat"; }
  [[nodiscard]] Stage stage() const override { return at; }
  [[nodiscard]] bool is_random() const override { return true; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    return {lengths.source * 2, lengths.target};
  }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    const auto times = random == nullptr ? 0 : random->below(3);
    const auto repeat = [&](auto& values) {
      const auto once = values;
      for (std::uint64_t i = 0; i < times; ++i) values.insert(values.end(), once.begin(), once.end());
    };
    at == Stage::text ? repeat(example.source_text) : repeat(example.source);
    return true;
  }
};

/// Leaves out what has exactly this many ids, or characters, in its source.
template <Stage at>
class Refuse final : public Transform {
 public:
  explicit Refuse(std::size_t size) : size_(size) {}
  [[nodiscard]] std::string_view type() const override { return at == Stage::text ? "refuse_text" : "refuse"; }
  [[nodiscard]] std::string recipe() const override { return "refuse " + std::to_string(size_); }
  [[nodiscard]] Stage stage() const override { return at; }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    return (at == Stage::text ? example.source_text.size() : example.source.size()) != size_;
  }

 private:
  std::size_t size_;
};

/// Puts the lines before an example into it.
class Join final : public Transform {
 public:
  [[nodiscard]] std::string_view type() const override { return "join"; }
  [[nodiscard]] std::string recipe() const override { return "join"; }
  [[nodiscard]] Stage stage() const override { return Stage::ids; }
  [[nodiscard]] std::int64_t lines_before() const override { return 3; }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    for (const auto& [source, target] : example.before) {
      example.source.insert(example.source.end(), source.begin(), source.end());
      example.target.insert(example.target.end(), target.begin(), target.end());
    }
    return true;
  }
};

template <class... Ts>
Pipeline of(Ts... transforms) {
  Transforms list;
  (list.push_back(std::move(transforms)), ...);
  return {std::move(list), true, 'u'};
}

Example example_of(std::string source, std::string target) {
  Example example;
  example.source_text = std::move(source);
  example.target_text = std::move(target);
  return example;
}

using IdRepeat = Repeat<Stage::ids>;
using TextRepeat = Repeat<Stage::text>;

TEST(Pipeline, PlansWhatDrawsNothingToTheIdsThatTrainingTakes) {
  const Pipeline pipeline = of(std::make_unique<Characters>());
  Example example = example_of("ab", "uvu");
  const Pipeline::Plan plan = pipeline.plan(example);
  EXPECT_FALSE(plan.left_out);
  EXPECT_EQ(plan.longest, (Lengths{2, 3}));
  EXPECT_EQ(plan.unknown, 2);
  EXPECT_THAT(example.source, ElementsAre('a', 'b'));
  EXPECT_FALSE(pipeline.stores_text());
  EXPECT_FALSE(pipeline.finish(example, Draw{}, plan.longest));
  EXPECT_THAT(example.target, ElementsAre('u', 'v', 'u'));
}

TEST(Pipeline, NamesTheFirstTransformThatLeavesAnExampleOut) {
  const Pipeline pipeline = of(std::make_unique<Refuse<Stage::text>>(2), std::make_unique<Characters>(),
                               std::make_unique<Refuse<Stage::ids>>(3));
  const auto reason = [&](std::string source) {
    Example example = example_of(std::move(source), "x");
    return pipeline.plan(example).left_out;
  };
  EXPECT_EQ(reason("ab"), "refuse_text");
  EXPECT_EQ(reason("abc"), "refuse");
  EXPECT_EQ(reason(""), "empty");
  EXPECT_EQ(reason("abcd"), std::nullopt);
}

TEST(Pipeline, StoresTextWhereChanceComesBeforeTheIds) {
  const Pipeline on_text = of(std::make_unique<TextRepeat>(), std::make_unique<Characters>());
  Example example = example_of("ab", "c");
  EXPECT_EQ(on_text.plan(example).longest, (Lengths{4, 1}));
  EXPECT_TRUE(on_text.stores_text());
  EXPECT_EQ(example.source_text, "ab");
  EXPECT_THAT(example.source, IsEmpty());

  const Pipeline on_ids = of(std::make_unique<Characters>(), std::make_unique<IdRepeat>());
  example = example_of("ab", "c");
  EXPECT_EQ(on_ids.plan(example).longest, (Lengths{4, 1}));
  EXPECT_FALSE(on_ids.stores_text());
  EXPECT_THAT(example.source, ElementsAre('a', 'b'));
}

TEST(Pipeline, OnlineStoresTextAndGivesTheSameIds) {
  const auto transforms = [] {
    Transforms list;
    list.push_back(std::make_unique<Refuse<Stage::text>>(2));
    list.push_back(std::make_unique<Characters>());
    list.push_back(std::make_unique<Refuse<Stage::ids>>(3));
    return list;
  };
  const Pipeline prepared{transforms(), true, 'u'}, online{transforms(), true, 'u', DataMode::online};
  EXPECT_TRUE(online.stores_text() && !online.is_random() && !prepared.stores_text());
  EXPECT_NE(online.recipe(), prepared.recipe());
  for (const char* source : {"ab", "abc", "abcd", ""}) {
    Example ids = example_of(source, "uv"), text = ids;
    const Pipeline::Plan wanted = prepared.plan(ids), plan = online.plan(text);
    EXPECT_EQ(plan.left_out, wanted.left_out);
    if (plan.left_out) continue;
    EXPECT_EQ(std::tuple(plan.longest, plan.plain, plan.unknown),
              std::tuple(wanted.longest, wanted.plain, wanted.unknown));
    EXPECT_TRUE(text.source.empty());
    EXPECT_FALSE(online.finish(text, Draw{}, plan.longest));
    EXPECT_EQ(std::tuple(text.source, text.target), std::tuple(ids.source, ids.target));
  }
}

TEST(Pipeline, StoresTheLinesBeforeAnExampleThatTrainingReads) {
  Transforms transforms, later;
  transforms.push_back(std::make_unique<Characters>());
  transforms.push_back(std::make_unique<Join>());
  later.push_back(std::make_unique<Characters>());
  later.push_back(std::make_unique<IdRepeat>());
  later.push_back(std::make_unique<Join>());
  EXPECT_TRUE((Pipeline{std::move(later), true, 'u'}).stores_text()) << "ids have no lines before them";
  const Pipeline online{std::move(transforms), true, 'u', DataMode::online};
  Example example = example_of("it is", "lo es");
  example.loss = {false, true, true, true, true};
  example.before = {{"one", "uno"}, {"", "dos"}, {"three", ""}};
  const Pipeline::Plan plan = online.plan(example);
  EXPECT_TRUE(example.before.empty());
  EXPECT_EQ(example.loss.size(), example.target_text.size());
  EXPECT_FALSE(online.finish(example, std::nullopt, plan.longest));
  EXPECT_EQ(std::string(example.source.begin(), example.source.end()), "it isonethree");
  EXPECT_EQ(std::string(example.target.begin(), example.target.end()), "lo esunodos");
  EXPECT_EQ(example.loss, (std::vector<bool>{false, true, true, true, true}));
}

TEST(Pipeline, DrawsTheSameForTheSameSeedEpochAndExampleAndNeverMoreThanPlanned) {
  const Pipeline pipeline = of(std::make_unique<TextRepeat>(), std::make_unique<Characters>());
  Example stored = example_of("ab", "c");
  const Lengths longest = pipeline.plan(stored).longest;
  std::set<std::size_t> sizes;
  bool was_too_long = false;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    Example once = stored, twice = stored;
    const bool plainly = pipeline.finish(once, Draw{1, epoch, 3}, longest);
    EXPECT_EQ(plainly, pipeline.finish(twice, Draw{1, epoch, 3}, longest));
    EXPECT_EQ(once.source, twice.source);
    EXPECT_TRUE(!plainly || once.source.size() == 2);
    was_too_long = was_too_long || plainly;
    sizes.insert(once.source.size());
  }
  EXPECT_THAT(sizes, ElementsAre(2, 4));
  EXPECT_TRUE(was_too_long) << "three times would not fit";
  Example plain = stored;
  EXPECT_FALSE(pipeline.finish(plain, std::nullopt, longest));
  EXPECT_THAT(plain.source, ElementsAre('a', 'b'));
}

TEST(Pipeline, FiltersDecideOnceOnTheTextWithoutNoise) {
  const Pipeline pipeline =
      of(std::make_unique<TextRepeat>(), std::make_unique<Characters>(), std::make_unique<Refuse<Stage::ids>>(4));
  Example stored = example_of("ab", "c");
  const Pipeline::Plan plan = pipeline.plan(stored);
  EXPECT_FALSE(plan.left_out);
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    Example example = stored;
    pipeline.finish(example, Draw{1, epoch, 3}, plan.longest);
    EXPECT_THAT(example.target, ElementsAre('c')) << "what training makes is never left out";
  }
}

TEST(Pipeline, EachTransformHasAStreamOfItsOwn) {
  const Pipeline pipeline =
      of(std::make_unique<Characters>(), std::make_unique<IdRepeat>(), std::make_unique<IdRepeat>());
  Example stored = example_of("a", "c");
  const Lengths longest{100, 100};
  (void)pipeline.plan(stored);
  std::set<std::size_t> sizes;
  for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
    Example example = stored;
    pipeline.finish(example, Draw{1, epoch, 0}, longest);
    sizes.insert(example.source.size());
  }
  EXPECT_THAT(sizes, testing::Contains(2)) << "1 x 2 or 2 x 1: not the same draw twice";
}

}  // namespace
}  // namespace argosy::data
