#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/run_main.hpp"
#include "core/staged.hpp"

/// An output folder that appears under its name only when it is complete. Every format writes into one.
namespace argosy::interchange {

/// A folder with a temporary name next to the final one. commit() renames it and replaces nothing. Without a commit the
/// destructor removes it.
class OutputFolder {
 public:
  /// Makes the folder, and removes those of killed jobs. **Collective.** Throws Error{usage} when `final_path` exists.
  OutputFolder(comm::Context& context, Path final_path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return staged_->path(); }
  /// Writes and fsyncs a small file; rank 0 does. **Collective.**
  void write(const std::string& name, std::string_view content);
  /// Writes SHA256SUMS of all files, syncs the folder, renames it and syncs its parent. **Collective.** Throws
  /// Error{usage} when `final_path` exists by now.
  void commit();

 private:
  [[noreturn]] void refuse(const Path& final_path, const char* claim) const;

  comm::Context& context_;
  std::optional<StagedFolder> staged_;
  bool committed_ = false;
};

}  // namespace argosy::interchange
