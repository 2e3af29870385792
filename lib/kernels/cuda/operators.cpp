// The host part of operators that have a kernel in the CUDA plug-in: checks, factors and the stream, then the call of
// the plug-in.
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/device_table.hpp"
#include "kernels/plugin.hpp"

namespace argosy::kernels::cuda {

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  at::Tensor out = c;
  if (c.scalar_type() == a.scalar_type() && !options.bias) {
    if (options.accumulate) {
      at::addmm_out(out, c, a, b.data);
    } else {
      at::mm_out(out, a, b.data);
    }
    return;
  }
  const at::Tensor product = options.bias                         ? at::addmm(*options.bias, a, b.data)
                             : a.scalar_type() == c.scalar_type() ? at::mm(a, b.data)
                                                                  : at::mm(a, b.data, c.scalar_type());
  if (options.accumulate) {
    c.add_(product);
  } else {
    c.copy_(product);
  }
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  const auto& [lr, beta1, beta2, epsilon, weight_decay, step] = options;
  static const auto entry = reinterpret_cast<CudaAdamwStochastic>(plugin_entry(cuda_adamw_stochastic_name));
  for (const at::Tensor& tensor : {weights, m, v, gradient})
    ARGOSY_CHECK(tensor.is_contiguous(), "adamw_stochastic_ works on flat slices");
  ARGOSY_CHECK(rounding.begin % 128 == 0, "an update from element {} of a parameter", rounding.begin);
  const auto t = static_cast<double>(step);
  const AdamwStochasticCall call{.weights = static_cast<std::uint16_t*>(weights.mutable_data_ptr()),
                                 .m = m.mutable_data_ptr<float>(),
                                 .v = v.mutable_data_ptr<float>(),
                                 .gradient = gradient.const_data_ptr<float>(),
                                 .coefficient = coefficient.const_data_ptr<float>(),
                                 .begin = rounding.begin,
                                 .n = weights.numel(),
                                 .beta1 = static_cast<float>(beta1),
                                 .beta2 = static_cast<float>(beta2),
                                 .new_m = static_cast<float>(1 - beta1),
                                 .new_v = static_cast<float>(1 - beta2),
                                 .epsilon = static_cast<float>(epsilon),
                                 .keep = static_cast<float>(1 - lr * weight_decay),
                                 .rate = static_cast<float>(lr / (1 - std::pow(beta1, t))),
                                 .spread = static_cast<float>(1 / (1 - std::pow(beta2, t))),
                                 .seed = rounding.seed,
                                 .parameter = static_cast<std::uint32_t>(rounding.parameter),
                                 .step = static_cast<std::uint32_t>(step)};
  ARGOSY_CHECK(weights.scalar_type() == at::kBFloat16, "adamw_stochastic_ rounds to bf16");
  const c10::DeviceGuard on(weights.device());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(weights.device());
  if (const int code = entry(&call, stream.native_handle()); code != 0)
    throw_error(Fault::device, "adamw_stochastic_", "the CUDA kernel to start", "CUDA error " + std::to_string(code));
}

}  // namespace argosy::kernels::cuda
