#pragma once

#include <string>
#include <string_view>

/// The door to GPUs. Device code is in libargosy_cuda.so, opened only by a run that uses a GPU, so one set of binaries
/// serves CPU and GPU nodes. LibTorch remembers its first answer about devices for ever: call these before any torch
/// call that looks at devices. Safe from any thread; nothing is ever closed.
namespace argosy::kernels {

/// GPUs the driver offers to this process (CUDA_VISIBLE_DEVICES counts); 0 without a driver. Does not touch torch.
[[nodiscard]] int gpu_count() noexcept;

/// What the driver calls a GPU ("NVIDIA H200"); empty where there is no such GPU. Does not touch torch.
[[nodiscard]] std::string gpu_name(int device_index);

/// 16 bytes that tell a GPU from all others, whoever looks at it; empty where there is no such GPU. Does not touch
/// torch.
[[nodiscard]] std::string gpu_identity(int device_index);

/// Opens LibTorch's CUDA libraries and libargosy_cuda.so, and runs a kernel on `device_index`; the second time does
/// nothing. Throws Error{device}: no driver, no GPU, a library missing, a device on which our code does not run.
void open_cuda_plugin(int device_index = 0);

/// A function of libargosy_cuda.so by name, once the plug-in is open. Throws Error{device} where it has none of it.
[[nodiscard]] void* plugin_entry(const char* name);

/// What the key `device` comes to: "cpu" is false, "cuda" opens the plug-in, "auto" does so where the driver offers a
/// GPU. Throws as open_cuda_plugin: a GPU node never computes on its CPU unasked.
[[nodiscard]] bool use_gpu(std::string_view device, int device_index = 0);

}  // namespace argosy::kernels
