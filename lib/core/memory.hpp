#pragma once

/// Settings of the C library's allocator.
namespace argosy {

/// Tells glibc to keep freed memory and to take large blocks from the heap. Without it, each large buffer is mapped,
/// faulted in page by page, and unmapped. The cost is that the process never returns its peak memory to the system.
void keep_freed_memory();

}  // namespace argosy
