#include "data/transforms/character_noise.hpp"

#include <fmt/format.h>

#include <vector>

#include "data/transforms/draws.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const CharacterNoise&) {
  static constexpr config::KeyText texts[] = {
      {"drop", "noise: probability that a character is left out"},
      {"swap", "noise: probability that a character changes places with the next one"},
      {"insert", "noise: probability that a random character of the same text follows a character"},
      {"repeat", "noise: probability that a character is written twice"},
      {"sides", "noise: source, target or both"},
      {"growth",
       "noise: how many more pieces an example may get; 0.25: a quarter; null: by what draws make of each example"},
  };
  return texts;
}

void validate(const CharacterNoise& config, config::Problems& problems) {
  for (const auto& [pointer, p] : {std::pair{"/drop", config.drop},
                                   {"/swap", config.swap},
                                   {"/insert", config.insert},
                                   {"/repeat", config.repeat}})
    require_in(problems, pointer, p, 0., 1.);
  const double sum = config.drop + config.swap + config.insert + config.repeat;
  problems.require(sum > 0 && sum <= 1, "/drop", "above 0 and at most 1 together with swap, insert and repeat",
                   fmt::format("{:.6g}", sum));
  if (config.growth) require_in(problems, "/growth", *config.growth, 0., most_growth);
}

namespace {

class NoiseTransform final : public Transform {
 public:
  explicit NoiseTransform(const CharacterNoise& config) : config_(config) {}

  [[nodiscard]] std::string_view type() const override { return CharacterNoise::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("noise {} {} {} {} {} {}", config_.drop, config_.swap, config_.insert, config_.repeat,
                       static_cast<int>(config_.sides), text_of_growth(config_.growth));
  }
  [[nodiscard]] Stage stage() const override { return CharacterNoise::stage; }
  [[nodiscard]] bool is_random() const override { return true; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    return config_.growth ? grown(lengths, *config_.growth, config_.sides) : lengths;
  }
  [[nodiscard]] bool is_planned_by_draws() const override { return is_random() && !config_.growth; }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (random == nullptr) return true;
    change_texts(example, config_.sides, [&](std::string_view text) { return misspelled(text, *random); });
    return true;
  }

 private:
  /// A text of which nothing would be left stays as it is.
  [[nodiscard]] std::string misspelled(std::string_view text, RandomStream& random) const {
    std::vector<char32_t> characters;
    for (std::size_t at = 0; at < text.size();) characters.push_back(tokenizer::next_character(text, at));
    std::string out;
    for (std::size_t i = 0; i < characters.size(); ++i) {
      double left = random.uniform();
      const auto happens = [&](double probability) {
        const bool now = left >= 0 && left < probability;
        left -= probability;
        return now;
      };
      if (happens(config_.drop)) continue;
      if (happens(config_.swap) && i + 1 < characters.size()) {
        tokenizer::append_utf8(out, characters[i + 1]);
        tokenizer::append_utf8(out, characters[i++]);
        continue;
      }
      tokenizer::append_utf8(out, characters[i]);
      if (happens(config_.insert)) tokenizer::append_utf8(out, draw_one(random, characters));
      if (happens(config_.repeat)) tokenizer::append_utf8(out, characters[i]);
    }
    return out.empty() ? std::string{text} : out;
  }

  CharacterNoise config_;
};

}  // namespace

std::unique_ptr<const Transform> CharacterNoise::make(const Materials&) const {
  return std::make_unique<NoiseTransform>(*this);
}

}  // namespace argosy::data
