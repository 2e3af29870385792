#include "data/transforms/concatenate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Concatenate&) {
  static constexpr config::KeyText texts[] = {
      {"probability", "concatenate: share of the examples that are joined to lines before them, 0 to 1"},
      {"lines", "concatenate: most lines before an example that are joined to it"},
      {"growth",
       "concatenate: how many more pieces an example may get; 1: as many again; null: by what draws make of each "
       "example"},
  };
  return texts;
}

void validate(const Concatenate& config, config::Problems& problems) {
  require_in(problems, "/probability", config.probability, 0., 1.);
  require_in(problems, "/lines", config.lines, 1, most_lines_before);
  if (config.growth) require_in(problems, "/growth", *config.growth, 0., most_growth);
}

namespace {

class ConcatenateTransform final : public Transform {
 public:
  explicit ConcatenateTransform(const Concatenate& config) : config_(config) {}

  [[nodiscard]] std::string_view type() const override { return Concatenate::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("concatenate {} {} {}", config_.probability, config_.lines, text_of_growth(config_.growth));
  }
  [[nodiscard]] Stage stage() const override { return Concatenate::stage; }
  [[nodiscard]] bool is_random() const override { return config_.probability < 1 || config_.lines > 1; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    return is_random() && config_.growth ? grown(lengths, *config_.growth) : lengths;
  }
  [[nodiscard]] bool is_planned_by_draws() const override { return is_random() && !config_.growth; }
  [[nodiscard]] std::int64_t lines_before() const override { return config_.lines; }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (is_random() && (random == nullptr || random->uniform() >= config_.probability)) return true;
    const auto most = std::min(example.before.size(), static_cast<std::size_t>(config_.lines));
    if (most == 0) return true;
    const std::size_t count = most == 1 ? 1 : 1 + random->below(most);
    for (std::size_t i = 0; i < count; ++i) {
      const Example::Lines& line = example.before.back();
      example.source_text = line.source + " " + example.source_text;
      example.target_text = line.target + " " + example.target_text;
      example.before.pop_back();  // it is part of the example now, and no context of it
    }
    return true;
  }

 private:
  Concatenate config_;
};

}  // namespace

std::unique_ptr<const Transform> Concatenate::make(const Materials&) const {
  return std::make_unique<ConcatenateTransform>(*this);
}

}  // namespace argosy::data
