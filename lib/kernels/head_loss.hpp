#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

/// Output projection and label-smoothed cross-entropy as one operation. Rows that bear no loss are
/// left out before the GEMM. Logits exist for one chunk of rows at a time, and their gradient replaces them in place.
/// The gradients of input, weight and bias are written in the same pass (arXiv:2410.10989). Dead ids (>= live) have no
/// column, which equals a logit of -1e4.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

struct HeadLossOptions {
  double label_smoothing = 0, z = 0;
  double truncation = 0;  // threshold of the error norm; 0: none
  double loss_scale = 1;  // multiplies every gradient
  std::int64_t live = 0;  // ids below are live
  std::int64_t chunk_bytes = 256LL << 20;
};

/// What is written. An absent one is not computed.
struct HeadLossOutputs {
  OptionalTensor dh;                  // [n, d], type of h; rows without loss become 0
  OptionalTensor dweight{}, dbias{};  // [V, d], [V] fp32
  bool accumulate_weight = false, accumulate_bias = false;
  OptionalTensor nll{};  // [n] fp64: of each row; 0 of rows without loss
};

/// Per loss-bearing row: nll = lse - z_y; loss = (1-ε)·nll + ε·(lse - mean over live ids of z) + z·lse².
/// With `truncation`, a row whose error norm ‖p - onehot(y)‖₂ is above it adds nothing to Σ loss and to the gradients
/// (arXiv:2310.00840). The norm is at most √2.
/// h: [n, d]; weight: [V, d]; bias: [V] or absent; labels: int64 [n], -1 bears no loss.
/// Returns fp64 [5]: Σ nll, Σ loss, rows that bear loss, rows predicted correctly (ties go to the lower id), rows that
/// are truncated.
[[nodiscard]] at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                                   const at::Tensor& labels, const HeadLossOptions& options,
                                   const HeadLossOutputs& outputs);

namespace plain {
decltype(kernels::head_loss) head_loss;
}  // namespace plain

}  // namespace argosy::kernels
