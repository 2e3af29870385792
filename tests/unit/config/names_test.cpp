#include <gtest/gtest.h>

#include <array>

#include "config/config.hpp"

namespace argosy::config {
namespace {

constexpr std::array<std::string_view, 4> known{"lr", "warmup", "max_grad_norm", "style"};

TEST(Nearest, FindsInsertionsDeletionsReplacementsAndSwaps) {
  for (const char* near : {"warmupp", "warmp", "wormup"}) EXPECT_EQ(nearest(near, known), "warmup") << near;
  EXPECT_EQ(nearest("max_grad_nrom", known), "max_grad_norm");
  EXPECT_EQ(nearest("rl", known), "lr");
  EXPECT_EQ(nearest("max_grad", known), std::nullopt) << "five letters are too far";
}

TEST(Nearest, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest("tokenizer", known), std::nullopt);
  EXPECT_EQ(nearest("", {}), std::nullopt);
}

TEST(Nearest, KnowsPeersNames) {
  EXPECT_EQ(nearest("clip_grad", known), "max_grad_norm");
  EXPECT_EQ(nearest("warmup_steps", known), "warmup");
  EXPECT_EQ(nearest("accum_count", known), std::nullopt) << "its key is in another section";
  EXPECT_EQ(key_of_peer("accum_count"), "batch.accumulation");
  EXPECT_EQ(key_of_peer("no_such_name"), std::nullopt);
}

TEST(Problems, ScopesNestAndRepetitionsAreDropped) {
  Problems problems;
  {
    const Problems::Scope a(problems, "a");
    const Problems::Scope b(problems, "/b");
    problems.add("/c", "x", "y");
    problems.add("c", "x", "y");
    problems.add("", "x", "z");
  }
  problems.require(true, "/d", "x", "y");
  problems.require(false, "/d", "x", "y");
  ASSERT_EQ(problems.all().size(), 3U);
  EXPECT_EQ(problems.all()[0].pointer, "/a/b/c");
  EXPECT_EQ(problems.all()[1].pointer, "/a/b");
  EXPECT_EQ(problems.all()[2].pointer, "/d");
}

}  // namespace
}  // namespace argosy::config
