#include <gtest/gtest.h>

#include <array>

#include "comm/comm.hpp"
#include "comm/topology.hpp"
#include "support/mpi_test.hpp"

/// What a rank hands to MPI and gets from it: nothing grows with the square of the ranks, and what gives one verdict
/// does not grow at all.
namespace argosy::comm {
namespace {

class SentByControl : public testing::Test {
 protected:
  [[nodiscard]] ControlTraffic of(const std::function<void()>& operation) const {
    const ControlTraffic before = world.control_traffic();
    operation();
    return world.control_traffic().since(before);
  }
  [[nodiscard]] std::int64_t both(const std::function<void()>& operation) const {
    const ControlTraffic moved = of(operation);
    return moved.sent_bytes + moved.received_bytes;
  }

  const Communicator& world = argosy::test::world();
  const std::int64_t ranks = world.size();
  const bool alone = world.size() == 1;
};

TEST_F(SentByControl, OfAVerdictDoesNotGrowWithTheRanks) {
  std::array<std::int64_t, 3> counts{};
  std::array<double, 3> times{};
  const ControlTraffic eight{.calls = 1, .sent_bytes = 8, .received_bytes = 8};
  const ControlTraffic nothing;
  EXPECT_EQ(of([&] { (void)any_of(world, true); }), alone ? nothing : eight);
  EXPECT_EQ(of([&] { agree(world, [] {}); }), alone ? nothing : eight);
  EXPECT_EQ(both([&] { world.all_reduce(std::span<std::int64_t>{counts}); }), alone ? 0 : 48);
  EXPECT_EQ(both([&] { world.all_reduce(std::span<double>{times}, Reduce::max); }), alone ? 0 : 48);
  EXPECT_EQ(both([&] { world.barrier("here"); }), alone ? 0 : 32);
  EXPECT_EQ(both([&] { (void)world.broadcast(std::string(100, 'x')); }), alone ? 0 : 16 + 100);
}

/// Sums in rank order and gathers for one rank are in the ranks there alone; what all get is once its size everywhere.
TEST_F(SentByControl, OfSumsTextsAndValuesIsOnceTheirSizeAndEightBytesARank) {
  std::array<double, 10> sums{};
  const std::string text(100, 'x');
  const std::int64_t at_root = world.rank() == 0 ? ranks : 0;
  const auto sent = [&](const std::function<void()>& operation, std::int64_t expected) {
    EXPECT_EQ(both(operation), alone ? 0 : expected);
  };
  sent([&] { world.all_reduce(std::span<double>{sums}); }, 80 + 80 * at_root + 80);
  sent([&] { (void)world.all_gather(text); }, 16 + 8 + 8 * ranks + 100 + 100 * ranks);
  sent([&] { (void)world.all_gather(std::int64_t{7}); }, 8 + 8 * ranks);
  sent([&] { (void)world.gather(text); }, 16 + 8 + 100 + (8 + 100) * at_root);
}

TEST_F(SentByControl, OfATopologyIsLinearInTheRanks) {
  EXPECT_LE(both([&] { (void)Topology::discover(world); }), 16 + 8 + 8 * ranks);
}

}  // namespace
}  // namespace argosy::comm
