#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/run_main.hpp"
#include "core/staged_folder.hpp"

/// An output folder that appears under its name only when it is complete. Every format writes into one.
namespace argosy::interchange {

/// A staged folder next to the final name. commit() renames it and replaces nothing; without a commit the destructor
/// removes it.
class OutputFolder {
 public:
  /// Also removes what killed jobs have left there. **Collective.** Throws Error{usage} when `final_path` exists.
  OutputFolder(comm::Context& context, Path final_path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return staged_->path(); }
  /// A small file; rank 0 writes and fsyncs it. **Collective.**
  void write(const std::string& name, std::string_view content);
  /// SHA256SUMS over all files, fsync, rename, fsync of the parent. **Collective.** Throws Error{usage} when
  /// `final_path` has appeared meanwhile.
  void commit();

 private:
  [[noreturn]] void refuse(const Path& final_path, std::string got) const;

  comm::Context& context_;
  std::optional<StagedFolder> staged_;
  bool committed_ = false;
};

}  // namespace argosy::interchange
