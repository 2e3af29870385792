#pragma once

#include <cstddef>

/// Settings of the C library's allocator for programs that allocate the same large tensors repeatedly.
namespace argosy {

/// Tells glibc to keep freed memory and to take large blocks from the heap. Without it, each large tensor is mapped,
/// faulted in page by page, and unmapped. Call once, before the first tensor is made. The cost is that the process
/// never returns its peak memory to the system.
void keep_freed_memory();

/// After keep_freed_memory(): the next `bytes` of the heap are on huge pages where Linux gives them to those who ask
/// (transparent_hugepage/enabled: madvise), which saves misses of the address cache. What is not used takes no memory.
/// Linux clears a huge page as a whole when it is first used, so this costs a program more than it saves that ends
/// within seconds.
void prefer_huge_pages(std::size_t bytes);

}  // namespace argosy
