#include "core/large_blocks.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace argosy::test {
namespace {

constexpr std::size_t mib = 1 << 20;

/// Whether Linux says that the mapping of an address asks for huge pages.
bool asks_for_huge_pages(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t first = 0, last = 0;
    char dash = 0;
    if (words >> std::hex >> first >> dash >> last && dash == '-') is_it = first <= at && at < last;
    if (is_it && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(LargeBlocks, LieOnHugePagesWhereLinuxHasThem) {
  void* const asked = mmap(nullptr, 4 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(asked, MAP_FAILED);
  const bool has_them = madvise(asked, 4 * mib, MADV_HUGEPAGE) == 0 && asks_for_huge_pages(asked);
  munmap(asked, 4 * mib);
  LargeBlocks blocks;
  void* const block = blocks.take(64 * mib);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(asks_for_huge_pages(static_cast<char*>(block) + 32 * mib), has_them);
}

TEST(LargeBlocks, ThatAreNotUsedTakeNoMemory) {
  const auto resident_pages = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, resident = 0;
    file >> all >> resident;
    return resident;
  };
  const std::size_t before = resident_pages();
  LargeBlocks blocks;
  blocks.reserve(4096 * mib);
  EXPECT_NE(blocks.take(2048 * mib), nullptr);
  EXPECT_LT(resident_pages(), before + 16 * mib / 4096);
}

TEST(LargeBlocks, FreedNeighboursBecomeOne) {
  LargeBlocks blocks;
  blocks.reserve(30 * mib);
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}}) {
    void* const all[] = {blocks.take(10 * mib), blocks.take(10 * mib), blocks.take(10 * mib)};
    for (const int i : order) blocks.give_back(all[i], 10 * mib);
    void* const whole = blocks.take(30 * mib);
    EXPECT_EQ(whole, all[0]);
    blocks.give_back(whole, 30 * mib);
  }
}

TEST(LargeBlocks, TheSmallestThatFitsIsTaken) {
  LargeBlocks blocks;
  blocks.reserve(40 * mib);
  void* const wide = blocks.take(8 * mib);
  void* const wall = blocks.take(mib);
  void* const narrow = blocks.take(4 * mib);
  void* const end = blocks.take(mib);
  blocks.give_back(wide, 8 * mib);
  blocks.give_back(narrow, 4 * mib);
  EXPECT_EQ(blocks.take(3 * mib), narrow);
  EXPECT_EQ(blocks.take(8 * mib), wide);
  EXPECT_TRUE(wall != nullptr && end != nullptr);
}

TEST(LargeBlocks, ASystemWithoutMemoryGivesNone) {
  LargeBlocks blocks;
  EXPECT_EQ(blocks.take(std::size_t{1} << 60), nullptr);
  EXPECT_NE(blocks.take(mib), nullptr);
}

TEST(LargeBlocks, OfSeveralThreadsDoNotOverlap) {
  LargeBlocks blocks;
  std::vector<std::thread> threads;
  std::vector<int> broken(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&blocks, &wrong = broken[static_cast<std::size_t>(t)], t] {
      std::mt19937 draw(static_cast<unsigned>(t));
      std::map<std::byte*, std::size_t> held;
      for (int i = 0; i < 2000; ++i) {
        if (held.size() < 20 && draw() % 3 != 0) {
          const std::size_t bytes = 1 + draw() % 100000;
          auto* const block = static_cast<std::byte*>(blocks.take(bytes));
          if (block == nullptr || reinterpret_cast<std::uintptr_t>(block) % 64 != 0) ++wrong;
          std::memset(block, t, bytes);
          held.emplace(block, bytes);
        } else if (!held.empty()) {
          const auto [block, bytes] = *held.begin();
          if (block[0] != std::byte(t) || block[bytes - 1] != std::byte(t)) ++wrong;
          blocks.give_back(block, bytes);
          held.erase(held.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace argosy::test
