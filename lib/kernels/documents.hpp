#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace argosy::kernels {

/// Where documents lie in rows of S positions, one row after the other: where each begins, and rows·S.
struct Documents {
  std::vector<std::int32_t> begins;
  at::Tensor on_device;  // the same, int32
};

}  // namespace argosy::kernels
