#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.hpp"

/// ARGOSY_EXIT_FILE: one line "CODE STEP" or "CODE STEP WHY", for scripts and tests, because launchers lose and mix
/// exit codes. Does nothing when no path is given.
namespace argosy::comm {

/// What the line says. `why` is a word for scripts, such as stop_file, or empty.
struct ExitRecord {
  int code = 0;
  std::int64_t step = 0;
  std::string why{};
  bool operator==(const ExitRecord&) const = default;
};

/// The line, strictly: a code up to 255, a step of at most 18 digits, a word of lower-case letters and _; one space
/// between them, one line end or none. nullopt: it is anything else.
[[nodiscard]] std::optional<ExitRecord> parse_exit(std::string_view text);

class ExitFile {
 public:
  ExitFile(Files files, Path path) : files_(files), path_(std::move(path)) {}

  /// Forgets what an earlier run of the same name left. Rank 0, before any work. Throws Error{io} when the word of that
  /// run stays there, which scripts would take for this one's; where none is, nothing is wrong yet.
  void clear() const;
  /// Rank 0, once the code is agreed: readers see the old file or the whole new one. Throws Error{io}.
  void write_agreed(int code, std::int64_t step, std::string_view why = {}) const;
  /// A rank that fails alone: the first one writes, later ones leave its word.
  void write_first(int code, std::int64_t step) const noexcept;

 private:
  Files files_;
  Path path_;
};

}  // namespace argosy::comm
