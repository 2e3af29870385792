#pragma once

#include <string>
#include <string_view>

#include "comm/run_main.hpp"

/// A result folder that exists under its name only when it is complete: what every export format shares.
namespace argosy::exports {

/// `.tmp-…` beside the final name, renamed over nothing by commit(); removed by the destructor otherwise.
class OutputFolder {
 public:
  /// **Collective.** Throws Error{usage} when `final_path` exists.
  OutputFolder(comm::Context& context, Path final_path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  /// A small file; rank 0 writes and fsyncs it. **Collective.**
  void write(const std::string& name, std::string_view content);
  /// SHA256SUMS over all files, fsync, rename, fsync of the parent. **Collective.**
  void commit();

 private:
  comm::Context& context_;
  Path final_path_, path_;
  bool committed_ = false;
};

}  // namespace argosy::exports
