#pragma once

#include "comm/ordered_sum.hpp"

namespace argosy::comm {

/// ordered_sum in one plain loop.
inline void ordered_sum_reference(DType dtype, std::span<const std::byte* const> terms, float* out,
                                  std::int64_t elements) {
  const auto value = [&](std::size_t term, std::int64_t i) {
    return dtype == DType::bf16 ? f32_from_bf16(reinterpret_cast<const std::uint16_t*>(terms[term])[i])
                                : reinterpret_cast<const float*>(terms[term])[i];
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    float sum = value(0, i);
    for (std::size_t term = 1; term < terms.size(); ++term) sum += value(term, i);
    out[i] = sum;
  }
}

}  // namespace argosy::comm
