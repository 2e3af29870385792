#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "comm/comm.hpp"
#include "comm/session.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"
#include "support/refusal.hpp"

namespace argosy::comm {
namespace {

using std::chrono::milliseconds;
using test::world;
using testing::AllOf, testing::ElementsAreArray, testing::HasSubstr, testing::Not;

std::size_t me() { return static_cast<std::size_t>(world().rank()); }

/// What `of` gives for each rank.
template <class Of>
auto of_ranks(Of of) {
  std::vector<decltype(of(std::size_t{0}))> all;
  for (std::size_t rank = 0; static_cast<int>(rank) < world().size(); ++rank) all.push_back(of(rank));
  return all;
}

TEST(Communicator, SumsInRankOrderOnAllRanks) {
  const auto term = [](int rank) { return rank == 0 ? 1e16 : rank == 1 ? 1.0 : -1e16; };
  std::array values{term(world().rank()), 0.5};
  world().all_reduce(std::span<double>{values});
  double sum = term(0);
  for (int rank = 1; rank < world().size(); ++rank) sum += term(rank);
  EXPECT_EQ(values[0], sum);
  EXPECT_EQ(values[1], 0.5 * world().size());
}

TEST(Communicator, FindsSmallestAndLargest) {
  std::array<std::int64_t, 2> low{world().rank(), -5}, high{world().rank(), std::numeric_limits<std::int64_t>::max()};
  world().all_reduce(std::span<std::int64_t>{low}, Reduce::min);
  world().all_reduce(std::span<std::int64_t>{high}, Reduce::max);
  EXPECT_THAT(low, ElementsAreArray<std::int64_t>({0, -5}));
  EXPECT_THAT(high, ElementsAreArray<std::int64_t>({world().size() - 1, std::numeric_limits<std::int64_t>::max()}));
}

TEST(Communicator, BroadcastsAnyRanksText) {
  for (int root = 0; root < world().size(); ++root) {
    const std::string text = "from " + std::string(static_cast<std::size_t>(root) * 1000, 'x');
    EXPECT_EQ(world().broadcast(world().rank() == root ? text : "mine", root), text);
  }
  EXPECT_EQ(world().broadcast("", 0), "");
}

TEST(Communicator, GathersTextsOfAnySizeByRankOnAllRanksOrOnOne) {
  const auto texts =
      of_ranks([](std::size_t rank) { return std::string(rank % 3 * 700, static_cast<char>('a' + rank)); });
  EXPECT_EQ(world().all_gather(texts[me()]), texts);
  for (int root = 0; root < world().size(); ++root)
    EXPECT_EQ(world().gather(texts[me()], root), world().rank() == root ? texts : std::vector<std::string>{});
}

struct Place {
  std::int64_t rank = 0;
  double half = 0;
  bool operator==(const Place&) const = default;
};

TEST(Communicator, GathersPlainValuesByRank) {
  const auto places = of_ranks([](std::size_t rank) {
    return Place{static_cast<std::int64_t>(rank), static_cast<double>(rank) / 2};
  });
  EXPECT_EQ(world().all_gather(places[me()]), places);
}

TEST(Communicator, GathersAndBroadcastsPlainListsOfAnyLength) {
  const auto lists =
      of_ranks([](std::size_t rank) { return std::vector<double>(rank, 1.0 / static_cast<double>(rank + 3)); });
  const std::vector<double>& own = lists[me()];
  EXPECT_EQ(world().all_gather(own), lists);
  EXPECT_EQ(world().gather(own), world().rank() == 0 ? lists : std::vector<std::vector<double>>{});
  EXPECT_EQ(world().broadcast(own, world().size() - 1), lists.back());
}

/// As where all texts have more than two gigabytes together.
TEST(Communicator, MovesTextsInPiecesThatMpiCanCount) {
  const auto texts =
      of_ranks([](std::size_t rank) { return std::string(rank * rank * 5, static_cast<char>('a' + rank)); });
  const std::string& own = texts[me()];
  for (const std::int64_t call_bytes : {1, 7, 1000}) {
    const Communicator narrow = world().duplicate();
    narrow.impl().call_bytes = call_bytes;
    EXPECT_EQ(narrow.all_gather(own), texts);
    EXPECT_EQ(narrow.gather(own), world().rank() == 0 ? texts : std::vector<std::string>{});
    EXPECT_EQ(narrow.broadcast(own, world().size() - 1), texts.back());
  }
}

TEST(Communicator, SmallestAndLargestAreTheSameBitsOnAllRanks) {
  if (world().size() == 1) return;
  const bool last = world().rank() == world().size() - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  std::array<double, 6> low{last ? nan : 1.0, last ? -nan : -inf, last ? -0.0 : 0.0, last ? -inf : inf, -1.5, 1e-310};
  std::array<double, 6> high = low;
  world().all_reduce(std::span<double>{low}, Reduce::min);
  world().all_reduce(std::span<double>{high}, Reduce::max);
  EXPECT_TRUE(std::isnan(low[0]) && std::isnan(low[1]) && std::isnan(high[0]) && std::isnan(high[1]));
  EXPECT_TRUE(std::signbit(low[2]) && !std::signbit(high[2]));
  EXPECT_EQ(low[3], -inf);
  EXPECT_EQ(high[3], inf);
  for (const auto& result : {low, high}) {
    EXPECT_EQ(result[4], -1.5);
    EXPECT_EQ(result[5], 1e-310);
    const std::string bits(reinterpret_cast<const char*>(result.data()), sizeof result);
    EXPECT_FALSE(odd_one(world(), bits)) << "other bits on another rank";
  }
}

TEST(Communicator, FindsTheLowestRankWithAnotherText) {
  EXPECT_FALSE(odd_one(world(), "same"));
  const std::optional<Odd> odd = odd_one(world(), world().rank() == 0 ? "first" : fmt::format("of {}", world().rank()));
  ASSERT_EQ(odd.has_value(), world().size() > 1);
  if (!odd) return;
  EXPECT_EQ(std::tuple(odd->rank, odd->first, odd->other), std::tuple(1, "first", "of 1"));
}

TEST(Communicator, SplitsByColorInTheOrderOfKeys) {
  const Communicator half = world().split(world().rank() % 2, -world().rank());
  const int expected_size = world().size() / 2 + (world().rank() % 2 == 0 ? world().size() % 2 : 0);
  ASSERT_EQ(half.size(), expected_size);
  const std::vector<std::string> members = half.all_gather(std::to_string(world().rank()));
  for (std::size_t i = 1; i < members.size(); ++i) EXPECT_GT(std::stoi(members[i - 1]), std::stoi(members[i]));
  EXPECT_EQ(members[static_cast<std::size_t>(half.rank())], std::to_string(world().rank()));
}

TEST(Communicator, RanksInDifferentBarriersAreNamed) {
  if (world().size() == 1) return world().barrier("alone");
  EXPECT_THAT(test::refusal(Fault::comm, [] { world().barrier(world().rank() == 1 ? "save" : "step"); }),
              AllOf(HasSubstr("rank 0 in \"step\""), HasSubstr("rank 1 in \"save\"")));
}

/// Long enough for ranks that share a busy processor.
constexpr milliseconds deadline{1000};

/// The sentence of the Error{comm} that `body` ends with under that deadline; "in time" without one.
template <class Body>
std::string under_short_deadline(const Body& body) {
  std::atomic<double>& timeout_s = world().impl().session.timeout_s;
  const double before_s = timeout_s.exchange(std::chrono::duration<double>(deadline).count());
  const std::optional<Error> error = test::caught(body);
  timeout_s = before_s;
  if (error) {
    EXPECT_EQ(error->fault(), Fault::comm);
  }
  return error ? error->what() : "in time";
}

TEST(Deadline, TheSilentRankIsNamedWithStepOperationAndBytes) {
  if (world().size() == 1) return;
  // An operation given up on is completed by the late rank, else its messages would reach a later communicator.
  const Communicator used = world().duplicate();
  const int silent = world().size() - 1;
  std::array<std::int64_t, 2> values{1, 2};
  if (world().rank() == silent) {
    std::this_thread::sleep_for(2 * deadline + deadline / 4);
    used.all_reduce(std::span<std::int64_t>{values});
    EXPECT_EQ(values[0], world().size());
  } else {
    world().impl().session.step = 41;
    const std::string sentence = under_short_deadline([&] { used.all_reduce(std::span<std::int64_t>{values}); });
    world().impl().session.step = -1;
    EXPECT_THAT(sentence, AllOf(HasSubstr("all_reduce of 16 bytes"), HasSubstr("step 41"),
                                HasSubstr(fmt::format("no answer from rank {}", silent))));
  }
  world().barrier("after the deadline");
}

TEST(Deadline, OfManyRanksTheFirstAskAndTellTheOthers) {
  if (world().size() < 3) return;
  const Communicator used = world().duplicate();
  Session& session = world().impl().session;
  const int before = std::exchange(session.first_askers, 1), silent = world().size() - 1;
  const ControlTraffic moved_before = world().control_traffic();
  std::array<double, 2> values{1, 2};
  std::string sentence;
  const auto add = [&] { used.all_reduce(std::span<double>{values}); };
  if (world().rank() == 0) {
    sentence = under_short_deadline(add);
  } else if (world().rank() == silent) {
    std::this_thread::sleep_for(2 * deadline);
  } else {  // its own deadline is far away
    sentence = test::error_of(add).what();
    constexpr std::int64_t values_bytes = 16, answer_bytes = 64;
    EXPECT_EQ(world().control_traffic().since(moved_before).sent_bytes, values_bytes + answer_bytes);
  }
  if (world().rank() != silent) {
    EXPECT_THAT(sentence,
                AllOf(HasSubstr("all_reduce of 16 bytes"), HasSubstr(fmt::format("no answer from rank {}", silent))));
  }
  world().barrier("told");
  session.first_askers = before;
}

TEST(Deadline, ARankThatWaitsElsewhereIsNotCalledSilent) {
  if (world().size() == 1) return;
  const Communicator one = world().duplicate(), other = world().duplicate();
  const auto step = [&] { one.barrier("step"); };
  const auto save = [&] { other.barrier("save"); };
  const auto until_all_gave_up = [] { std::this_thread::sleep_for(deadline); };
  if (world().rank() == 1) {
    EXPECT_THAT(under_short_deadline(save),
                AllOf(HasSubstr("rank 0 waits in barrier \"step\""), Not(HasSubstr("no answer"))));
    until_all_gave_up();
    step();
  } else {
    EXPECT_THAT(under_short_deadline(step),
                AllOf(HasSubstr("rank 1 waits in barrier \"save\""), Not(HasSubstr("no answer"))));
    until_all_gave_up();
    save();
  }
  world().barrier("after the deadline");
}

TEST(Deadline, DoesNotEndAWaitForWorkThatAllAgreeOn) {
  Session& session = world().impl().session;
  const int before = session.first_askers;
  if (world().size() > 2) session.first_askers = 1;  // the others are told
  const auto work_on_the_last_rank = [&] {
    agree(world(), [&] {
      if (world().rank() == world().size() - 1) std::this_thread::sleep_for(3 * deadline);
    });
  };
  EXPECT_EQ(under_short_deadline(work_on_the_last_rank), "in time");
  session.first_askers = before;
}

TEST(Deadline, EndsWorkThatWaitsForAnotherOperation) {
  if (world().size() == 1) return;
  const Communicator one = world().duplicate(), other = world().duplicate();
  const auto step = [&] { one.barrier("step"); };
  const auto work = [&] { agree(world(), [&] { other.barrier("work"); }); };
  const bool last = world().rank() == world().size() - 1;
  const std::string sentence = last ? under_short_deadline(work) : under_short_deadline(step);
  EXPECT_THAT(sentence, HasSubstr(last ? "rank 0 waits in barrier \"step\"" : "waits in barrier \"work\""));
  std::this_thread::sleep_for(deadline);
  if (last) {
    step();
  } else {
    other.barrier("work");
  }
  world().barrier("after the deadline");
}

TEST(Deadline, IsSetByTheConfigurationUnlessTheEnvironmentSays) {
  const double before_s = world().impl().session.timeout_s;
  const std::string said = std::getenv("ARGOSY_COMM_TIMEOUT_S");
  world().configure({.timeout_s = 123});
  EXPECT_EQ(world().impl().session.timeout_s, before_s);
  unsetenv("ARGOSY_COMM_TIMEOUT_S");
  world().configure({.timeout_s = 123});
  EXPECT_EQ(world().impl().session.timeout_s, 123);
  setenv("ARGOSY_COMM_TIMEOUT_S", said.c_str(), 1);
  world().impl().session.timeout_s = before_s;
}

}  // namespace
}  // namespace argosy::comm
