#include "tokenizer/normalizer.hpp"

#include <utility>

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/parts.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

/// A normalizer that sees only the text.
template <class Change>
class OfText final : public Normalizer {
 public:
  explicit OfText(Change change) : change_(std::move(change)) {}
  void apply(Stretch& stretch) const override { stretch.text = change_(stretch.text); }

 private:
  Change change_;
};

template <class Change>
std::unique_ptr<Normalizer> of_text(Change change) {
  return std::make_unique<OfText<Change>>(std::move(change));
}

/// Keeps, drops or replaces each character by itself.
class OfCharacters final : public Normalizer {
 public:
  /// change: the character in its place, or no_character.
  static constexpr char32_t no_character = 0xFFFFFFFF;
  explicit OfCharacters(char32_t (*change)(char32_t)) : change_(change) {}
  void apply(Stretch& stretch) const override {
    std::string out;
    for (std::size_t at = 0; at < stretch.text.size();) {
      const char32_t changed = change_(next_character(stretch.text, at));
      if (changed != no_character)
        append_utf8(out, changed);
      else if (out.empty())
        stretch.first = false;
    }
    stretch.text = std::move(out);
  }

 private:
  char32_t (*change_)(char32_t);
};

class Steps final : public Normalizer {
 public:
  explicit Steps(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(Stretch& stretch) const override {
    const std::size_t size = stretch.text.size();
    for (const auto& step : steps_) {
      step->apply(stretch);
      check_growth(size, stretch.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class StripBlanks final : public Normalizer {
 public:
  StripBlanks(bool left, bool right) : left_(left), right_(right) {}
  void apply(Stretch& stretch) const override {
    std::string_view text = stretch.text;
    for (std::size_t begin = 0; left_ && !text.empty() && is_space(next_character(text, begin)); begin = 0) {
      text.remove_prefix(begin);
      stretch.first = false;
    }
    for (std::size_t end = 0; right_ && !text.empty() && is_space(last_character(text, end));)
      text = text.substr(0, end);
    stretch.text = std::string{text};
  }

 private:
  bool left_, right_;
};

/// What SentencePiece's rules for neural translation drop and take for blanks.
char32_t nmt(char32_t character) {
  const auto in = [character](char32_t low, char32_t high) { return character >= low && character <= high; };
  if (in(0x01, 0x08) || character == 0x0B || in(0x0E, 0x1F) || character == 0x7F || character == 0x8F ||
      character == 0x9F)
    return OfCharacters::no_character;
  if (character == 0x09 || character == 0x0A || character == 0x0C || character == 0x0D || character == 0x1680 ||
      in(0x200B, 0x200F) || character == 0x2028 || character == 0x2029 || character == 0x2581 || character == 0xFEFF ||
      character == 0xFFFD)
    return U' ';
  return character;
}

}  // namespace

std::unique_ptr<Normalizer> normalizer_of(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const JsonNode& step : node.at("normalizers").elements()) steps.push_back(normalizer_of(step));
    return std::make_unique<Steps>(std::move(steps));
  }
  for (const auto& [name, form] : {std::pair{"NFC", NormalForm::nfc},
                                   {"NFD", NormalForm::nfd},
                                   {"NFKC", NormalForm::nfkc},
                                   {"NFKD", NormalForm::nfkd}})
    if (type == name) return of_text([form](std::string_view text) { return normal_form(form, text); });
  if (type == "Lowercase") return of_text([](std::string_view text) { return lower_case(text); });
  if (type == "Strip")
    return std::make_unique<StripBlanks>(node.at("strip_left").flag(), node.at("strip_right").flag());
  if (type == "StripAccents")
    return std::make_unique<OfCharacters>(+[](char32_t c) { return is_mark(c) ? OfCharacters::no_character : c; });
  if (type == "Nmt") return std::make_unique<OfCharacters>(nmt);
  if (type == "Prepend")
    return of_text([before = node.at("prepend").text()](std::string_view text) {
      return text.empty() ? std::string{} : before + std::string{text};
    });
  if (type == "Replace")
    return of_text([pattern = Pattern(node.at("pattern")), content = node.at("content").text()](std::string_view text) {
      return text.empty() ? std::string{} : pattern.replaced(text, content);
    });
  if (type == "Precompiled")
    return of_text(
        [map = Charsmap(node.at("precompiled_charsmap"))](std::string_view text) { return map.applied(text); });
  if (type == "ByteLevel")
    return of_text([](std::string_view text) {
      std::string out;
      append_as_byte_characters(out, text);
      return out;
    });
  node.refuse_type(
      "normalizer",
      "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend, Replace, Precompiled and "
      "ByteLevel");
}

}  // namespace argosy::tokenizer
