#pragma once

#include <string>
#include <string_view>

/// Access to GPUs. Device code is in libargosy_cuda.so, which only a run on a GPU opens, so the same binaries work on
/// CPU and GPU nodes. LibTorch remembers its first answer about devices: call these functions before any torch call
/// that looks at devices. Safe from any thread. Libraries are never closed.
namespace argosy::kernels {

/// The number of GPUs that the driver offers to this process (it follows CUDA_VISIBLE_DEVICES); 0 without a driver.
/// Does not use torch.
[[nodiscard]] int gpu_count() noexcept;

/// The driver's name for a GPU ("NVIDIA H200"); empty if there is no such GPU. Does not use torch.
[[nodiscard]] std::string gpu_name(int device_index);

/// 16 bytes that identify a GPU in all processes; empty if there is no such GPU. Does not use torch.
[[nodiscard]] std::string gpu_identity(int device_index);

/// Opens LibTorch's CUDA libraries and libargosy_cuda.so, makes `device_index` the device of this thread, runs a kernel
/// on it to try it, and initializes LibTorch for it. Throws Error{device} if there is no driver or GPU, if a library is
/// missing, or if the device does not run our code.
void open_cuda_plugin(int device_index = 0);

/// A function of libargosy_cuda.so by name. Throws Error{device} if the library or the function is missing.
[[nodiscard]] void* plugin_entry(const char* name);

/// Whether a run with this key `device` uses the GPU. "cpu": no. "cuda": yes, and opens the plug-in. "auto": the same
/// if the driver offers a GPU, otherwise no. Throws as open_cuda_plugin: a GPU node computes on its CPU only if asked
/// to.
[[nodiscard]] bool use_gpu(std::string_view device, int device_index = 0);

}  // namespace argosy::kernels
