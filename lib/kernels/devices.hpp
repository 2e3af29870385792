#pragma once

#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/head_loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/stochastic.hpp"

/// The functions that compute operations on one kind of device. Those of the headers choose among them, by the device
/// of a tensor; an operation without a kernel for the device is the plain reference. Torch's dispatcher is not used:
/// the model writes its backward passes itself, below autograd.
namespace argosy::kernels {

[[nodiscard]] AdamwFactors adamw_factors(const AdamwOptions& options);

namespace cpu {
decltype(kernels::norm) norm;
decltype(kernels::norm_backward) norm_backward;
decltype(kernels::dropout_add) dropout_add;
decltype(kernels::activation) activation;
decltype(kernels::activation_backward) activation_backward;
decltype(kernels::column_sum) column_sum;
decltype(kernels::attention) attention;
decltype(kernels::attention_backward) attention_backward;
decltype(kernels::rope_) rope_;
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_backward) embedding_backward;
decltype(kernels::head_loss) head_loss;
decltype(kernels::adamw_) adamw_;
decltype(kernels::adamw_stochastic_) adamw_stochastic_;
decltype(kernels::ema_) ema_;
decltype(kernels::sum_of_squares) sum_of_squares;
}  // namespace cpu

namespace cuda {
decltype(kernels::adamw_stochastic_) adamw_stochastic_;
}  // namespace cuda

}  // namespace argosy::kernels
