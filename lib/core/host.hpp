#pragma once

#include <string>

namespace argosy {

/// This machine's name, as gethostname tells it.
[[nodiscard]] std::string host_name();

}  // namespace argosy
