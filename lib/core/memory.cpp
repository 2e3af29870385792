#include "core/memory.hpp"

#include <malloc.h>

namespace argosy {

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace argosy
