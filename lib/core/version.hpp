#pragma once

#include <string_view>

/// Which Argosy this is: for --version, manifests and logs. Fixed at build time; safe from any thread.
namespace argosy {

/// Release, as in "0.1.0".
[[nodiscard]] std::string_view version() noexcept;

/// Git commit the build came from, with "-dirty" when the tree had changes; "unknown" outside a clone.
[[nodiscard]] std::string_view revision() noexcept;

}  // namespace argosy
