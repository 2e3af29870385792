#pragma once

#include <cstdint>
#include <span>

#include "core/bytes.hpp"

/// The sum over ranks, on raw spans of host memory: fp32, term by term in the order given, so equal terms give equal
/// bits on any machine. bf16 terms are widened first. Pure; safe from any thread.
namespace argosy::comm {

/// out[i] = ((terms[0][i] + terms[1][i]) + terms[2][i]) + … ; terms: at least one, each [elements] of `dtype` (f32 or
/// bf16); out: [elements] fp32, may be one of the terms when they are fp32.
void ordered_sum(DType dtype, std::span<const std::byte* const> terms, float* out, std::int64_t elements);

/// Rounds to the nearest bf16 (ties to even).
void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t elements);

}  // namespace argosy::comm
