#pragma once

#include <cstddef>

/// The one entry into libargosy_cuda.so that is called by name: kernels/plugin.cpp calls it, cuda/start.cu defines it.
namespace argosy::kernels {

inline constexpr const char* cuda_start_name = "argosy_cuda_start";

/// Makes `device` current and runs a kernel on it. Returns 0, or leaves one line in `problem` [capacity].
using CudaStart = int (*)(int device, char* problem, std::size_t capacity);

}  // namespace argosy::kernels
