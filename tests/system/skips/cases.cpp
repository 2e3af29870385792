#include <gtest/gtest.h>

/// Cases that skip themselves, for tests of what becomes of that (skips.bats).
namespace {

TEST(Runs, First) {}
TEST(Runs, Second) {}
TEST(Skips, First) { GTEST_SKIP() << "no such thing here"; }
TEST(Skips, Second) { GTEST_SKIP() << "no such thing here"; }
TEST(SkipsElse, First) { GTEST_SKIP() << "nor this"; }
TEST(SkipsSilently, First) { GTEST_SKIP(); }
TEST(Fails, First) { FAIL() << "on purpose"; }

/// GoogleTest 1.12 calls the cases of such a suite "OK".
class SuiteSkips : public testing::Test {
 protected:
  static void SetUpTestSuite() { GTEST_SKIP() << "the whole suite"; }
};
TEST_F(SuiteSkips, First) {}

}  // namespace
