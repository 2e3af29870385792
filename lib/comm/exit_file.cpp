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
    if (auto file = files_.try_create(path_)) {
      file->append(as_bytes(fmt::format("{} {}\n", code, step)));
      file->close();
    }
  } catch (const std::exception&) {
    // The rank is failing already; its own error is the one to report.
  }
}

}  // namespace argosy::comm
