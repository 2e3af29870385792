#include "train/start_agreement.hpp"

#include <gmock/gmock.h>

#include "support/mpi_test.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using testing::HasSubstr;

int last() { return world().size() - 1; }
bool is_last() { return world().rank() == last() && last() > 0; }
std::string on_both(const std::string& first, const std::string& other) {
  return fmt::format("{} on rank 0 and {} on rank {}", first, other, last());
}

/// What every rank hears when the last one differs; a world of one agrees with itself.
template <class F>
void expect_refusal(Fault fault, const std::string& said, const F& start) {
  if (world().size() == 1) {
    EXPECT_NO_THROW(start());
  } else {
    EXPECT_THAT(refusal(fault, start), HasSubstr(said));
  }
}

TEST(StartAgreement, RanksOfOneBuildAndOneConfigurationStart) {
  EXPECT_NO_THROW(train::require_same_start(world(), {}, {{"--resume", "auto"}}));
}

TEST(StartAgreement, NamesTheKeyAndBothValuesOfARankWithAnotherConfiguration) {
  plan::RunConfig config;
  config.seed = is_last() ? 5 : 3;
  expect_refusal(Fault::config, on_both("seed is 3", "5"), [&] { train::require_same_start(world(), config, {}); });
  plan::RunConfig nested;
  nested.data.corpora.resize(2);
  nested.data.corpora[1].source = is_last() ? "b" : "a";
  expect_refusal(Fault::config, on_both(R"(data.corpora.1.source is "a")", R"("b")"),
                 [&] { train::require_same_start(world(), nested, {}); });
  plan::RunConfig longer;
  if (is_last()) longer.validation.sets.resize(1);
  expect_refusal(Fault::config, "validation.sets is [] on rank 0",
                 [&] { train::require_same_start(world(), longer, {}); });
}

TEST(StartAgreement, TheCommandLineCountsToo) {
  expect_refusal(Fault::config, on_both("--from-scratch is false", "true"), [] {
    train::require_same_start(world(), {}, {{"--from-scratch", is_last()}});
  });
}

TEST(StartAgreement, RefusesAnotherBuildBeforeItLooksAtKeys) {
  plan::RunConfig config;
  config.seed = is_last() ? 5 : 3;
  const std::string code = is_last() ? "argosy 0.2.0 (beef)" : "argosy 0.1.0 (cafe)";
  expect_refusal(Fault::config, on_both("the build is argosy 0.1.0 (cafe)", "argosy 0.2.0 (beef)"),
                 [&] { train::require_same_start(world(), config, {}, code); });
  EXPECT_THAT(train::code_version(), testing::MatchesRegex("argosy [0-9.]+ \\([0-9a-z-]+\\)"));
}

TEST(StartAgreement, NamesBothDigestsOfOtherData) {
  const Digest one = digest_of("one"), other = digest_of("other");
  expect_refusal(Fault::data, on_both("digest is " + one.hex(), other.hex()), [&] {
    (void)train::same_on_all_ranks(world(), is_last() ? other : one, "token shards", "data.shards");
  });
  EXPECT_EQ(train::same_on_all_ranks(world(), one, "token shards", "data.shards"), one);
}

}  // namespace
}  // namespace argosy::test
