#include "train/advice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/refusal.hpp"

namespace argosy::train {
namespace {

/// How many validations with these facts it takes until a sentence comes that has `part`; 0: none came in twenty. Also
/// checks that it does not come again.
int told_after(const ValidationFacts& facts, const std::string& part) {
  ValidationAdvice advice;
  int told = 0;
  for (int i = 1; i <= 20; ++i) {
    for (const std::string& sentence : advice.on_losses(facts)) {
      if (!test::says(sentence, part)) continue;
      EXPECT_EQ(told, 0) << sentence;
      told = i;
    }
  }
  return told;
}

constexpr const char* by_heart = "corpus verses has been read 12.5 times: the model learns its text by heart";
constexpr const char* worse = "the loss of dev (3.1000) was worse than its best (2.9000 at step 400)";

ValidationFacts overfitted() {
  return {.set = "dev",
          .loss = 3.1,
          .best_loss = 2.9,
          .best_step = 400,
          .nll = 1.5,
          .corpus = "verses",
          .passes = 12.5,
          .ends_early = false};
}

TEST(ValidationAdvice, NamesLearningByHeartOnceAndOnlyAfterFiveValidations) {
  EXPECT_EQ(told_after(overfitted(), by_heart), 5);
  ValidationFacts facts = overfitted();
  facts.nll = 2.4;
  EXPECT_EQ(told_after(facts, by_heart), 0) << "not far below";
  facts.nll = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(told_after(facts, by_heart), 0) << "no steps";
  facts = overfitted();
  facts.passes = 1.5;
  EXPECT_EQ(told_after(facts, by_heart), 0) << "another kind of text, not repeats";
}

TEST(ValidationAdvice, NamesALossThatStaysWorseThanItsBest) {
  EXPECT_EQ(told_after(overfitted(), worse), 5);
  ValidationFacts facts = overfitted();
  facts.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(told_after(facts, "was worse than its best"), 5);
  facts = overfitted();
  facts.ends_early = true;
  EXPECT_EQ(told_after(facts, worse), 0) << "the run ends by itself";
  ValidationAdvice advice;
  for (int i = 1; i <= 20; ++i) {
    facts = overfitted();
    facts.nll = 3;
    if (i % 5 == 0) facts.best_loss = facts.loss;
    EXPECT_TRUE(advice.on_losses(facts).empty()) << i;
  }
}

TEST(ValidationAdvice, CountsOnOverStartsAndGivesASentenceOnceInAll) {
  int told = 0;
  ValidationAdvice::Left left = ValidationAdvice().left();
  for (int start = 1; start <= 12; ++start) {
    ValidationAdvice advice(left);
    for (const std::string& sentence : advice.on_losses(overfitted())) told += test::says(sentence, worse) ? start : 0;
    static_cast<void>(advice.on_translations("dev", {.distinct = 0.1}, {.distinct = 1}));
    left = advice.left();
  }
  EXPECT_EQ(told, 5) << "at the fifth start of one validation each";
  EXPECT_EQ(left, (ValidationAdvice::Left{0, 0, 0, 2, 2}));
}

std::vector<std::string> at_the_second(const decode::Repetition& translations, const decode::Repetition& references) {
  ValidationAdvice advice;
  EXPECT_TRUE(advice.on_translations("dev", translations, references).empty());
  const std::vector<std::string> said = advice.on_translations("dev", translations, references);
  EXPECT_TRUE(advice.on_translations("dev", translations, references).empty());
  return said;
}

TEST(ValidationAdvice, NamesACollapseUnlessReferencesLookAlike) {
  const decode::Repetition collapsed{.distinct = 0.25, .top_piece = 0.75, .repeating = 0.5};
  const std::vector<std::string> said = at_the_second(collapsed, {});
  ASSERT_EQ(said.size(), 3U);
  EXPECT_TRUE(test::says(said[0], "only 25 % of the translations of dev differ"));
  EXPECT_TRUE(test::says(said[1], "75 % of the pieces in the translations of dev are one and the same"));
  EXPECT_TRUE(test::says(said[2], "50 % of the translations of dev repeat something"));
  EXPECT_TRUE(test::says(said[2], "train longer before blocking repeats"));
  EXPECT_TRUE(at_the_second(collapsed, collapsed).empty());
  EXPECT_TRUE(at_the_second({.distinct = 0.5, .top_piece = 0.5, .repeating = 0.05}, {}).empty());
}

TEST(PrecisionAdvice, ComesWhereProductsAreSlowerInBf16) {
  EXPECT_TRUE(test::says(precision_advice(1.5e11, 1e11), "take 1.5 times as long in bf16", "precision.mode fp32"));
  EXPECT_EQ(precision_advice(1.1e11, 1e11), "");
  EXPECT_EQ(precision_advice(1e11, 3e11), "");
}

TEST(NoiseAdvice, ComesOnceWhenManyExamplesAreTooLong) {
  const auto batches = [](std::int64_t rows, std::int64_t without_noise) {
    std::vector<data::Batch> made(2);
    made[0].rows = rows;
    made[0].without_noise = without_noise;
    return made;
  };
  NoiseAdvice few, many;
  EXPECT_EQ(few.on_batches(batches(1000, 10)) + many.on_batches(batches(999, 500)), "");
  EXPECT_EQ(few.share_without(), .01);
  EXPECT_TRUE(test::says(many.on_batches(batches(1, 0)), "50.0 % of the examples so far are trained without noise"));
  EXPECT_EQ(many.on_batches(batches(1000, 1000)), "");
}

}  // namespace
}  // namespace argosy::train
