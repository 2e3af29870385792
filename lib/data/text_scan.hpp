#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

/// What `wc` says of a text, in one pass at memory speed: figures equal GNU wc 9.1 under LC_ALL=C.UTF-8 (-w -m -L) for
/// valid UTF-8; of invalid UTF-8 each byte that fits nowhere is counted apart, is no character and neither begins nor
/// ends a word.
namespace argosy::data {

struct TextFigures {
  std::int64_t lines = 0;         // LFs, plus an unterminated last line
  std::int64_t newlines = 0;      // LFs: wc -l
  std::int64_t empty_lines = 0;   // nothing before the LF but perhaps one CR
  std::int64_t words = 0;         // wc -w
  std::int64_t characters = 0;    // wc -m
  std::int64_t longest_line = 0;  // columns: wc -L (tabs to multiples of 8, wide characters 2)
  std::int64_t invalid_bytes = 0;
  /// The figures of both texts.
  TextFigures& operator+=(const TextFigures& other);
  bool operator==(const TextFigures&) const = default;
};

/// Where the first byte of a kind stands: an invalid one, or a zero byte, which no text has.
struct BytePlace {
  std::int64_t line = 0;         // from 0, within the scanned text
  std::int64_t byte_offset = 0;  // from the offset given to the scanner
  bool operator==(const BytePlace&) const = default;
};

/// Feed consecutive pieces of text that begin at a line's start. One thread.
class TextScanner {
 public:
  TextScanner();
  ~TextScanner();

  /// Scans `text` and returns how many bytes were used: all, but for the up to 3 bytes of a character cut at the end,
  /// which the caller hands in again in front of the next piece. `last`: nothing follows.
  std::size_t scan(std::span<const char> text, bool last);
  /// Closes the last line. Call once.
  void finish();

  [[nodiscard]] const TextFigures& figures() const noexcept { return figures_; }
  [[nodiscard]] const std::optional<BytePlace>& first_invalid() const noexcept { return first_invalid_; }
  [[nodiscard]] const std::optional<BytePlace>& first_zero() const noexcept { return first_zero_; }

 private:
  class CharacterTable;
  void scan_plain(std::uint64_t newlines, std::uint64_t spaces, unsigned count);
  void scan_special(unsigned char byte);
  void end_line(std::int64_t at);
  void wide_character(char32_t code);

  std::unique_ptr<CharacterTable> table_;
  TextFigures figures_;
  std::optional<BytePlace> first_invalid_, first_zero_;
  std::int64_t offset_ = 0;      // bytes scanned
  std::int64_t line_begin_ = 0;  // offset of the current line's first byte
  std::int64_t last_cr_ = -1;    // offset of the latest CR
  std::int64_t column_ = 0;
  bool in_word_ = false;
};

}  // namespace argosy::data
