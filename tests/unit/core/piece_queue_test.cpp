#include "core/piece_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

namespace argosy {
namespace {

using namespace std::chrono_literals;

/// Puts texts of the numbers below `count`, each at ten times its number.
void put_numbers(PieceQueue& queue, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text(i % 7 + 1, static_cast<char>('a' + i % 26));
    const MutableBytes room = queue.room(text.size());
    std::memcpy(room.data(), text.data(), text.size());
    queue.put(10 * i);
  }
}

TEST(PieceQueue, EveryStageSeesEveryPieceInOrder) {
  constexpr std::uint64_t count = 500;
  std::vector<std::string> seen(3);
  std::vector<std::vector<std::uint64_t>> offsets(3);
  std::vector<PieceQueue::Stage> stages;
  for (std::size_t stage = 0; stage < seen.size(); ++stage) {
    stages.emplace_back([&, stage](std::uint64_t offset, Bytes bytes) {
      offsets[stage].push_back(offset);
      seen[stage].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (offset % 3 == stage) std::this_thread::sleep_for(10us);  // none is always the slowest
    });
  }
  PieceQueue queue{std::move(stages), 3};
  put_numbers(queue, count);
  queue.finish();
  std::string wanted;
  for (std::uint64_t i = 0; i < count; ++i) wanted.append(i % 7 + 1, static_cast<char>('a' + i % 26));
  for (std::size_t stage = 0; stage < seen.size(); ++stage) {
    EXPECT_EQ(seen[stage], wanted) << stage;
    ASSERT_EQ(offsets[stage].size(), count) << stage;
    EXPECT_EQ(offsets[stage].back(), 10 * (count - 1)) << stage;
  }
}

TEST(PieceQueue, HoldsNoMorePiecesThanItMay) {
  std::atomic<int> put = 0, most = 0, done = 0;
  PieceQueue queue{{[&](std::uint64_t, Bytes) {
                     std::this_thread::sleep_for(1ms);
                     most = std::max<int>(most, put - done);
                     ++done;
                   }},
                   2};
  for (int i = 0; i < 50; ++i) {
    (void)queue.room(1);
    ++put;  // counts the one that is being filled
    queue.put(0);
  }
  queue.finish();
  EXPECT_EQ(done, 50);
  EXPECT_LE(most, 2);
}

TEST(PieceQueue, TheCallerGetsWhatAStageThrows) {
  std::atomic<int> seen = 0;
  PieceQueue queue{{[&](std::uint64_t, Bytes) { ++seen; },
                    [](std::uint64_t offset, Bytes) {
                      if (offset == 20) throw std::runtime_error("the disk is full");
                    }},
                   2};
  EXPECT_THROW(put_numbers(queue, 1'000'000), std::runtime_error);
  EXPECT_THROW(queue.finish(), std::runtime_error);
  EXPECT_THROW((void)queue.room(1), std::runtime_error);
  EXPECT_LE(seen, 5);
}

TEST(PieceQueue, EndsWithPiecesThatNoStageHasBegun) {
  std::atomic<int> seen = 0;
  {
    PieceQueue queue{{[&](std::uint64_t, Bytes) {
                       std::this_thread::sleep_for(20ms);
                       ++seen;
                     }},
                     8};
    put_numbers(queue, 8);
  }
  EXPECT_LT(seen, 8);
}

}  // namespace
}  // namespace argosy
