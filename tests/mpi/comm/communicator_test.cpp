#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "comm/comm.hpp"
#include "comm/control.hpp"
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

TEST(Communicator, GathersTextsAtOneRank) {
  const Communicator& world = test::world();
  const auto text = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 300, 'x') + std::to_string(rank);
  };
  for (int root = 0; root < world.size(); ++root) {
    const std::vector<std::string> texts = world.gather(text(world.rank()), root);
    ASSERT_EQ(static_cast<int>(texts.size()), world.rank() == root ? world.size() : 0);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], text(static_cast<int>(rank)));
  }
}

struct Place {
  std::int64_t rank = 0;
  double half = 0;
  bool operator==(const Place&) const = default;
};

TEST(Communicator, GathersPlainValuesByRank) {
  const Communicator& world = test::world();
  const auto place = [](int rank) { return Place{rank, rank / 2.0}; };
  const std::vector<Place> places = world.all_gather(place(world.rank()));
  ASSERT_EQ(static_cast<int>(places.size()), world.size());
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_EQ(places[static_cast<std::size_t>(rank)], place(rank));
}

TEST(Communicator, GathersAndBroadcastsPlainListsOfAnyLength) {
  const Communicator& world = test::world();
  std::vector<std::vector<double>> lists;
  for (int rank = 0; rank < world.size(); ++rank) lists.emplace_back(static_cast<std::size_t>(rank), 1.0 / (rank + 3));
  const std::vector<double>& own = lists[static_cast<std::size_t>(world.rank())];
  EXPECT_EQ(world.all_gather(own), lists);
  EXPECT_EQ(world.gather(own), world.rank() == 0 ? lists : std::vector<std::vector<double>>{});
  EXPECT_EQ(world.broadcast(own, world.size() - 1), lists.back());
}

/// As where all texts have more than two gigabytes together.
TEST(Communicator, MovesTextsInPiecesThatMpiCanCount) {
  const Communicator& world = test::world();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank)
    texts.emplace_back(static_cast<std::size_t>(rank * rank) * 5, static_cast<char>('a' + rank));
  const std::string& own = texts[static_cast<std::size_t>(world.rank())];
  for (const std::int64_t call_bytes : {1, 7, 1000}) {
    EXPECT_EQ(gather_texts(world.impl(), own, std::nullopt, call_bytes), texts);
    EXPECT_EQ(gather_texts(world.impl(), own, 0, call_bytes), world.rank() == 0 ? texts : std::vector<std::string>{});
    EXPECT_EQ(broadcast_text(world.impl(), own, world.size() - 1, call_bytes), texts.back());
  }
}

TEST(Communicator, SmallestAndLargestAreTheSameBitsOnAllRanks) {
  const Communicator& world = test::world();
  if (world.size() == 1) return;
  const bool last = world.rank() == world.size() - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  std::array<double, 6> low{last ? nan : 1.0, last ? -nan : -inf, last ? -0.0 : 0.0, last ? -inf : inf, -1.5, 1e-310};
  std::array<double, 6> high = low;
  world.all_reduce(std::span<double>{low}, Reduce::min);
  world.all_reduce(std::span<double>{high}, Reduce::max);
  EXPECT_TRUE(std::isnan(low[0]) && std::isnan(low[1]) && std::isnan(high[0]) && std::isnan(high[1]));
  EXPECT_TRUE(std::signbit(low[2]) && !std::signbit(high[2]));
  EXPECT_EQ(low[3], -inf);
  EXPECT_EQ(high[3], inf);
  for (const auto& result : {low, high}) {
    EXPECT_EQ(result[4], -1.5);
    EXPECT_EQ(result[5], 1e-310);
    const std::string bits(reinterpret_cast<const char*>(result.data()), sizeof result);
    EXPECT_FALSE(odd_one(world, bits)) << "other bits on another rank";
  }
}

TEST(Communicator, FindsTheLowestRankWithAnotherText) {
  const Communicator& world = test::world();
  EXPECT_FALSE(odd_one(world, "same"));
  const std::optional<Odd> odd = odd_one(world, world.rank() == 0 ? "first" : fmt::format("of {}", world.rank()));
  ASSERT_EQ(odd.has_value(), world.size() > 1);
  if (!odd) return;
  EXPECT_EQ(odd->rank, 1);
  EXPECT_EQ(odd->first, "first");
  EXPECT_EQ(odd->other, "of 1");
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
  std::array<std::int64_t, 2> values{1, 2};
  if (world.rank() == silent) {
    std::this_thread::sleep_for(2 * deadline + deadline / 4);
    used.all_reduce(std::span<std::int64_t>{values});
    EXPECT_EQ(values[0], world.size());
  } else {
    const std::string sentence = under_short_deadline(world, [&] { used.all_reduce(std::span<std::int64_t>{values}); });
    EXPECT_THAT(sentence,
                AllOf(HasSubstr("all_reduce of 16 bytes"), HasSubstr(fmt::format("no answer from rank {}", silent))));
  }
  world.barrier("after the deadline");
}

TEST(Deadline, OfManyRanksTheFirstAskAndTellTheOthers) {
  const Communicator& world = test::world();
  if (world.size() < 3) return;
  const Communicator used = world.duplicate();
  Session& session = world.impl().session;
  const int before = std::exchange(session.first_askers, 1), silent = world.size() - 1;
  const ControlTraffic moved_before = world.control_traffic();
  std::array<double, 2> values{1, 2};
  std::string sentence;
  const auto add = [&] { used.all_reduce(std::span<double>{values}); };
  if (world.rank() == 0) {
    sentence = under_short_deadline(world, add);
  } else if (world.rank() == silent) {
    std::this_thread::sleep_for(2 * deadline);
  } else {  // its own deadline is far away
    try {
      add();
    } catch (const Error& error) {
      sentence = error.what();
    }
    constexpr std::int64_t values_bytes = 16, answer_bytes = 64;
    EXPECT_EQ(world.control_traffic().since(moved_before).sent_bytes, values_bytes + answer_bytes);
  }
  if (world.rank() != silent) {
    EXPECT_THAT(sentence,
                AllOf(HasSubstr("all_reduce of 16 bytes"), HasSubstr(fmt::format("no answer from rank {}", silent))));
  }
  world.barrier("told");
  session.first_askers = before;
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
                AllOf(HasSubstr("rank 0 waits in barrier \"step\""), Not(HasSubstr("no answer"))));
    until_all_gave_up();
    step();
  } else {
    EXPECT_THAT(under_short_deadline(world, step),
                AllOf(HasSubstr("rank 1 waits in barrier \"save\""), Not(HasSubstr("no answer"))));
    until_all_gave_up();
    save();
  }
  world.barrier("after the deadline");
}

TEST(Deadline, DoesNotEndAWaitForWorkThatAllAgreeOn) {
  const Communicator& world = test::world();
  Session& session = world.impl().session;
  const int before = session.first_askers;
  if (world.size() > 2) session.first_askers = 1;  // the others are told
  const auto work_on_the_last_rank = [&] {
    agree(world, [&] {
      if (world.rank() == world.size() - 1) std::this_thread::sleep_for(3 * deadline);
    });
  };
  EXPECT_EQ(under_short_deadline(world, work_on_the_last_rank), "in time");
  session.first_askers = before;
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
