#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "data/text_config.hpp"

/// Lines of a text file from some byte on, with one buffer in memory, as large as the longest line. LF ends a line, a
/// last line without LF is a line. One thread.
namespace argosy::data {

inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

enum class CarriageReturns { drop, keep };  // those before LF

class LineReader {
 public:
  /// Reads from `offset`, the first byte of line `line` (from 0; used in messages). name: of the text in messages;
  /// empty: that of the file.
  LineReader(File file, std::uint64_t offset = 0, std::uint64_t line = 0, InvalidUtf8 policy = InvalidUtf8::reject,
             CarriageReturns carriage_returns = CarriageReturns::drop, const Path& name = {});

  /// The next line, without LF and without the byte order mark at the beginning of a file; false at the end.
  /// Throws Error{data} for a zero byte, and for invalid UTF-8 under `reject` (file, line, byte); `replace` puts U+FFFD
  /// for each byte. Throws Error{data} for a line above 1 GiB.
  bool next(std::string& line);
  /// Whether LF ended the latest line.
  [[nodiscard]] bool was_ended() const noexcept { return was_ended_; }
  /// "FILE line N, byte B" of a byte of the latest line, as it is in `line`.
  [[nodiscard]] std::string place(std::size_t byte) const;
  /// Where the latest line stands in the file, without its end and the byte order mark.
  [[nodiscard]] std::uint64_t line_offset() const noexcept { return line_offset_; }
  [[nodiscard]] std::uint64_t line_bytes() const noexcept { return line_bytes_; }
  /// Whether invalid UTF-8 in the latest line was replaced.
  [[nodiscard]] bool was_replaced() const noexcept { return was_replaced_; }
  [[nodiscard]] const Path& name() const noexcept { return name_; }

 private:
  bool fill();
  File file_;
  Path name_;
  std::uint64_t size_bytes_, offset_, line_;  // offset_: of the buffer's end in the file
  InvalidUtf8 policy_;
  CarriageReturns carriage_returns_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t line_offset_ = 0, line_bytes_ = 0;  // of the latest line
  bool was_ended_ = false, was_replaced_ = false;
};

}  // namespace argosy::data
