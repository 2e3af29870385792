#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "comm/comm.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"
#include "support/mpi_test.hpp"

namespace argosy::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

TEST(Communicator, SumsInRankOrderOnAllRanks) {
  const Communicator& world = test::world();
  const auto term = [](int rank) { return rank == 0 ? 1e16 : rank == 1 ? 1.0 : -1e16; };
  std::array values{term(world.rank()), 0.5};
  world.all_reduce(std::span<double>{values});
  double sum = term(0);
  for (int rank = 1; rank < world.size(); ++rank) sum += term(rank);
  EXPECT_EQ(values[0], sum);
  EXPECT_EQ(values[1], 0.5 * world.size());
}

TEST(Communicator, FindsSmallestAndLargest) {
  const Communicator& world = test::world();
  std::array<std::int64_t, 2> low{world.rank(), -5}, high{world.rank(), std::numeric_limits<std::int64_t>::max()};
  world.all_reduce(std::span<std::int64_t>{low}, Reduce::min);
  world.all_reduce(std::span<std::int64_t>{high}, Reduce::max);
  EXPECT_THAT(low, ElementsAreArray<std::int64_t>({0, -5}));
  EXPECT_THAT(high, ElementsAreArray<std::int64_t>({world.size() - 1, std::numeric_limits<std::int64_t>::max()}));
}

TEST(Communicator, BroadcastsAnyRanksText) {
  const Communicator& world = test::world();
  for (int root = 0; root < world.size(); ++root) {
    const std::string text = "from " + std::string(static_cast<std::size_t>(root) * 1000, 'x');
    EXPECT_EQ(world.broadcast(world.rank() == root ? text : "mine", root), text);
  }
  EXPECT_EQ(world.broadcast("", 0), "");
}

TEST(Communicator, GathersTextsOfAnySizeByRank) {
  const Communicator& world = test::world();
  const auto text = [](int rank) {
    return std::string(static_cast<std::size_t>(rank % 3) * 700, static_cast<char>('a' + rank));
  };
  const std::vector<std::string> texts = world.all_gather(text(world.rank()));
  ASSERT_EQ(static_cast<int>(texts.size()), world.size());
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text(rank));
}

TEST(Communicator, SplitsByColorInTheOrderOfKeys) {
  const Communicator& world = test::world();
  const Communicator half = world.split(world.rank() % 2, -world.rank());
  const int expected_size = world.size() / 2 + (world.rank() % 2 == 0 ? world.size() % 2 : 0);
  ASSERT_EQ(half.size(), expected_size);
  const std::vector<std::string> members = half.all_gather(std::to_string(world.rank()));
  for (std::size_t i = 1; i < members.size(); ++i) EXPECT_GT(std::stoi(members[i - 1]), std::stoi(members[i]));
  EXPECT_EQ(members[static_cast<std::size_t>(half.rank())], std::to_string(world.rank()));
}

TEST(Communicator, ABarrierOfOneNameLetsAllPass) { test::world().barrier("common"); }

TEST(Communicator, RanksInDifferentBarriersAreNamed) {
  const Communicator& world = test::world();
  if (world.size() == 1) return world.barrier("alone");
  try {
    world.barrier(world.rank() == 1 ? "save" : "step");
    FAIL() << "passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::comm);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 in \"step\""), HasSubstr("rank 1 in \"save\"")));
  }
}

/// Long enough for ranks that share a busy processor.
constexpr milliseconds deadline{1000};

/// The sentence of the Error{comm} that `body` ends with under that deadline; "in time" without one.
template <class Body>
std::string under_short_deadline(const Communicator& world, Body body) {
  Session& session = world.impl().session;
  const double before_s = session.timeout_s;
  session.timeout_s = std::chrono::duration<double>(deadline).count();
  std::string sentence = "in time";
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::comm);
    sentence = error.what();
  }
  session.timeout_s = before_s;
  return sentence;
}

