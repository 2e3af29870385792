#include "core/memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have an allocator of their own
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

TEST(Memory, LiesOnHugePagesWhereLinuxHasThem) {
  void* const asked = mmap(nullptr, 4 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(asked, MAP_FAILED);
  const bool has_them = madvise(asked, 4 * mib, MADV_HUGEPAGE) == 0 && asks_for_huge_pages(asked);
  munmap(asked, 4 * mib);
  keep_freed_memory();
  prefer_huge_pages(1 << 30);
  void* const block = std::malloc(512 * mib);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(asks_for_huge_pages(static_cast<char*>(block) + 256 * mib), has_them);
  void* const behind = std::malloc(3072 * mib);
  ASSERT_NE(behind, nullptr);
  EXPECT_FALSE(asks_for_huge_pages(static_cast<char*>(behind) + 2048 * mib));
  std::free(behind);
  prefer_huge_pages(3072 * mib);
  void* const again = std::malloc(3072 * mib);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(asks_for_huge_pages(static_cast<char*>(again) + 2048 * mib), has_them);
  std::free(again);
  std::free(block);
}

TEST(Memory, ThatIsNotUsedTakesNone) {
  const auto resident_pages = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, resident = 0;
    file >> all >> resident;
    return resident;
  };
  const std::size_t before = resident_pages();
  prefer_huge_pages(4096 * mib);
  EXPECT_LT(resident_pages(), before + 16 * mib / 4096);
}

}  // namespace
}  // namespace argosy::test
#endif
