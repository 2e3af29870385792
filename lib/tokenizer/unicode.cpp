#include "tokenizer/unicode.hpp"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/error.hpp"

namespace argosy::tokenizer {
namespace {

UChar32 code(char32_t character) { return static_cast<UChar32>(character); }
icu::StringPiece piece_of(std::string_view text) { return {text.data(), narrow<std::int32_t>(text.size())}; }
bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

const icu::Normalizer2& icu_normalizer(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::nfc:
      normalizer = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::nfd:
      normalizer = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::nfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::nfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  ARGOSY_CHECK(U_SUCCESS(status), "ICU without normal forms: {}", u_errorName(status));
  return *normalizer;
}

// ICU counts steps of 10,000 tries. The expressions of known tokenizers need a few tries for a byte.
constexpr std::int64_t first_steps = 100, bytes_of_a_step = 100;
// Below, the stack of 8 MB that ICU allows is enough.
constexpr std::size_t long_text_bytes = 40'000;

/// A construct that Oniguruma reads otherwise than ICU, or empty. Oniguruma repeats a{1,3}+, \h is a hexadecimal digit
/// to it and a blank to ICU, and (?m) lets . match line ends.
std::string_view ambiguous_part(std::string_view pattern) {
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '\\') {
      ++at;
      if (at < pattern.size() && (pattern[at] == 'h' || pattern[at] == 'H')) return pattern.substr(at - 1, 2);
      if (at + 1 < pattern.size() && (pattern[at] == 'p' || pattern[at] == 'P' || pattern[at] == 'x') &&
          pattern[at + 1] == '{')
        at = std::min(pattern.find('}', at), pattern.size());
    } else if (pattern.substr(at).starts_with("}+")) {
      return pattern.substr(at, 2);
    } else if (pattern.substr(at).starts_with("(?")) {
      const std::size_t end = pattern.find_first_not_of("imsxU-", at + 2);
      const std::string_view options = pattern.substr(at + 2, end == pattern.npos ? pattern.npos : end - at - 2);
      if (options.find_first_of("msxU") != options.npos) return pattern.substr(at, options.size() + 2);
    }
  }
  return {};
}

}  // namespace

void check_growth(std::size_t from, std::size_t to) {
  constexpr std::size_t most = 64, always = 4096;
  if (to <= most * from + always) return;
  throw_claim(Fault::data, fmt::format("the tokenizer makes more than {} bytes of a text of {}", to - 1, from),
              "the tokenizer", fmt::format("at most {} times the text", most), std::to_string(to),
              "use another tokenizer");
}

bool is_space(char32_t character) { return u_isUWhiteSpace(code(character)) != 0; }
bool is_word(char32_t character) {
  if (character == U'\u200c' || character == U'\u200d') return true;
  return u_hasBinaryProperty(code(character), UCHAR_ALPHABETIC) != 0 ||
         (U_GET_GC_MASK(code(character)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}
bool is_number(char32_t character) { return (U_GET_GC_MASK(code(character)) & U_GC_N_MASK) != 0; }
bool is_punctuation(char32_t character) {
  if (character < 0x80 && character > ' ' && character != 0x7F && u_isalnum(code(character)) == 0) return true;
  return (U_GET_GC_MASK(code(character)) & U_GC_P_MASK) != 0;
}
bool is_mark(char32_t character) { return (U_GET_GC_MASK(code(character)) & U_GC_M_MASK) != 0; }
bool is_letter(char32_t character) { return (U_GET_GC_MASK(code(character)) & U_GC_L_MASK) != 0; }
bool is_symbol(char32_t character) { return (U_GET_GC_MASK(code(character)) & U_GC_S_MASK) != 0; }
int digit_value(char32_t character) { return u_charDigitValue(code(character)); }

std::optional<int> script_of_name(const std::string& name) {
  const int script = u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str());
  return script == UCHAR_INVALID_CODE ? std::nullopt : std::optional{script};
}
bool is_of_script(char32_t character, int script) {
  return uscript_hasScript(code(character), static_cast<UScriptCode>(script)) != 0;
}
bool is_of_any_script(char32_t character) {
  UErrorCode status = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(code(character), &status);
  return script == USCRIPT_COMMON || script == USCRIPT_INHERITED;
}

std::string normal_form(NormalForm form, std::string_view text) {
  if (form == NormalForm::nfc && std::ranges::all_of(text, is_ascii)) return std::string{text};
  std::string out;
  icu::StringByteSink<std::string> sink(&out, narrow<std::int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  icu_normalizer(form).normalizeUTF8(0, piece_of(text), sink, nullptr, status);
  ARGOSY_CHECK(U_SUCCESS(status), "a normal form: {}", u_errorName(status));
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    if (character == U'\u0130')
      out += "i\u0307";  // the one character whose lower case is two, whatever the language
    else
      append_utf8(out, static_cast<char32_t>(u_tolower(code(character))));
  }
  return out;
}

namespace {

template <class Map>
std::string mapped(std::string_view text, Map&& map) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out, narrow<std::int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  map("", std::uint32_t{0}, piece_of(text), sink, nullptr, status);
  ARGOSY_CHECK(U_SUCCESS(status), "letters in another case: {}", u_errorName(status));
  return out;
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  return mapped(text, [](auto&&... of) { icu::CaseMap::utf8ToLower(of...); });
}
std::string in_upper_case(std::string_view text) {
  return mapped(text, [](auto&&... of) { icu::CaseMap::utf8ToUpper(of...); });
}
char32_t title_case(char32_t character) { return static_cast<char32_t>(u_totitle(code(character))); }

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  icu::UnicodeString::fromUTF8(piece_of(bytes)).toUTF8String(out);
  return out;
}

