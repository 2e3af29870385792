#include "data/transforms/prefix.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "data/transforms/draws.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Prefix&) {
  static constexpr config::KeyText texts[] = {
      {"source", "prefix: pieces put before the source; {from} and {to} are the corpus's languages"},
      {"target", "prefix: pieces put before the target"},
      {"probability", "prefix: share of the examples that training gives the pieces, 0 to 1"},
  };
  return texts;
}

void validate(const Prefix& config, config::Problems& problems) {
  for (const auto& [pointer, pieces] : {std::pair{"/source", &config.source}, {"/target", &config.target}})
    for (std::size_t i = 0; i < pieces->size(); ++i)
      require_piece(problems, fmt::format("{}/{}", pointer, i), (*pieces)[i]);
  problems.require(!config.source.empty() || !config.target.empty(), "/source", "pieces for source or target", "none");
  require_in(problems, "/probability", config.probability, 0., 1.);
}

namespace {

constexpr std::string_view from_mark = "{from}", to_mark = "{to}";

std::string filled_piece(std::string piece, std::span<const std::string> languages) {
  if (languages.empty()) return piece;
  for (const std::string_view key : {from_mark, to_mark}) {
    for (std::size_t at = 0; (at = piece.find(key, at)) != std::string::npos;) {
      const std::string& code = key == from_mark ? languages.front() : languages.back();
      piece.replace(at, key.size(), code);
      at += code.size();
    }
  }
  return piece;
}

class PrefixTransform final : public Transform {
 public:
  PrefixTransform(const Prefix& config, const Materials& materials) : probability_(config.probability) {
    const Prefix filled = config.filled(materials.languages);
    source_ = ids_of_pieces(materials.tokenizer.side(Side::source), filled.source, Prefix::type);
    target_ = ids_of_pieces(materials.tokenizer.side(Side::target), filled.target, Prefix::type);
  }

  [[nodiscard]] std::string_view type() const override { return Prefix::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("prefix {} | {} | {}", fmt::join(source_, " "), fmt::join(target_, " "), probability_);
  }
  [[nodiscard]] Stage stage() const override { return Prefix::stage; }
  [[nodiscard]] bool is_random() const override { return probability_ < 1; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    if (!is_random()) return lengths;
    return {.source = lengths.source + narrow<std::uint32_t>(source_.size()),
            .target = lengths.target + narrow<std::uint32_t>(target_.size())};
  }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (random != nullptr && random->uniform() >= probability_) return true;
    example.source.insert(example.source.begin(), source_.begin(), source_.end());
    example.target.insert(example.target.begin(), target_.begin(), target_.end());
    if (!example.loss.empty()) example.loss.insert(example.loss.begin(), target_.size(), true);
    return true;
  }

 private:
  double probability_;
  std::vector<std::int32_t> source_, target_;
};

}  // namespace

Prefix Prefix::filled(std::span<const std::string> languages) const {
  Prefix filled = *this;
  for (auto* list : {&filled.source, &filled.target})
    for (std::string& piece : *list) piece = filled_piece(std::move(piece), languages);
  return filled;
}

std::vector<std::string> Prefix::pieces(std::span<const std::string> languages) const {
  Prefix all = filled(languages);
  std::ranges::move(all.target, std::back_inserter(all.source));
  return std::move(all.source);
}

bool Prefix::names_languages() const {
  const auto names = [](const std::string& piece) {
    return piece.find(from_mark) != piece.npos || piece.find(to_mark) != piece.npos;
  };
  return std::ranges::any_of(source, names) || std::ranges::any_of(target, names);
}

std::unique_ptr<const Transform> Prefix::make(const Materials& materials) const {
  return std::make_unique<PrefixTransform>(*this, materials);
}

}  // namespace argosy::data
