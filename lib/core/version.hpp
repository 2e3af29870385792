#pragma once

#include <span>
#include <string_view>

/// Which Argosy this is and what it was built with: for --version, manifests and logs. Constants; no library is called.
namespace argosy {

/// Release, as in "0.1.0".
[[nodiscard]] std::string_view version() noexcept;

/// Git commit of the build, with "-dirty" if the tree had changes; "unknown" outside a clone.
[[nodiscard]] std::string_view revision() noexcept;

struct Component {
  std::string_view name, version;  // "none" if the build lacks it
};

/// MPI, HDF5, LibTorch, NCCL, CUDA, in this order.
[[nodiscard]] std::span<const Component> built_with() noexcept;

}  // namespace argosy
