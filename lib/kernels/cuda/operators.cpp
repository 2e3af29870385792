// The host part of operators that have a kernel in the CUDA plug-in: checks, factors and the stream, then the call of
// the plug-in.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <cmath>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/plugin.hpp"

namespace argosy::kernels::cuda {
namespace {

void adamw_stochastic_(at::Tensor& weights, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon,
                       double weight_decay, std::int64_t step, std::int64_t seed, std::int64_t parameter,
                       std::int64_t begin) {
  static const auto entry = reinterpret_cast<CudaAdamwStochastic>(plugin_entry(cuda_adamw_stochastic_name));
  for (const at::Tensor& tensor : {weights, m, v, gradient})
    ARGOSY_CHECK(tensor.is_contiguous(), "adamw_stochastic_ works on flat slices");
  ARGOSY_CHECK(begin % 128 == 0, "an update from element {} of a parameter", begin);
  const auto t = static_cast<double>(step);
  const AdamwStochasticCall call{.weights = static_cast<std::uint16_t*>(weights.mutable_data_ptr()),
                                 .m = m.mutable_data_ptr<float>(),
                                 .v = v.mutable_data_ptr<float>(),
                                 .gradient = gradient.const_data_ptr<float>(),
                                 .coefficient = coefficient.const_data_ptr<float>(),
                                 .begin = begin,
                                 .n = weights.numel(),
                                 .beta1 = static_cast<float>(beta1),
                                 .beta2 = static_cast<float>(beta2),
                                 .new_m = static_cast<float>(1 - beta1),
                                 .new_v = static_cast<float>(1 - beta2),
                                 .epsilon = static_cast<float>(epsilon),
                                 .keep = static_cast<float>(1 - lr * weight_decay),
                                 .rate = static_cast<float>(lr / (1 - std::pow(beta1, t))),
                                 .spread = static_cast<float>(1 / (1 - std::pow(beta2, t))),
                                 .seed = static_cast<std::uint64_t>(seed),
                                 .parameter = static_cast<std::uint32_t>(parameter),
                                 .step = static_cast<std::uint32_t>(step)};
  ARGOSY_CHECK(weights.scalar_type() == at::kBFloat16, "adamw_stochastic_ rounds to bf16");
  const c10::DeviceGuard on(weights.device());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(weights.device());
  if (const int code = entry(&call, stream.native_handle()); code != 0)
    throw_error(Fault::device, "adamw_stochastic_", "the CUDA kernel to start", "CUDA error " + std::to_string(code));
}

}  // namespace

TORCH_LIBRARY_IMPL(argosy, CUDA, library) { library.impl("adamw_stochastic_", adamw_stochastic_); }

}  // namespace argosy::kernels::cuda
