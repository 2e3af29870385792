#include "core/version.hpp"

#include "argosy_revision.hpp"

namespace argosy {

std::string_view version() noexcept { return ARGOSY_VERSION; }

std::string_view revision() noexcept { return ARGOSY_REVISION; }

}  // namespace argosy
