#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <type_traits>

#include "core/error.hpp"
#include "kernels/cpu/table.hpp"

/// From tensors to the raw pointers of the CPU loops. For .cpp files of this folder.
namespace argosy::kernels::cpu {

/// Calls f with a null pointer of the element type.
template <class Function>
decltype(auto) with_type(const at::Tensor& tensor, Function&& f) {
  if (tensor.scalar_type() == at::kFloat) return f(static_cast<float*>(nullptr));
  ARGOSY_CHECK(tensor.scalar_type() == at::kBFloat16, "a kernel for fp32 and bf16 got {}",
               c10::toString(tensor.scalar_type()));
  return f(static_cast<Bf16*>(nullptr));
}

template <class T>
T* pointer(const at::Tensor& tensor) {
  constexpr auto wanted = std::is_same_v<T, float>    ? at::kFloat
                          : std::is_same_v<T, Bf16>   ? at::kBFloat16
                          : std::is_same_v<T, double> ? at::kDouble
                                                      : at::kLong;
  ARGOSY_CHECK(tensor.scalar_type() == wanted, "a kernel wanted {}, got {}", c10::toString(wanted),
               c10::toString(tensor.scalar_type()));
  return static_cast<T*>(tensor.mutable_data_ptr());
}

template <class T>
T* pointer(const std::optional<at::Tensor>& tensor) {
  return tensor ? pointer<T>(*tensor) : nullptr;
}

/// Sums over rows go in two stages: blocks of this many rows, then the blocks in order; whatever the number of threads.
constexpr std::int64_t row_block = 64;

/// Rows of work so small that a second thread does not pay.
inline std::int64_t grain(std::int64_t elements_per_item) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, elements_per_item));
}

}  // namespace argosy::kernels::cpu
