#pragma once

#include <cstddef>
#include <cstdint>

/// The functions of libargosy_cuda.so that kernels/ calls by name: the .cu files of this folder define them.
/// Torch-free.
namespace argosy::kernels {

inline constexpr const char* cuda_start_name = "argosy_cuda_start";

/// Makes `device` current and runs a kernel on it. Returns 0, or leaves one line in `problem` [capacity].
using CudaStart = int (*)(int device, char* problem, std::size_t capacity);

/// AdamW of bf16 weights without a master.
inline constexpr const char* cuda_adamw_stochastic_name = "argosy_cuda_adamw_stochastic";

/// Pointers of the device; coefficient: one number, negative: nothing changes. The factors are those of the formula,
/// rounded to fp32 once.
struct AdamwStochasticCall {
  std::uint16_t* weights;
  float *m, *v;
  const float *gradient, *coefficient;
  std::int64_t begin, n;  // elements [begin, begin + n) of the parameter, begin a multiple of 128
  float beta1, beta2, new_m, new_v, epsilon, keep, rate, spread;
  std::uint64_t seed;
  std::uint32_t parameter, step;
};

/// Starts the update on `stream` (cudaStream_t). Returns 0 or a cudaError_t.
using CudaAdamwStochastic = int (*)(const AdamwStochasticCall* call, void* stream);

}  // namespace argosy::kernels
