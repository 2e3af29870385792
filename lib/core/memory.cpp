#include "core/memory.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>

namespace argosy {

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
  mallopt(M_TOP_PAD, 64 << 20);
}

void prefer_huge_pages(std::size_t bytes) {
  constexpr std::size_t page = 2 << 20;
  std::size_t space = bytes + page;
  void* const block = std::malloc(space);  // which makes the heap grow, and stays part of it
  void* first = block;
  if (block != nullptr && std::align(page, bytes, first, space) != nullptr) madvise(first, bytes, MADV_HUGEPAGE);
  std::free(block);
}

}  // namespace argosy
