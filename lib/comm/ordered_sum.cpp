#include "comm/ordered_sum.hpp"

#include <algorithm>
#include <cstring>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace argosy::comm {
namespace {

constexpr std::int64_t block = 4096;  // elements; the running sum stays in the first-level cache

// Several terms in one pass over `out`: memory is read and written once where the terms come from the cache. `out` may
// be a term, which is why each element is read before it is written and no pointer is restrict.
ARGOSY_WIDEST void sum2(const float* a, const float* b, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
ARGOSY_WIDEST void sum3(const float* a, const float* b, const float* c, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + c[i];
}
ARGOSY_WIDEST void sum2_bf16(const std::uint16_t* a, const std::uint16_t* b, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = f32_from_bf16(a[i]) + f32_from_bf16(b[i]);
}
ARGOSY_WIDEST void add_bf16(const std::uint16_t* a, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] += f32_from_bf16(a[i]);
}
ARGOSY_WIDEST void widen(const std::uint16_t* a, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = f32_from_bf16(a[i]);
}
ARGOSY_WIDEST void round_all(const float* from, std::uint16_t* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = bf16_from_f32(from[i]);
}

template <class T>
const T* at(const std::byte* term, std::int64_t element) {
  return reinterpret_cast<const T*>(term) + element;
}

void sum_f32(std::span<const std::byte* const> terms, float* out, std::int64_t begin, std::int64_t n) {
  const auto term = [&](std::size_t k) { return at<float>(terms[k], begin); };
  // `out` may be a later term, which the first pass would overwrite: sum in a block of its own, then move it over.
  alignas(64) float sum[block];
  std::size_t next = 2;
  if (terms.size() == 2) return sum2(term(0), term(1), out + begin, n);
  if (terms.size() == 3) return sum3(term(0), term(1), term(2), out + begin, n);
  sum2(term(0), term(1), sum, n);
  for (; next + 2 < terms.size(); next += 2) sum3(sum, term(next), term(next + 1), sum, n);
  if (next + 2 == terms.size()) return sum3(sum, term(next), term(next + 1), out + begin, n);
  sum2(sum, term(next), out + begin, n);
}

void sum_bf16(std::span<const std::byte* const> terms, float* out, std::int64_t begin, std::int64_t n) {
  sum2_bf16(at<std::uint16_t>(terms[0], begin), at<std::uint16_t>(terms[1], begin), out + begin, n);
  for (std::size_t k = 2; k < terms.size(); ++k) add_bf16(at<std::uint16_t>(terms[k], begin), out + begin, n);
}

}  // namespace

void ordered_sum(DType dtype, std::span<const std::byte* const> terms, float* out, std::int64_t elements) {
  ARGOSY_CHECK(!terms.empty() && (dtype == DType::f32 || dtype == DType::bf16), "{} terms of {}", terms.size(),
               name_of(dtype));
  if (terms.size() == 1) {
    if (dtype == DType::bf16) return widen(at<std::uint16_t>(terms[0], 0), out, elements);
    if (terms[0] != reinterpret_cast<std::byte*>(out))
      std::memcpy(out, terms[0], static_cast<std::size_t>(elements) * sizeof(float));
    return;
  }
  for (std::int64_t begin = 0; begin < elements; begin += block) {
    const std::int64_t n = std::min(block, elements - begin);
    dtype == DType::f32 ? sum_f32(terms, out, begin, n) : sum_bf16(terms, out, begin, n);
  }
}

void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t elements) { round_all(from, to, elements); }

}  // namespace argosy::comm
