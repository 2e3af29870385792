#include "data/text_scan.hpp"

#include <locale.h>
#include <wchar.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "core/utf8.hpp"

namespace argosy::data {
namespace {

/// Bit i of each mask speaks of byte i of a block of up to 64.
struct Masks {
  std::uint64_t newlines = 0, spaces = 0, special = 0;  // special: neither printable ASCII nor LF nor blank
};

bool is_plain(unsigned char byte) { return (byte >= 0x20 && byte < 0x7F) || byte == '\n'; }

Masks masks_of(const char* at, unsigned count) {
  Masks masks;
  for (unsigned i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(at[i]);
    masks.newlines |= static_cast<std::uint64_t>(byte == '\n') << i;
    masks.spaces |= static_cast<std::uint64_t>(byte == ' ') << i;
    masks.special |= static_cast<std::uint64_t>(!is_plain(byte)) << i;
  }
  return masks;
}

Masks masks_of_64(const char* at) {
#if defined(__SSE2__)
  Masks masks;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * quarter));
    const __m128i newline = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n'));
    const __m128i space = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(' '));
    const __m128i below_blank = _mm_cmplt_epi8(bytes, _mm_set1_epi8(' '));  // signed: bytes >= 0x80 as well
    const __m128i is_delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7F));
    const __m128i special = _mm_or_si128(_mm_andnot_si128(newline, below_blank), is_delete);
    const int shift = 16 * quarter;
    masks.newlines |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(newline))) << shift;
    masks.spaces |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(space))) << shift;
    masks.special |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(special))) << shift;
  }
  return masks;
#else
  return masks_of(at, 64);
#endif
}

bool is_no_break_space(char32_t code) { return code == 0x00A0 || code == 0x2007 || code == 0x202F || code == 0x2060; }

}  // namespace

TextFigures& TextFigures::operator+=(const TextFigures& other) {
  lines += other.lines;
  newlines += other.newlines;
  empty_lines += other.empty_lines;
  words += other.words;
  characters += other.characters;
  longest_line = std::max(longest_line, other.longest_line);
  invalid_bytes += other.invalid_bytes;
  return *this;
}

/// The C library's view of characters in C.UTF-8, by pages of 256 code points filled at first use.
class TextScanner::CharacterTable {
 public:
  struct Entry {
    bool printable = false, space = false;
    std::int8_t width = 0;
  };

  CharacterTable() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}
  ~CharacterTable() {
    if (locale_ != nullptr) freelocale(locale_);
  }
  CharacterTable(const CharacterTable&) = delete;
  CharacterTable& operator=(const CharacterTable&) = delete;

  const Entry& of(char32_t code) {
    auto& page = pages_[code >> 8];
    if (!page) page = make_page(code & ~0xFFU);
    return (*page)[code & 0xFFU];
  }

 private:
  using Page = std::array<Entry, 256>;
  std::unique_ptr<Page> make_page(char32_t first) const {
    auto page = std::make_unique<Page>();
    const locale_t before = locale_ != nullptr ? uselocale(locale_) : nullptr;
    for (char32_t i = 0; i < 256; ++i) {
      const char32_t code = first + i;
      Entry& entry = (*page)[i];
      // Without a UTF-8 locale on the machine every character is a letter of width 1.
      entry.printable = locale_ == nullptr || iswprint(static_cast<wint_t>(code)) != 0;
      entry.space = is_no_break_space(code) || (locale_ != nullptr && iswspace(static_cast<wint_t>(code)) != 0);
      entry.width = static_cast<std::int8_t>(locale_ == nullptr ? 1 : std::max(0, wcwidth(static_cast<wchar_t>(code))));
    }
    if (locale_ != nullptr) uselocale(before);
    return page;
  }

  locale_t locale_;
  std::array<std::unique_ptr<Page>, 0x1100> pages_;
};

TextScanner::TextScanner() : table_(std::make_unique<CharacterTable>()) {}
TextScanner::~TextScanner() = default;

