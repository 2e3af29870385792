#pragma once

#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/head_loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"

/// The CPU versions of the operators, with the same types as their plain references.
namespace argosy::kernels::cpu {

decltype(plain::norm) norm;
decltype(plain::norm_backward) norm_backward;
decltype(plain::dropout_add) dropout_add;
decltype(plain::activation) activation;
decltype(plain::activation_backward) activation_backward;
decltype(plain::column_sum) column_sum;
decltype(plain::attention) attention;
decltype(plain::attention_backward) attention_backward;
decltype(plain::rope_) rope_;
decltype(plain::embedding) embedding;
decltype(plain::embedding_backward) embedding_backward;
decltype(plain::head_loss) head_loss;
decltype(plain::adamw_) adamw_;
decltype(plain::adamw_stochastic_) adamw_stochastic_;
decltype(plain::ema_) ema_;
decltype(plain::sum_of_squares) sum_of_squares;

}  // namespace argosy::kernels::cpu
