#include "support/refusal.hpp"

namespace argosy {
namespace {

TEST(Error, IsOneSentence) {
  const Error error{Fault::config,
                    {.wanted = "max_grad_norm",
                     .got = "max_grad_nrom",
                     .where = "mt.json:7 /optimizer",
                     .remedy = "fix the spelling"}};
  EXPECT_STREQ(error.what(), "mt.json:7 /optimizer: expected max_grad_norm, got max_grad_nrom; fix the spelling");
  EXPECT_EQ(error.fault(), Fault::config);
  EXPECT_EQ(error.facts().where, "mt.json:7 /optimizer");
  EXPECT_STREQ(error.at().file_name(), __FILE__);
}

TEST(Error, LeavesOutEmptyParts) {
  const auto text = [](Facts facts) { return std::string(Error(Fault::io, std::move(facts)).what()); };
  EXPECT_EQ(text({.wanted = "a", .got = "b"}), "expected a, got b");
  EXPECT_EQ(text({.got = "b", .where = "c"}), "c: got b");
  EXPECT_EQ(text({.wanted = "a", .remedy = "d"}), "expected a; d");
  EXPECT_EQ(text({.remedy = "d"}), "d");
  EXPECT_EQ(text({}), "");
}

TEST(Error, FaultDecidesTheExitCode) {
  const std::pair<Fault, int> all[] = {{Fault::usage, 2},  {Fault::config, 2},  {Fault::data, 3},
                                       {Fault::io, 4},     {Fault::corrupt, 4}, {Fault::comm, 5},
                                       {Fault::device, 5}, {Fault::numeric, 6}, {Fault::internal, 70}};
  for (const auto& [fault, code] : all) EXPECT_EQ(static_cast<int>(exit_code(fault)), code);
}

TEST(Check, ThrowsInternalWithTheValues) {
  const int a = 3, b = 4;
  EXPECT_NO_THROW(ARGOSY_CHECK(a < b));
  const std::string said = test::refusal(Fault::internal, [&] { ARGOSY_CHECK(a > b, "{} of {}", a, b); });
  EXPECT_TRUE(test::says(said, "expected a > b, got 3 of 4; this is a defect", "error_test.cpp:"));
  EXPECT_THROW(ARGOSY_CHECK(a > b), Error) << "also without a text";
}

}  // namespace
}  // namespace argosy
