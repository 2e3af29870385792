#include "core/denormals.hpp"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace argosy {

void flush_denormals() {
#ifdef __SSE__
  constexpr unsigned flush_results = 0x8000, operands_are_zeros = 0x40;
  _mm_setcsr(_mm_getcsr() | flush_results | operands_are_zeros);
#endif
}

}  // namespace argosy
