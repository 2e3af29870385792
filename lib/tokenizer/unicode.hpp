#pragma once

#include <unicode/regex.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Characters, normal forms, grapheme clusters and regular expressions, as the tokenizers library of Hugging Face has
/// them: ICU does the work, and this header sets what the two do differently. Texts are valid UTF-8, offsets are bytes.
/// Immutable values, for any number of threads.
namespace argosy::tokenizer {

/// Throws Error{data} if a change has made a text of `from` bytes, or one part of it, larger than any known tokenizer
/// does: some files would fill the memory with a short text.
void check_growth(std::size_t from, std::size_t to);

/// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0, end = 0;
};

/// White_Space of Unicode.
[[nodiscard]] bool is_space(char32_t character);
/// `\w` of a regular expression.
[[nodiscard]] bool is_word(char32_t character);
/// Decimal digits and other numbers (Nd, Nl, No).
[[nodiscard]] bool is_number(char32_t character);
/// ASCII punctuation, and the general categories P*.
[[nodiscard]] bool is_punctuation(char32_t character);
/// Combining marks (Mn, Mc, Me).
[[nodiscard]] bool is_mark(char32_t character);
/// Letters (L*).
[[nodiscard]] bool is_letter(char32_t character);
/// Symbols (S*): of currencies, of mathematics and others.
[[nodiscard]] bool is_symbol(char32_t character);
/// 0 to 9 of a decimal digit of any script; -1: another character.
[[nodiscard]] int digit_value(char32_t character);

/// A script by its name in Unicode ("Latin", "Latn"); case, blanks and hyphens do not matter. Empty: there is none.
[[nodiscard]] std::optional<int> script_of_name(const std::string& name);
/// Whether texts of the script use the character. Some characters belong to several scripts.
[[nodiscard]] bool is_of_script(char32_t character, int script);
/// Whether the character belongs to no script of its own (Common, Inherited), such as U+00B5, the sign of micro.
[[nodiscard]] bool is_of_any_script(char32_t character);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
[[nodiscard]] std::string normal_form(NormalForm form, std::string_view text);
/// Each character by itself: a final sigma is as any other.
[[nodiscard]] std::string lower_case(std::string_view text);
/// By all rules of Unicode, for no language: the upper case of U+00DF is SS.
[[nodiscard]] std::string in_lower_case(std::string_view text);
[[nodiscard]] std::string in_upper_case(std::string_view text);
/// How a character begins a word that is capitalised.
[[nodiscard]] char32_t title_case(char32_t character);
/// One U+FFFD for each longest sequence of bytes that begins a character and does not end it.
[[nodiscard]] std::string valid_utf8(std::string_view bytes);

void append_utf8(std::string& text, char32_t character);
/// The character at `at`, which moves behind it.
[[nodiscard]] char32_t next_character(std::string_view text, std::size_t& at);
/// The first character from the end, and the offset at which it begins.
[[nodiscard]] char32_t last_character(std::string_view text, std::size_t& begin);

/// Calls cluster(bytes) for each extended grapheme cluster (UAX #29), in order.
void each_grapheme(std::string_view text, const std::function<void(std::string_view)>& cluster);

/// A regular expression that means the same to ICU and to Oniguruma, which the tokenizers library uses. `^` and `$` are
/// the ends of lines, and lines end with \n.
class Regex {
 public:
  /// Throws Error{data} on what one of the two cannot read, or reads differently; `where` stands in the message.
  Regex(std::string_view pattern, std::string where);

  /// Searches text after text; one for each thread.
  class Search {
   public:
    /// The matches from left to right. An empty one at the end of the one before is left out. Throws Error{data} if the
    /// expression takes too many steps for the bytes that this object has searched.
    [[nodiscard]] const std::vector<Span>& matches(std::string_view text);

   private:
    friend class Regex;
    explicit Search(const Regex& regex);
    const Regex* regex_;
    std::unique_ptr<icu::RegexMatcher> matcher_;
    icu::UnicodeString utf16_;
    std::vector<Span> matches_;
    std::unique_ptr<std::int64_t> steps_left_;  // of ICU: 10,000 tries each
  };
  [[nodiscard]] Search search() const { return Search(*this); }

 private:
  std::unique_ptr<icu::RegexPattern> pattern_;
  std::string where_;
};

}  // namespace argosy::tokenizer
