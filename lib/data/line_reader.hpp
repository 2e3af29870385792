#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "data/data_config.hpp"

/// Lines of a text file from some byte on, with one buffer in memory. LF ends a line, a CR before it is dropped, a last
/// line without LF is a line. One thread.
namespace argosy::data {

class LineReader {
 public:
  /// Reads from `offset`, the first byte of line `line` (from 0; used in messages).
  LineReader(File file, std::uint64_t offset = 0, std::uint64_t line = 0, InvalidUtf8 policy = InvalidUtf8::reject);

  /// The next line, valid until the call after; false at the end of the file.
  /// Throws Error{data} for invalid UTF-8 under `reject` (file, line, byte); `replace` puts U+FFFD for each byte.
  bool next(std::string& line);

 private:
  bool fill();
  File file_;
  std::uint64_t size_bytes_, offset_, line_;  // offset_: of the buffer's end in the file
  InvalidUtf8 policy_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace argosy::data