void append_utf8(std::string& text, char32_t character) {
  if (character < 0x80) {
    text += static_cast<char>(character);
    return;
  }
  const unsigned following = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  text += static_cast<char>(0xFF00U >> (following + 1) | character >> 6 * following);
  for (unsigned left = following; left-- > 0;) text += static_cast<char>(0x80U | (character >> 6 * left & 0x3FU));
}

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const unsigned following = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t character = lead & (0x3FU >> following);
  for (unsigned i = 0; i < following; ++i)
    character = character << 6 | (static_cast<unsigned char>(text[at++]) & 0x3FU);
  return character;
}

char32_t last_character(std::string_view text, std::size_t& begin) {
  begin = text.size() - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  std::size_t at = begin;
  return next_character(text, at);
}

void each_grapheme(std::string_view text, const std::function<void(std::string_view)>& cluster) {
  std::unique_ptr<icu::BreakIterator> breaks;
  UText view = UTEXT_INITIALIZER;
  std::size_t begin = 0;
  while (begin < text.size()) {
    // Between two ASCII characters there is a boundary, but for \r\n: ICU sees only what else there is.
    const bool ends = begin + 1 == text.size() || (is_ascii(text[begin + 1]) && text.substr(begin, 2) != "\r\n");
    if (is_ascii(text[begin]) && ends) {
      cluster(text.substr(begin++, 1));
      continue;
    }
    std::size_t end = begin + 1;
    while (end < text.size() && (!is_ascii(text[end - 1]) || !is_ascii(text[end]) || text[end] == '\n')) ++end;
    const std::string_view run = text.substr(begin, end - begin);
    UErrorCode status = U_ZERO_ERROR;
    if (!breaks) breaks.reset(icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    utext_openUTF8(&view, run.data(), narrow<std::int64_t>(run.size()), &status);
    ARGOSY_CHECK(U_SUCCESS(status), "ICU without grapheme clusters: {}", u_errorName(status));
    breaks->setText(&view, status);
    for (std::int32_t from = breaks->first(), to = breaks->next(); to != icu::BreakIterator::DONE;
         from = std::exchange(to, breaks->next()))
      cluster(run.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    begin = end;
  }
  breaks.reset();
  utext_close(&view);
}

Regex::Regex(std::string_view pattern, std::string where) : where_(std::move(where)) {
  const auto refuse = [&](const std::string& got) {
    throw_error(Fault::data, where_, "a regular expression that ICU and Oniguruma read alike", got,
                "use another tokenizer, or its SentencePiece model");
  };
  if (const std::string_view part = ambiguous_part(pattern); !part.empty()) refuse(fmt::format("{} in it", part));
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  pattern_.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(piece_of(pattern)),
                                            UREGEX_MULTILINE | UREGEX_UNIX_LINES, place, status));
  if (U_FAILURE(status)) refuse(fmt::format("one that ends in {} at character {}", u_errorName(status), place.offset));
}

Regex::Search::Search(const Regex& regex) : regex_(&regex), steps_left_(std::make_unique<std::int64_t>(first_steps)) {
  UErrorCode status = U_ZERO_ERROR;
  matcher_.reset(regex.pattern_->matcher(status));
  matcher_->setMatchCallback(
      [](const void* left, std::int32_t) -> UBool {
        return --*static_cast<std::int64_t*>(const_cast<void*>(left)) > 0;
      },
      steps_left_.get(), status);
  ARGOSY_CHECK(U_SUCCESS(status), "an ICU matcher: {}", u_errorName(status));
}

const std::vector<Span>& Regex::Search::matches(std::string_view text) {
  matches_.clear();
  *steps_left_ += narrow<std::int64_t>(text.size()) / bytes_of_a_step;
  utf16_ = icu::UnicodeString::fromUTF8(piece_of(text));
  UErrorCode status = U_ZERO_ERROR;
  if (text.size() > long_text_bytes) {  // a run of blanks takes a place on the stack for each
    constexpr std::size_t stack_bytes = 200, most = std::numeric_limits<std::int32_t>::max();
    matcher_->setStackLimit(narrow<std::int32_t>(std::min(stack_bytes * text.size(), most)), status);
  }
  matcher_->reset(utf16_);
  const bool ascii = static_cast<std::size_t>(utf16_.length()) == text.size();
  std::size_t bytes = 0;
  std::int32_t units = 0;
  const auto offset_of = [&](std::int32_t unit) {  // ascending
    if (ascii) return static_cast<std::size_t>(unit);
    while (units < unit) units += next_character(text, bytes) > 0xFFFF ? 2 : 1;
    return bytes;
  };
  while (matcher_->find(status) != 0) {
    const Span match{offset_of(matcher_->start(status)), offset_of(matcher_->end(status))};
    if (match.begin < match.end || matches_.empty() || matches_.back().end != match.end) matches_.push_back(match);
  }
  if (U_FAILURE(status))
    throw_claim(
        Fault::data,
        fmt::format("{}: the regular expression takes too long on a text of {} bytes", regex_->where_, text.size()),
        regex_->where_, "an expression that ends soon", u_errorName(status),
        "use a tokenizer with simpler expressions");
  return matches_;
}

}  // namespace argosy::tokenizer
