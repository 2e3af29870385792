#include "data/line_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace argosy::data {
namespace {
constexpr std::size_t buffer_bytes = 1U << 20, most_line_bytes = 1U << 30;
}

LineReader::LineReader(File file, std::uint64_t offset, std::uint64_t line, InvalidUtf8 policy,
                       CarriageReturns carriage_returns, const Path& name)
    : file_(std::move(file)),
      name_(name.empty() ? file_.path() : name),
      size_bytes_(file_.stat().size_bytes),
      offset_(offset),
      line_(line),
      policy_(policy),
      carriage_returns_(carriage_returns),
      buffer_(std::min<std::uint64_t>(buffer_bytes, size_bytes_ + 1)) {}

bool LineReader::fill() {
  if (offset_ >= size_bytes_) return false;
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), buffer_.begin() + static_cast<std::ptrdiff_t>(end_),
            buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  if (end_ >= most_line_bytes)
    throw_error(Fault::data, fmt::format("{} line {}", name_.string(), line_ + 1), "a line of at most 1 GiB",
                "a longer one", "break the text into lines, or leave the file out");
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t count = std::min<std::uint64_t>(buffer_.size() - end_, size_bytes_ - offset_);
  file_.read_at(as_writable_bytes(std::span{buffer_}.subspan(end_, count)), offset_);
  end_ += count;
  offset_ += count;
  return true;
}

bool LineReader::next(std::string& line) {
  std::size_t searched = 0;
  const char* newline = nullptr;
  do {
    const std::size_t from = begin_ + searched;
    newline = static_cast<const char*>(std::memchr(buffer_.data() + from, '\n', end_ - from));
    searched = end_ - begin_;
  } while (newline == nullptr && fill());
  if (newline == nullptr && begin_ == end_) return false;

  const std::size_t size =
      newline != nullptr ? static_cast<std::size_t>(newline - buffer_.data()) - begin_ : end_ - begin_;
  line_offset_ = offset_ - (end_ - begin_);
  std::string_view text{buffer_.data() + begin_, size};
  begin_ += size + (newline != nullptr ? 1 : 0);
  was_ended_ = newline != nullptr;
  if (was_ended_ && carriage_returns_ == CarriageReturns::drop && text.ends_with('\r')) text.remove_suffix(1);
  if (line_offset_ == 0 && text.starts_with(byte_order_mark)) {
    text.remove_prefix(byte_order_mark.size());
    line_offset_ = byte_order_mark.size();
  }
  line_bytes_ = text.size();
  was_replaced_ = false;
  ++line_;
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw_error(Fault::data, place(zero), "text", "a zero byte: the file is binary, or in another encoding than UTF-8",
                "leave the file out, or convert it to UTF-8");
  if (const auto invalid = first_invalid_utf8(text)) {
    if (policy_ == InvalidUtf8::reject)
      throw_error(Fault::data, place(*invalid), "UTF-8",
                  fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[*invalid])),
                  "correct the text, or use --set data.invalid_utf8=replace");
    line = replace_invalid_utf8(text);
    was_replaced_ = true;
  } else {
    line.assign(text);
  }
  return true;
}

std::string LineReader::place(std::size_t byte) const {
  return fmt::format("{} line {}, byte {}", name_.string(), line_, line_offset_ + byte);
}

}  // namespace argosy::data
