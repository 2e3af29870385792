#include "kernels/device_table.hpp"

#include "core/error.hpp"
#include "kernels/profile.hpp"

namespace argosy::kernels {
namespace {

constexpr DeviceTable cpu_table{.pack_matrix = cpu::pack_matrix,
                                .gemm = cpu::gemm,
                                .norm = cpu::norm,
                                .norm_backward = cpu::norm_backward,
                                .dropout_add = cpu::dropout_add,
                                .add_noise_ = cpu::add_noise_,
                                .activation = cpu::activation,
                                .activation_backward = cpu::activation_backward,
                                .column_sum = cpu::column_sum,
                                .attention = cpu::attention,
                                .attention_backward = cpu::attention_backward,
                                .rope_ = cpu::rope_,
                                .attention_step = cpu::attention_step,
                                .top_log_probabilities = cpu::top_log_probabilities,
                                .embedding = cpu::embedding,
                                .embedding_backward = cpu::embedding_backward,
                                .head_loss = cpu::head_loss,
                                .adamw_ = cpu::adamw_,
                                .adamw_stochastic_ = cpu::adamw_stochastic_,
                                .ema_ = cpu::ema_,
                                .sum_of_squares = cpu::sum_of_squares};
constexpr DeviceTable cuda_table{.gemm = cuda::gemm,
                                 .norm = cuda::norm,
                                 .norm_backward = cuda::norm_backward,
                                 .dropout_add = cuda::dropout_add,
                                 .add_noise_ = cuda::add_noise_,
                                 .activation = cuda::activation,
                                 .activation_backward = cuda::activation_backward,
                                 .column_sum = cuda::column_sum,
                                 .attention = cuda::attention,
                                 .attention_backward = cuda::attention_backward,
                                 .rope_ = cuda::rope_,
                                 .embedding = cuda::embedding,
                                 .embedding_backward = cuda::embedding_backward,
                                 .head_loss = cuda::head_loss,
                                 .adamw_ = cuda::adamw_,
                                 .adamw_stochastic_ = cuda::adamw_stochastic_,
                                 .ema_ = cuda::ema_,
                                 .sum_of_squares = cuda::sum_of_squares};

const DeviceTable& table_for(const at::Tensor& tensor) { return tensor.is_cpu() ? cpu_table : cuda_table; }

/// Calls the function, which the profile knows by that name.
template <class Result, class... Parameters, class... Arguments>
Result run(const char* name, Result (*function)(Parameters...), const Arguments&... arguments) {
  Profile::Call call(name);
  (call.add(arguments), ...);
  if constexpr (std::is_void_v<Result>) {
    function(arguments...);
  } else {
    Result result = function(arguments...);
    call.add(result);
    return result;
  }
}

}  // namespace

PackedMatrix pack_matrix(const at::Tensor& matrix, PackedType type) {
  return run("pack_matrix", table_for(matrix).pack_matrix, matrix, type);
}

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  ARGOSY_CHECK(a.dim() == 2 && c.dim() == 2 && a.size(1) == b.rows && c.size(0) == a.size(0) && c.size(1) == b.columns,
               "a product [{}, {}] of {} columns and [{}, {}]", c.size(0), c.size(1), a.size(1), b.rows, b.columns);
  Profile::Call call("gemm");
  call.add_flops(2.0 * static_cast<double>(a.size(0)) * static_cast<double>(b.rows) * static_cast<double>(b.columns));
  table_for(a).gemm(a, b, c, options);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x, const at::Tensor& weight,
                                                    const OptionalTensor& bias, double epsilon, bool rms) {
  return run("norm", table_for(x).norm, x, weight, bias, epsilon, rms);
}

at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
                         const at::Tensor& rstd, const OptionalTensor& add, const OptionalTensor& dweight,
                         const OptionalTensor& dbias, bool accumulate, bool rms) {
  return run("norm_backward", table_for(x).norm_backward, dy, x, weight, mean, rstd, add, dweight, dbias, accumulate,
             rms);
}

at::Tensor dropout_add(const OptionalTensor& base, const at::Tensor& branch, double p, const DropoutKey& key,
                       const OptionalTensor& bias) {
  return run("dropout_add", table_for(branch).dropout_add, base, branch, p, key, bias);
}

void add_noise_(const at::Tensor& x, const at::Tensor& scales, const DropoutKey& key) {
  run("add_noise", table_for(x).add_noise_, x, scales, key);
}

void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind) {
  run("activation", table_for(u).activation, u, bias, y, kind);
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& saved, spec::Activation kind,
                               const OptionalTensor& dbias, bool accumulate, const OptionalTensor& activated) {
  return run("activation_backward", table_for(dy).activation_backward, dy, saved, kind, dbias, accumulate, activated);
}

void column_sum(const at::Tensor& x, const at::Tensor& out, bool accumulate) {
  run("column_sum", table_for(x).column_sum, x, out, accumulate);
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  return run("attention", table_for(q).attention, q, k, v, mask, scale);
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  run("attention_backward", table_for(q).attention_backward, dout, q, k, v, out, lse, mask, scale, dq, dk, dv, dbias);
}

void rope_(const at::Tensor& x, const OptionalTensor& positions, std::int64_t offset, const at::Tensor& waves,
           bool inverse) {
  run("rope", table_for(x).rope_, x, positions, offset, waves, inverse);
}

at::Tensor attention_step(const at::Tensor& q, const OptionalTensor& added, const CachedKeys& keys, std::int64_t window,
                          double scale, const OptionalTensor& bias) {
  return run("attention_step", table_for(q).attention_step, q, added, keys, window, scale, bias);
}

std::tuple<at::Tensor, at::Tensor> top_log_probabilities(const at::Tensor& logits, std::int64_t live,
                                                         std::int64_t count) {
  return run("top_log_probabilities", table_for(logits).top_log_probabilities, logits, live, count);
}

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, double scale, const OptionalTensor& position_table,
                     const OptionalTensor& positions, std::int64_t offset) {
  return run("embedding", table_for(table).embedding, ids, table, scale, position_table, positions, offset);
}

void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id) {
  run("embedding_backward", table_for(dx).embedding_backward, dx, ids, scale, dtable, accumulate, skip_id);
}

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels, const HeadLossOptions& options, const HeadLossOutputs& gradients) {
  return run("head_loss", table_for(h).head_loss, h, weight, bias, labels, options, gradients);
}

void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options) {
  run("adamw", table_for(master).adamw_, master, m, v, gradient, weights, coefficient, options);
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  run("adamw_stochastic", table_for(weights).adamw_stochastic_, weights, m, v, gradient, coefficient, options,
      rounding);
}

void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  run("ema", table_for(mean).ema_, mean, values, coefficient, decay);
}

at::Tensor sum_of_squares(const at::Tensor& x) { return run("sum_of_squares", table_for(x).sum_of_squares, x); }

}  // namespace argosy::kernels
