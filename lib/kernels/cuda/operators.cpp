// The host part of operators that have a kernel in the CUDA plug-in: checks and memory, then the call of the plug-in.
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sort.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>

#include "kernels/cuda/start.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cuda {

void run_entry(int (*entry)(const void* call, void* stream), const void* call, const char* name,
               const at::Tensor& place) {
  const c10::DeviceGuard on(place.device());
  void* stream = nullptr;  // that of host memory, where tests run the kernels
  if (place.is_cuda()) stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(place.device()).native_handle();
  if (const int code = entry(call, stream); code != 0)
    throw_error(Fault::device, name, "the CUDA kernel to start", "CUDA error " + std::to_string(code));
}

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  if (b.scales.defined() || (options.accumulate && options.bias)) return plain::gemm(a, b, c, options);
  at::Tensor out = c;
  const OptionalTensor added = options.accumulate ? OptionalTensor(c) : options.bias;
  if (c.scalar_type() == a.scalar_type()) {
    added ? at::addmm_out(out, *added, a, b.data) : at::mm_out(out, a, b.data);
  } else {  // the product itself writes fp32
    added ? at::addmm_out(out, *added, a, b.data, c.scalar_type()) : at::mm_out(out, a, b.data, c.scalar_type());
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x_in, const at::Tensor& weight,
                                                    const OptionalTensor& bias, double epsilon, bool rms) {
  const at::Tensor x = x_in.contiguous();
  const std::int64_t rows = x.size(0), width = x.size(1);
  const auto type = x.scalar_type(), statistic = at::kFloat;
  at::Tensor y = at::empty_like(x), mean = at::empty({rms ? 0 : rows}, x.options().dtype(statistic)),
             rstd = at::empty({rows}, mean.options());
  start(NormCall{.x = x.const_data_ptr(),
                 .weight = values_of(weight, type),
                 .bias = values_of(bias, type),
                 .y = y.mutable_data_ptr(),
                 .mean = rms ? nullptr : floats_of(mean),
                 .rstd = floats_of(rstd),
                 .rows = rows,
                 .width = width,
                 .epsilon = static_cast<float>(epsilon),
                 .bf16 = is_bf16(x)},
        x);
  return {y, mean, rstd};
}

at::Tensor norm_backward(const at::Tensor& dy_in, const at::Tensor& x_in, const at::Tensor& weight,
                         const at::Tensor& mean, const at::Tensor& rstd, const OptionalTensor& add_in,
                         const OptionalTensor& dweight, const OptionalTensor& dbias, bool accumulate, bool rms) {
  const at::Tensor dy = dy_in.contiguous(), x = x_in.contiguous();
  const OptionalTensor add = add_in ? OptionalTensor(add_in->contiguous()) : std::nullopt;
  const std::int64_t rows = x.size(0), width = x.size(1);
  const auto type = x.scalar_type();
  at::Tensor dx = at::empty_like(x);
  const at::Tensor parts = at::empty({norm_parts(rows), norm_sums(dweight.has_value(), dbias.has_value()), width},
                                     x.options().dtype(at::kFloat));
  start(NormBackwardCall{.dy = values_of(dy, type),
                         .x = x.const_data_ptr(),
                         .weight = values_of(weight, type),
                         .add = values_of(add, type),
                         .dx = dx.mutable_data_ptr(),
                         .mean = rms ? nullptr : floats_of(mean),
                         .rstd = floats_of(rstd),
                         .parts = floats_of(parts),
                         .dweight = floats_of(dweight),
                         .dbias = floats_of(dbias),
                         .rows = rows,
                         .width = width,
                         .accumulate = accumulate,
                         .bf16 = is_bf16(x)},
        x);
  return dx;
}

void column_sum(const at::Tensor& x_in, const at::Tensor& out, bool accumulate) {
  const at::Tensor x = x_in.stride(1) == 1 ? x_in : x_in.contiguous();
  ARGOSY_CHECK(out.is_contiguous(), "column_sum writes to a whole row");
  const at::Tensor parts = at::empty({column_parts(x.size(0)), x.size(1)}, x.options().dtype(at::kFloat));
  start(ColumnSumCall{.x = x.const_data_ptr(),
                      .parts = floats_of(parts),
                      .out = floats_of(out),
                      .rows = x.size(0),
                      .width = x.size(1),
                      .stride = x.stride(0),
                      .accumulate = accumulate,
                      .bf16 = is_bf16(x)},
        x);
}