void TextScanner::end_line(std::int64_t at) {
  ++figures_.lines;
  const std::int64_t size_bytes = at - line_begin_;
  if (size_bytes == 0 || (size_bytes == 1 && last_cr_ == line_begin_)) ++figures_.empty_lines;
  figures_.longest_line = std::max(figures_.longest_line, column_);
  column_ = 0;
}

void TextScanner::scan_plain(std::uint64_t newlines, std::uint64_t spaces, unsigned count) {
  const std::uint64_t all = count == 64 ? ~0ULL : (1ULL << count) - 1;
  const std::uint64_t separators = (newlines | spaces) & all;
  const std::uint64_t letters = ~separators & all;
  const std::uint64_t after_gap = separators << 1 | static_cast<std::uint64_t>(!in_word_);
  figures_.words += std::popcount(letters & after_gap);
  figures_.characters += count;
  in_word_ = (letters >> (count - 1) & 1U) != 0;
  unsigned done = 0;
  for (std::uint64_t left = newlines & all; left != 0; left &= left - 1) {
    const auto at = static_cast<unsigned>(std::countr_zero(left));
    column_ += at - done;
    end_line(offset_ + at);
    ++figures_.newlines;
    done = at + 1;
    line_begin_ = offset_ + done;
  }
  column_ += count - done;
  offset_ += count;
}

void TextScanner::scan_special(unsigned char byte) {
  ++figures_.characters;
  switch (byte) {
    case '\t':
      column_ += 8 - column_ % 8;
      in_word_ = false;
      break;
    case '\r':
      last_cr_ = offset_;
      [[fallthrough]];
    case '\f':
      figures_.longest_line = std::max(figures_.longest_line, column_);
      column_ = 0;
      in_word_ = false;
      break;
    case '\v':
      in_word_ = false;
      break;
    case '\0':
      if (!first_zero_) first_zero_ = {figures_.newlines, offset_};
      break;
    default:  // other control characters neither end nor begin a word
      break;
  }
  ++offset_;
}

void TextScanner::wide_character(char32_t code) {
  ++figures_.characters;
  const CharacterTable::Entry& entry = table_->of(code);
  if (!entry.printable) return;
  column_ += entry.width;
  if (entry.space) {
    in_word_ = false;
  } else if (!in_word_) {
    in_word_ = true;
    ++figures_.words;
  }
}

std::size_t TextScanner::scan(std::span<const char> text, bool last) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const auto count = static_cast<unsigned>(std::min<std::ptrdiff_t>(64, end - at));
    const Masks masks = count == 64 ? masks_of_64(at) : masks_of(at, count);
    const unsigned plain = std::min(count, static_cast<unsigned>(std::countr_zero(masks.special)));
    if (plain > 0) {
      scan_plain(masks.newlines, masks.spaces, plain);
      at += plain;
      if (plain == count) continue;
    }
    // A run of special bytes, until plain text comes again.
    while (at < end && !is_plain(static_cast<unsigned char>(*at))) {
      const auto byte = static_cast<unsigned char>(*at);
      if (byte < 0x80) {
        scan_special(byte);
        ++at;
        continue;
      }
      const std::string_view rest{at, static_cast<std::size_t>(std::min<std::ptrdiff_t>(4, end - at))};
      const Utf8Character character = decode_utf8(rest);
      if (character.size_bytes > 0) {
        wide_character(character.code);
        at += character.size_bytes;
        offset_ += character.size_bytes;
      } else if (!last && is_cut_utf8(rest)) {
        return static_cast<std::size_t>(at - text.data());
      } else {
        if (!first_invalid_) first_invalid_ = {figures_.newlines, offset_};
        ++figures_.invalid_bytes;
        ++at;
        ++offset_;
      }
    }
  }
  return text.size();
}

void TextScanner::finish() {
  if (offset_ > line_begin_) end_line(offset_);
  in_word_ = false;
}

}  // namespace argosy::data
