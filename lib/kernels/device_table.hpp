#pragma once

#include "kernels/attention.hpp"
#include "kernels/decoding.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "kernels/head_loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"

/// Which function computes an operation on a device. The functions of the headers look it up by the device of a tensor.
/// Torch's dispatcher is not used: the model writes its backward passes itself, below autograd.
namespace argosy::kernels {

/// An operation without a kernel for the device is the plain reference.
struct DeviceTable {
  PackMatrix* pack_matrix = plain::pack_matrix;
  Gemm* gemm = plain::gemm;
  decltype(&kernels::norm) norm = plain::norm;
  decltype(&kernels::norm_backward) norm_backward = plain::norm_backward;
  decltype(&kernels::dropout_add) dropout_add = plain::dropout_add;
  decltype(&kernels::add_noise_) add_noise_ = plain::add_noise_;
  decltype(&kernels::activation) activation = plain::activation;
  decltype(&kernels::activation_backward) activation_backward = plain::activation_backward;
  decltype(&kernels::column_sum) column_sum = plain::column_sum;
  decltype(&kernels::attention) attention = plain::attention;
  decltype(&kernels::attention_backward) attention_backward = plain::attention_backward;
  decltype(&kernels::rope_) rope_ = plain::rope_;
  decltype(&kernels::attention_step) attention_step = plain::attention_step;
  decltype(&kernels::top_log_probabilities) top_log_probabilities = plain::top_log_probabilities;
  decltype(&kernels::embedding) embedding = plain::embedding;
  decltype(&kernels::embedding_backward) embedding_backward = plain::embedding_backward;
  decltype(&kernels::head_loss) head_loss = plain::head_loss;
  decltype(&kernels::adamw_) adamw_ = plain::adamw_;
  decltype(&kernels::adamw_stochastic_) adamw_stochastic_ = plain::adamw_stochastic_;
  decltype(&kernels::ema_) ema_ = plain::ema_;
  decltype(&kernels::sum_of_squares) sum_of_squares = plain::sum_of_squares;
};

namespace cpu {
PackMatrix pack_matrix;
Gemm gemm;
decltype(kernels::norm) norm;
decltype(kernels::norm_backward) norm_backward;
decltype(kernels::dropout_add) dropout_add;
decltype(kernels::add_noise_) add_noise_;
decltype(kernels::activation) activation;
decltype(kernels::activation_backward) activation_backward;
decltype(kernels::column_sum) column_sum;
decltype(kernels::attention) attention;
decltype(kernels::attention_backward) attention_backward;
decltype(kernels::rope_) rope_;
decltype(kernels::attention_step) attention_step;
decltype(kernels::top_log_probabilities) top_log_probabilities;
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_backward) embedding_backward;
decltype(kernels::head_loss) head_loss;
decltype(kernels::adamw_) adamw_;
decltype(kernels::adamw_stochastic_) adamw_stochastic_;
decltype(kernels::ema_) ema_;
decltype(kernels::sum_of_squares) sum_of_squares;
}  // namespace cpu

namespace cuda {
Gemm gemm;
decltype(kernels::norm) norm;
decltype(kernels::norm_backward) norm_backward;
decltype(kernels::dropout_add) dropout_add;
decltype(kernels::add_noise_) add_noise_;
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
}  // namespace cuda

}  // namespace argosy::kernels
