#include "core/large_blocks.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace argosy {
namespace {

constexpr std::size_t unit = 64, huge_page = 2 << 20, smallest_mapping = 256 << 20;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void LargeBlocks::reserve(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const bool has_it = !by_size_.empty() && by_size_.rbegin()->first >= bytes;
  if (!has_it) (void)map_more(bytes);
}

void* LargeBlocks::take(std::size_t bytes) {
  bytes = round_up(bytes, unit);
  const std::scoped_lock lock(mutex_);
  auto best = by_size_.lower_bound({bytes, nullptr});
  if (best == by_size_.end()) {
    if (!map_more(std::max(bytes, smallest_mapping))) return nullptr;
    best = by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, first] = *best;
  erase_free(free_.find(first));
  if (size > bytes) add_free(first + bytes, size - bytes);
  return first;
}

void LargeBlocks::give_back(void* block, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  add_free(static_cast<std::byte*>(block), round_up(bytes, unit));
}

bool LargeBlocks::map_more(std::size_t bytes) {
  bytes = round_up(bytes, huge_page) + huge_page;  // one more, since the mapping may begin in the middle of one
  void* const mapping =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return false;
  madvise(mapping, bytes, MADV_HUGEPAGE);  // may fail: Linux without huge pages
  add_free(static_cast<std::byte*>(mapping), bytes);
  return true;
}

void LargeBlocks::add_free(std::byte* first, std::size_t bytes) {
  auto next = free_.lower_bound(first);
  if (next != free_.end() && first + bytes == next->first) {
    bytes += next->second;
    erase_free(next++);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      bytes += before->second;
      erase_free(before);
    }
  }
  free_.emplace(first, bytes);
  by_size_.emplace(bytes, first);
}

void LargeBlocks::erase_free(std::map<std::byte*, std::size_t>::iterator at) {
  by_size_.erase({at->second, at->first});
  free_.erase(at);
}

}  // namespace argosy
