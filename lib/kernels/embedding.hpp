#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "spec/model_config.hpp"

/// Embedding lookup with scale and absolute positions. Its backward pass writes directly into the gradient of the
/// table. Deterministic: occurrences of an id are
/// added in their order.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// table[ids]·scale + position_table[position]. ids: int64 [rows, T]; table: [V, d]; position_table: [P, d] fp32 or
/// absent; positions: int64 [rows, T], absent: offset, offset + 1, …. Returns [rows, T, d] of the table's type.
[[nodiscard]] at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, double scale,
                                   const OptionalTensor& position_table, const OptionalTensor& positions,
                                   std::int64_t offset);

/// dtable[ids] += dx·scale. Without `accumulate`, dtable [V, d] fp32 is overwritten, and rows without an id become
/// zero. Nothing is added to the row `skip_id` (-1: none).
void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id);

/// Sinusoids [positions, width] fp32: sin(p·10000^(-2i/width)) in the first half of the columns, cos in the second;
/// computed in fp64, cast once (the table of HF's Marian). sinusoidal_fairseq: p + 2 for p, exponent -i/(width/2 - 1)
/// (the table of HF's M2M-100).
[[nodiscard]] at::Tensor sinusoids(std::int64_t positions, std::int64_t width,
                                   spec::Position kind = spec::Position::sinusoidal);

namespace plain {
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_backward) embedding_backward;
}  // namespace plain

}  // namespace argosy::kernels
