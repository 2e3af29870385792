#include "data/transforms/letter_case.hpp"

#include <fmt/format.h>

#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const LetterCase&) {
  static constexpr config::KeyText texts[] = {
      {"to", "case: lower, upper or title (a capital at the beginning of each word)"},
      {"sides", "case: source, target or both"},
      {"probability", "case: share of the examples that are changed, 0 to 1; below 1, in each epoch others"},
      {"growth",
       "case: with a probability below 1, how many more pieces an example may get; 0.5: half as many again; null: by "
       "what draws make of each example"},
  };
  return texts;
}

void validate(const LetterCase& config, config::Problems& problems) {
  require_in(problems, "/probability", config.probability, 0., 1.);
  if (config.growth) require_in(problems, "/growth", *config.growth, 0., most_growth);
}

namespace {

/// Words are what white space separates; marks before the first letter of a word stay.
std::string in_title_case(std::string_view text) {
  std::string out;
  std::size_t rest = 0;  // of a word, from here on in lower case
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t character = tokenizer::next_character(text, at);
    if (in_word && tokenizer::is_space(character)) {
      out += tokenizer::in_lower_case(text.substr(rest, begin - rest));
      rest = begin;
      in_word = false;
    }
    if (in_word || !tokenizer::is_letter(character)) continue;
    out += text.substr(rest, begin - rest);
    tokenizer::append_utf8(out, tokenizer::title_case(character));
    rest = at;
    in_word = true;
  }
  return out += in_word ? tokenizer::in_lower_case(text.substr(rest)) : std::string{text.substr(rest)};
}

class CaseTransform final : public Transform {
 public:
  explicit CaseTransform(const LetterCase& config) : config_(config) {}

  [[nodiscard]] std::string_view type() const override { return LetterCase::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("case {} {} {} {}", static_cast<int>(config_.to), static_cast<int>(config_.sides),
                       config_.probability, text_of_growth(config_.growth));
  }
  [[nodiscard]] Stage stage() const override { return LetterCase::stage; }
  [[nodiscard]] bool is_random() const override { return config_.probability < 1; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    return is_random() && config_.growth ? grown(lengths, *config_.growth, config_.sides) : lengths;
  }
  [[nodiscard]] bool is_planned_by_draws() const override { return is_random() && !config_.growth; }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (is_random() && (random == nullptr || random->uniform() >= config_.probability)) return true;
    change_texts(example, config_.sides, [&](std::string_view text) {
      switch (config_.to) {
        case CaseKind::lower:
          return tokenizer::in_lower_case(text);
        case CaseKind::upper:
          return tokenizer::in_upper_case(text);
        case CaseKind::title:
          break;
      }
      return in_title_case(text);
    });
    return true;
  }

 private:
  LetterCase config_;
};

}  // namespace

std::unique_ptr<const Transform> LetterCase::make(const Materials&) const {
  return std::make_unique<CaseTransform>(*this);
}

}  // namespace argosy::data
