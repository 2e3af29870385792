#include "kernels/devices.hpp"

#include <cmath>

namespace argosy::kernels {

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x, const at::Tensor& weight,
                                                    const OptionalTensor& bias, double epsilon, bool rms) {
  return (x.is_cpu() ? cpu::norm : plain::norm)(x, weight, bias, epsilon, rms);
}

at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
                         const at::Tensor& rstd, const OptionalTensor& add, const OptionalTensor& dweight,
                         const OptionalTensor& dbias, bool accumulate, bool rms) {
  return (x.is_cpu() ? cpu::norm_backward : plain::norm_backward)(dy, x, weight, mean, rstd, add, dweight, dbias,
                                                                  accumulate, rms);
}

at::Tensor dropout_add(const OptionalTensor& base, const at::Tensor& branch, double p, const DropoutKey& key,
                       const OptionalTensor& bias) {
  return (branch.is_cpu() ? cpu::dropout_add : plain::dropout_add)(base, branch, p, key, bias);
}

void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind) {
  (u.is_cpu() ? cpu::activation : plain::activation)(u, bias, y, kind);
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& saved, spec::Activation kind,
                               const OptionalTensor& dbias, bool accumulate, const OptionalTensor& activated) {
  return (dy.is_cpu() ? cpu::activation_backward : plain::activation_backward)(dy, saved, kind, dbias, accumulate,
                                                                               activated);
}

void column_sum(const at::Tensor& x, const at::Tensor& out, bool accumulate) {
  (x.is_cpu() ? cpu::column_sum : plain::column_sum)(x, out, accumulate);
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  return (q.is_cpu() ? cpu::attention : plain::attention)(q, k, v, mask, scale);
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  (q.is_cpu() ? cpu::attention_backward : plain::attention_backward)(dout, q, k, v, out, lse, mask, scale, dq, dk, dv);
}

void rope_(const at::Tensor& x, const OptionalTensor& positions, std::int64_t offset, double theta, bool inverse) {
  (x.is_cpu() ? cpu::rope_ : plain::rope_)(x, positions, offset, theta, inverse);
}

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, double scale, const OptionalTensor& position_table,
                     const OptionalTensor& positions, std::int64_t offset) {
  return (table.is_cpu() ? cpu::embedding : plain::embedding)(ids, table, scale, position_table, positions, offset);
}

void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id) {
  (dx.is_cpu() ? cpu::embedding_backward : plain::embedding_backward)(dx, ids, scale, dtable, accumulate, skip_id);
}

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels, const HeadLossOptions& options, const HeadLossGradients& gradients) {
  return (h.is_cpu() ? cpu::head_loss : plain::head_loss)(h, weight, bias, labels, options, gradients);
}

AdamwFactors adamw_factors(const AdamwOptions& options) {
  const auto& [lr, beta1, beta2, epsilon, weight_decay, step] = options;
  const auto t = static_cast<double>(step);
  return {.beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .new_m = static_cast<float>(1 - beta1),
          .new_v = static_cast<float>(1 - beta2),
          .epsilon = static_cast<float>(epsilon),
          .keep = static_cast<float>(1 - lr * weight_decay),
          .rate = static_cast<float>(lr / (1 - std::pow(beta1, t))),
          .spread = static_cast<float>(1 / (1 - std::pow(beta2, t)))};
}

void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options) {
  (master.is_cpu() ? cpu::adamw_ : plain::adamw_)(master, m, v, gradient, weights, coefficient, options);
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  (weights.is_cpu() ? cpu::adamw_stochastic_ : cuda::adamw_stochastic_)(weights, m, v, gradient, coefficient, options,
                                                                        rounding);
}

void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  (mean.is_cpu() ? cpu::ema_ : plain::ema_)(mean, values, coefficient, decay);
}

at::Tensor sum_of_squares(const at::Tensor& x) { return (x.is_cpu() ? cpu::sum_of_squares : plain::sum_of_squares)(x); }

}  // namespace argosy::kernels