namespace {

RandomCounter counter_of(const DropoutKey& key) {
  return {key.seed, static_cast<std::uint32_t>(key.site), static_cast<std::uint32_t>(key.step),
          static_cast<std::uint32_t>(key.micro_batch)};
}

}  // namespace

at::Tensor dropout_add(const OptionalTensor& base_in, const at::Tensor& branch_in, double p, const DropoutKey& key,
                       const OptionalTensor& bias) {
  const at::Tensor branch = branch_in.contiguous();
  const OptionalTensor base = base_in ? OptionalTensor(base_in->contiguous()) : std::nullopt;
  const auto type = branch.scalar_type();
  at::Tensor y = at::empty_like(branch);
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  start(DropoutAddCall{.base = values_of(base, type),
                       .branch = branch.const_data_ptr(),
                       .bias = values_of(bias, type),
                       .y = y.mutable_data_ptr(),
                       .n = branch.numel(),
                       .width = branch.size(-1),
                       .threshold = threshold,
                       .scale = static_cast<float>(65536.0 / (65536.0 - threshold)),
                       .random = counter_of(key),
                       .bf16 = is_bf16(branch)},
        branch);
  return y;
}

void add_noise_(const at::Tensor& x, const at::Tensor& scales, const DropoutKey& key) {
  const std::int64_t n = x.numel(), width = x.size(-1);
  ARGOSY_CHECK(x.is_contiguous() && scales.is_contiguous() && scales.numel() * width == n,
               "{} scales for {} elements in rows of {}", scales.numel(), n, width);
  start(AddNoiseCall{.x = x.mutable_data_ptr(),
                     .scales = floats_of(scales),
                     .n = n,
                     .width = width,
                     .random = counter_of(key),
                     .bf16 = is_bf16(x)},
        x);
}

void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind) {
  ARGOSY_CHECK(u.is_contiguous() && y.is_contiguous(), "activation works on whole rows");
  start(ActivationCall{.u = u.mutable_data_ptr(),
                       .bias = values_of(bias, u.scalar_type()),
                       .y = values_of(y, u.scalar_type()),
                       .rows = u.size(0),
                       .width = y.size(1),
                       .kind = static_cast<std::int64_t>(kind),
                       .bf16 = is_bf16(u)},
        u);
}

at::Tensor activation_backward(const at::Tensor& dy_in, const at::Tensor& saved, spec::Activation kind,
                               const OptionalTensor& dbias, bool accumulate, const OptionalTensor& activated) {
  const at::Tensor dy = dy_in.contiguous();
  ARGOSY_CHECK(
      !activated || (activated->is_contiguous() && activated->sizes() == dy.sizes() && kind != spec::Activation::relu),
      "recomputing the activation needs whole rows; relu has saved it");
  ARGOSY_CHECK(saved.is_contiguous(), "activation works on whole rows");
  at::Tensor du = at::empty_like(saved);
  start(ActivationBackwardCall{.dy = dy.const_data_ptr(),
                               .saved = values_of(saved, dy.scalar_type()),
                               .du = du.mutable_data_ptr(),
                               .again = values_of(activated, dy.scalar_type()),
                               .rows = saved.size(0),
                               .width = dy.size(1),
                               .kind = static_cast<std::int64_t>(kind),
                               .bf16 = is_bf16(dy)},
        dy);
  if (dbias) cuda::column_sum(du, *dbias, accumulate);
  return du;
}

void rope_(const at::Tensor& x, const OptionalTensor& positions_in, std::int64_t offset, const at::Tensor& waves,
           bool inverse) {
  ARGOSY_CHECK(x.stride(3) == 1 && x.size(3) % 2 == 0 && waves.is_contiguous() && 2 * waves.size(2) == x.size(3),
               "rope_ turns pairs of a head by waves of its size");
  const OptionalTensor positions = positions_in ? OptionalTensor(positions_in->contiguous()) : std::nullopt;
  start(RopeCall{.x = x.mutable_data_ptr(),
                 .positions = positions ? integers_of(*positions) : nullptr,
                 .waves = floats_of(waves),
                 .rows = x.size(0),
                 .length = x.size(1),
                 .heads = x.size(2),
                 .half = x.size(3) / 2,
                 .row_stride = x.stride(0),
                 .token_stride = x.stride(1),
                 .head_stride = x.stride(2),
                 .offset = offset,
                 .inverse = inverse,
                 .bf16 = is_bf16(x)},
        x);
}

