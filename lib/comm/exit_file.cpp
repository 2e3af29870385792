#include "comm/exit_file.hpp"

#include <fmt/format.h>

#include <exception>

namespace argosy::comm {

void ExitFile::clear() const {
  if (!path_.empty()) files_.remove(path_);
}

void ExitFile::write_agreed(int code, std::int64_t step) const {
  if (!path_.empty()) files_.write_atomically(path_, fmt::format("{} {}\n", code, step));
}

void ExitFile::write_first(int code, std::int64_t step) const noexcept {
  if (path_.empty()) return;
  try {
    static_cast<void>(files_.write_if_absent(path_, fmt::format("{} {}\n", code, step)));  // or another was first
  } catch (const std::exception&) {
    // The rank is failing already; its own error is the one to report.
  }
}

}  // namespace argosy::comm
