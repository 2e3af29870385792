#pragma once

#include "core/file.hpp"

/// A file that is written piece by piece and appears under its name only when it is complete. One thread.
namespace argosy {

class OutputFile {
 public:
  /// Begins <path>.tmp-<nonce> beside `path`; where `path` is a symbolic link, beside what it leads to. A killed
  /// process leaves it there. Throws Error{usage} when `path` is there and no regular file, Error{io} when nothing can
  /// be written there.
  OutputFile(const Files& files, Path path);
  /// Removes what was not committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view text) { file_.append(as_bytes(text)); }
  /// Down to the disk and under its name, in the place of a file that is there: the last of several writers wins.
  /// Throws Error{io}.
  void commit();

 private:
  Files files_;
  Path path_, partial_;
  File file_;
  bool committed_ = false;
};

}  // namespace argosy