at::Tensor embedding(const at::Tensor& ids_in, const at::Tensor& table, double scale,
                     const OptionalTensor& position_table, const OptionalTensor& positions_in, std::int64_t offset) {
  ARGOSY_CHECK(table.is_contiguous() && (!position_table || position_table->is_contiguous()),
               "embedding reads whole rows");
  const at::Tensor ids = ids_in.contiguous();
  const OptionalTensor positions = positions_in ? OptionalTensor(positions_in->contiguous()) : std::nullopt;
  at::Tensor y = at::empty({ids.size(0), ids.size(1), table.size(1)}, table.options());
  start(EmbeddingCall{.ids = integers_of(ids),
                      .table = table.const_data_ptr(),
                      .position_table = static_cast<const float*>(values_of(position_table, at::kFloat)),
                      .positions = positions ? integers_of(*positions) : nullptr,
                      .y = y.mutable_data_ptr(),
                      .n = ids.numel(),
                      .width = table.size(1),
                      .length = ids.size(1),
                      .offset = offset,
                      .scale = static_cast<float>(scale),
                      .bf16 = is_bf16(table)},
        table);
  return y;
}

void embedding_backward(const at::Tensor& dx_in, const at::Tensor& ids, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id) {
  const at::Tensor dx = dx_in.contiguous();
  ARGOSY_CHECK(dtable.is_contiguous(), "embedding_backward writes to whole rows");
  if (!accumulate) dtable.zero_();
  const auto [sorted, order] = at::sort(ids.reshape({-1}), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  start(EmbeddingBackwardCall{.dx = dx.const_data_ptr(),
                              .ids = integers_of(sorted),
                              .order = integers_of(order),
                              .dtable = floats_of(dtable),
                              .n = sorted.numel(),
                              .width = dtable.size(1),
                              .skip_id = skip_id,
                              .scale = static_cast<float>(scale),
                              .accumulate = accumulate,
                              .bf16 = is_bf16(dx)},
        dx);
}

namespace {

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

}  // namespace

void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options) {
  for (const at::Tensor& tensor : {master, m, v, gradient, weights.value_or(master)})
    ARGOSY_CHECK(tensor.is_contiguous() && tensor.numel() == master.numel(), "adamw_ works on flat slices");
  start(AdamwCall{.master = floats_of(master),
                  .m = floats_of(m),
                  .v = floats_of(v),
                  .gradient = floats_of(gradient),
                  .coefficient = floats_of(coefficient),
                  .weights = values_of(weights, at::kBFloat16),
                  .n = master.numel(),
                  .factors = adamw_factors(options)},
        master);
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  for (const at::Tensor& tensor : {weights, m, v, gradient})
    ARGOSY_CHECK(tensor.is_contiguous(), "adamw_stochastic_ works on flat slices");
  ARGOSY_CHECK(rounding.begin % 128 == 0, "an update from element {} of a parameter", rounding.begin);
  start(AdamwStochasticCall{.weights = static_cast<std::uint16_t*>(values_of(weights, at::kBFloat16)),
                            .m = floats_of(m),
                            .v = floats_of(v),
                            .gradient = floats_of(gradient),
                            .coefficient = floats_of(coefficient),
                            .begin = rounding.begin,
                            .n = weights.numel(),
                            .factors = adamw_factors(options),
                            .seed = rounding.seed,
                            .parameter = static_cast<std::uint32_t>(rounding.parameter),
                            .step = static_cast<std::uint32_t>(options.step)},
        weights);
}

void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  ARGOSY_CHECK(mean.is_contiguous() && values.is_contiguous() && mean.numel() == values.numel(),
               "ema_ works on flat slices");
  start(EmaCall{.mean = floats_of(mean),
                .values = floats_of(values),
                .coefficient = floats_of(coefficient),
                .n = mean.numel(),
                .rate = static_cast<float>(1 - decay)},
        mean);
}

at::Tensor sum_of_squares(const at::Tensor& x) {
  ARGOSY_CHECK(x.is_contiguous(), "sum_of_squares works on a flat slice");
  const at::Tensor parts = at::empty({square_parts(x.numel())}, x.options().dtype(at::kDouble)),
                   sum = at::empty({1}, parts.options());
  start(SumOfSquaresCall{.x = floats_of(x),
                         .parts = parts.mutable_data_ptr<double>(),
                         .sum = sum.mutable_data_ptr<double>(),
                         .n = x.numel()},
        x);
  return sum;
}

}  // namespace argosy::kernels::cuda
