#pragma once

#include <span>
#include <string_view>

/// The libraries this build was made with, for --version and manifests. Constants: asking needs none of them.
namespace argosy {

struct Component {
  std::string_view name, version;  // "none" where the build does without
};

/// MPI, HDF5, LibTorch, NCCL, CUDA, in this order.
[[nodiscard]] std::span<const Component> built_with() noexcept;

}  // namespace argosy
