#pragma once

/// Process-wide settings of the C library's allocator for programs that make the same large tensors again and again.
namespace argosy::kernels {

/// Tells glibc to keep freed memory and to take large blocks from the heap: without it each large tensor is mapped,
/// faulted in page by page and unmapped. Call once, before the first tensor. Costs resident memory: the high-water mark
/// is never given back.
void keep_freed_memory();

}  // namespace argosy::kernels
