#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.hpp"

/// ARGOSY_EXIT_FILE: one line "CODE STEP" or "CODE STEP WHY", for scripts and tests, because launchers lose exit codes.
/// Apart from run_main because telemetry and the fuzzer parse it without MPI. Nothing is written when the path is
/// empty.
namespace argosy::comm {

/// The line. `why` is a word for scripts, such as stop_file, or empty.
struct ExitRecord {
  int code = 0;
  std::int64_t step = 0;
  std::string why{};
  bool operator==(const ExitRecord&) const = default;
};

/// Parses the line strictly: a code up to 255, a step of at most 18 digits, a word of lower-case letters and _; one
/// space between them, one line end or none. nullopt for anything else.
[[nodiscard]] std::optional<ExitRecord> parse_exit(std::string_view text);

class ExitFile {
 public:
  ExitFile(Files files, Path path) : files_(files), path_(std::move(path)) {}

  /// Removes the file of an earlier run. Rank 0, before any work. Throws Error{io} if a file with content remains,
  /// which scripts would take for the one of this run; any other failure is no error yet.
  void clear() const;
  /// Writes the code that all ranks agreed on. Rank 0. Readers see the old file or the whole new one. Throws Error{io}.
  void write_agreed(int code, std::int64_t step, std::string_view why = {}) const;
  /// Writes the code of a rank that fails alone, unless the file exists: the first failing rank wins.
  void write_first(int code, std::int64_t step) const noexcept;

 private:
  Files files_;
  Path path_;
};

}  // namespace argosy::comm
