#include <gmock/gmock.h>

#include <stdexcept>

#include "comm/comm.hpp"
#include "support/mpi_test.hpp"
#include "support/refusal.hpp"

namespace argosy::comm {
namespace {

using testing::AllOf, testing::HasSubstr;

/// What every rank gets out of agree(); the fault is checked on the way.
std::string agreed(Fault fault, const std::function<void()>& body) {
  return test::refusal(fault, [&] { agree(test::world(), body); });
}

TEST(Agree, OneRanksErrorIsThrownOnAll) {
  const int last = test::world().size() - 1;
  const std::string sentence = agreed(Fault::data, [&] {
    if (test::world().rank() == last)
      throw Error{Fault::data, {.wanted = "7 lines", .got = "6", .where = "a.en", .remedy = "add one"}};
  });
  EXPECT_THAT(sentence, AllOf(HasSubstr("expected 7 lines, got 6; add one"), HasSubstr("a.en")));
  if (last > 0) {
    EXPECT_THAT(sentence, HasSubstr(fmt::format("rank {}", last)));
  }
}

TEST(Agree, ASentenceReachesAllRanksWithItsFacts) {
  const int last = test::world().size() - 1;
  const auto body = [&] {
    if (test::world().rank() != last) return;
    throw Error{Fault::io, {.sentence = "a\xff.en cannot be read", .wanted = "a file", .got = "EIO"}};
  };
  const Error error = test::error_of([&] { agree(test::world(), body); });
  const std::string of_rank = last == 0 ? "" : fmt::format("rank {}: ", last);
  EXPECT_EQ(error.what(), of_rank + "a\xff.en cannot be read");
  EXPECT_EQ(std::tuple(error.facts().wanted, error.facts().got), std::tuple("a file", "EIO"));
}

TEST(Agree, TheLowestFailingRankHasTheWord) {
  const int size = test::world().size(), rank = test::world().rank();
  const std::string sentence = agreed(Fault::io, [&] {
    if (rank > 0 || size == 1) throw Error{Fault::io, {.wanted = fmt::format("disk {}", rank)}};
  });
  EXPECT_THAT(sentence, HasSubstr(fmt::format("disk {}", size == 1 ? 0 : 1)));
}

TEST(Agree, OtherExceptionsBecomeInternalErrors) {
  const std::string sentence = agreed(Fault::internal, [] {
    if (test::world().rank() == 0) throw std::runtime_error("vector too long");
  });
  EXPECT_THAT(sentence, HasSubstr("unexpected internal error: vector too long"));
}

TEST(AnyOf, IsTrueEverywhereIfTrueAnywhere) {
  const Communicator& world = test::world();
  EXPECT_FALSE(any_of(world, false));
  EXPECT_TRUE(any_of(world, world.rank() == world.size() - 1));
}

}  // namespace
}  // namespace argosy::comm
