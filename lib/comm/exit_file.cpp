#include "comm/exit_file.hpp"

#include <fmt/format.h>

#include <exception>

#include "core/error.hpp"

namespace argosy::comm {

namespace {

bool holds_a_word(const Files& files, const Path& path) {
  try {
    const auto facts = files.stat(path);
    return facts && facts->is_regular && facts->size_bytes > 0;
  } catch (const Error&) {  // nor can a script read it
    return false;
  }
}

}  // namespace

void ExitFile::clear() const {
  if (path_.empty()) return;
  try {
    files_.remove(path_);
  } catch (const Error& error) {
    if (!holds_a_word(files_, path_)) return;
    throw Error{Fault::io,
                {.wanted = "to remove the exit file of an earlier run",
                 .got = error.facts().got,
                 .where = path_.string(),
                 .remedy = "remove it, or name another file in ARGOSY_EXIT_FILE"}};
  }
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