TEST(Deadline, TheSilentRankIsNamedWithOperationAndBytes) {
  const Communicator& world = test::world();
  if (world.size() == 1) return;
  // An operation given up on is completed by the late rank, else its messages would reach a later communicator.
  const Communicator used = world.duplicate();
  const int silent = world.size() - 1;
  std::array<double, 2> values{1, 2};
  if (world.rank() == silent) {
    std::this_thread::sleep_for(2 * deadline + deadline / 4);
    used.all_reduce(std::span<double>{values});
    EXPECT_EQ(values[0], world.size());
  } else {
    const std::string sentence = under_short_deadline(world, [&] { used.all_reduce(std::span<double>{values}); });
    EXPECT_THAT(sentence,
                AllOf(HasSubstr("all_reduce of 16 bytes"), HasSubstr(fmt::format("no word from rank {}", silent))));
  }
  world.barrier("after the deadline");
}

TEST(Deadline, ARankThatWaitsElsewhereIsNotCalledSilent) {
  const Communicator& world = test::world();
  if (world.size() == 1) return;
  const Communicator one = world.duplicate(), other = world.duplicate();
  const auto step = [&] { one.barrier("step"); };
  const auto save = [&] { other.barrier("save"); };
  const auto until_all_gave_up = [] { std::this_thread::sleep_for(deadline); };
  if (world.rank() == 1) {
    EXPECT_THAT(under_short_deadline(world, save),
                AllOf(HasSubstr("rank 0 waits in barrier \"step\""), Not(HasSubstr("no word"))));
    until_all_gave_up();
    step();
  } else {
    EXPECT_THAT(under_short_deadline(world, step),
                AllOf(HasSubstr("rank 1 waits in barrier \"save\""), Not(HasSubstr("no word"))));
    until_all_gave_up();
    save();
  }
  world.barrier("after the deadline");
}

TEST(Deadline, DoesNotEndAWaitForWorkThatAllAgreeOn) {
  const Communicator& world = test::world();
  const auto work_on_the_last_rank = [&] {
    agree(world, [&] {
      if (world.rank() == world.size() - 1) std::this_thread::sleep_for(3 * deadline);
    });
  };
  EXPECT_EQ(under_short_deadline(world, work_on_the_last_rank), "in time");
}

TEST(Deadline, EndsWorkThatWaitsForAnotherOperation) {
  const Communicator& world = test::world();
  if (world.size() == 1) return;
  const Communicator one = world.duplicate(), other = world.duplicate();
  const auto step = [&] { one.barrier("step"); };
  const auto work = [&] { agree(world, [&] { other.barrier("work"); }); };
  const bool last = world.rank() == world.size() - 1;
  const std::string sentence = last ? under_short_deadline(world, work) : under_short_deadline(world, step);
  EXPECT_THAT(sentence, HasSubstr(last ? "rank 0 waits in barrier \"step\"" : "waits in barrier \"work\""));
  std::this_thread::sleep_for(deadline);
  if (last) {
    step();
  } else {
    other.barrier("work");
  }
  world.barrier("after the deadline");
}

TEST(Deadline, NamesTheStep) {
  const Communicator& world = test::world();
  if (world.size() == 1) return;
  const Communicator used = world.duplicate();
  world.impl().session.step = 41;
  if (world.rank() == 0) {
    EXPECT_THAT(under_short_deadline(world, [&] { used.barrier("x"); }), HasSubstr("step 41"));
  } else {
    std::this_thread::sleep_for(2 * deadline);
    used.barrier("x");
  }
  world.impl().session.step = -1;
  world.barrier("after the deadline");
}

TEST(Deadline, IsSetByTheConfigurationUnlessTheEnvironmentSays) {
  const Communicator& world = test::world();
  const double before_s = world.impl().session.timeout_s;
  const std::string said = std::getenv("ARGOSY_COMM_TIMEOUT_S");
  world.configure({.timeout_s = 123});
  EXPECT_EQ(world.impl().session.timeout_s, before_s);
  unsetenv("ARGOSY_COMM_TIMEOUT_S");
  world.configure({.timeout_s = 123});
  EXPECT_EQ(world.impl().session.timeout_s, 123);
  setenv("ARGOSY_COMM_TIMEOUT_S", said.c_str(), 1);
  world.impl().session.timeout_s = before_s;
}

}  // namespace
}  // namespace argosy::comm
