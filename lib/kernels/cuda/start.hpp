#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/plugin.hpp"

/// From tensors to a call of the plug-in. For .cpp files of this folder.
namespace argosy::kernels::cuda {

/// Runs an entry of the plug-in on the current stream of the device that holds `place`. Throws Error{device} if it does
/// not start.
void run_entry(int (*entry)(const void* call, void* stream), const void* call, const char* name,
               const at::Tensor& place);

template <class Call>
void start(const Call& call, const at::Tensor& place) {
  static const auto entry = reinterpret_cast<int (*)(const void*, void*)>(plugin_entry(Call::entry));
  run_entry(entry, &call, Call::entry, place);
}

inline bool is_bf16(const at::Tensor& tensor) {
  ARGOSY_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16,
               "a kernel for fp32 and bf16 got {}", c10::toString(tensor.scalar_type()));
  return tensor.scalar_type() == at::kBFloat16;
}

/// Where the tensor's values are, which must have this type.
inline void* values_of(const at::Tensor& tensor, at::ScalarType type) {
  ARGOSY_CHECK(tensor.scalar_type() == type, "a kernel wanted {}, got {}", c10::toString(type),
               c10::toString(tensor.scalar_type()));
  return tensor.mutable_data_ptr();
}
inline void* values_of(const std::optional<at::Tensor>& tensor, at::ScalarType type) {
  return tensor ? values_of(*tensor, type) : nullptr;
}
template <class Tensor>
float* floats_of(const Tensor& tensor) {
  return static_cast<float*>(values_of(tensor, at::kFloat));
}
template <class Tensor>
std::int64_t* integers_of(const Tensor& tensor) {
  return static_cast<std::int64_t*>(values_of(tensor, at::kLong));
}

}  // namespace argosy::kernels::cuda
