#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

/// Memory for blocks that are large and that a program makes and frees again and again, such as tensors.
namespace argosy {

/// Keeps what is freed, so that the system neither clears nor maps it again. Nothing small lies between the blocks, so
/// that the memory of freed ones joins and fits others: the C library's heap took a fifth more for a training. The
/// memory lies on huge pages where Linux gives them to those who ask (transparent_hugepage/enabled: madvise), which
/// saves misses of the address cache. Safe from any thread. It is never returned to the system.
class LargeBlocks {
 public:
  /// Makes room for `bytes` in one piece. What is not used takes no memory. Without it, room is made as it is needed.
  void reserve(std::size_t bytes);
  /// A block, at a multiple of 64; null if the system has no memory.
  [[nodiscard]] void* take(std::size_t bytes);
  /// Of a block from take(), with its size.
  void give_back(void* block, std::size_t bytes);

 private:
  [[nodiscard]] bool map_more(std::size_t bytes);
  void add_free(std::byte* first, std::size_t bytes);
  void erase_free(std::map<std::byte*, std::size_t>::iterator at);

  std::mutex mutex_;
  std::map<std::byte*, std::size_t> free_;                // no two of them are neighbours
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same
};

}  // namespace argosy
