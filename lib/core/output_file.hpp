#pragma once

#include "core/file.hpp"

/// A file that is written piece by piece and gets its name only when it is complete. One thread.
namespace argosy {

class OutputFile {
 public:
  /// Creates <path>.tmp-<nonce> next to `path` or, if `path` is a symbolic link, next to its target. A killed process
  /// leaves that file. Throws Error{usage} if `path` exists and is not a regular file, Error{io} if the file cannot be
  /// created.
  OutputFile(const Files& files, Path path);
  /// Removes a file that was not committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view text) { file_.append(as_bytes(text)); }
  /// Flushes the file to disk and renames it to `path`, replacing a file of that name: the last of several writers
  /// wins. Throws Error{io}.
  void commit();

 private:
  Files files_;
  Path path_, partial_;
  File file_;
  bool committed_ = false;
};

}  // namespace argosy
