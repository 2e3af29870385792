#include "data/transforms/prefix.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

std::string filled(std::string piece, std::span<const std::string> languages) {
  for (const std::string_view key : {from_mark, to_mark}) {
    for (std::size_t at = 0; (at = piece.find(key, at)) != std::string::npos;) {
      ARGOSY_CHECK(!languages.empty(), "{} without languages", piece);
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
    const auto ids_of = [&](const std::vector<std::string>& pieces) {
      std::vector<std::int32_t> ids;
      ids.reserve(pieces.size());
      for (const std::string& piece : pieces)
        ids.push_back(id_of_piece(materials.tokenizer, filled(piece, materials.languages), Prefix::type));
      return ids;
    };
    source_ = ids_of(config.source);
    target_ = ids_of(config.target);
  }

  [[nodiscard]] std::string_view type() const override { return Prefix::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("prefix {} | {} | {}", fmt::join(source_, " "), fmt::join(target_, " "), probability_);
  }
  [[nodiscard]] Stage stage() const override { return Prefix::stage; }
  [[nodiscard]] bool is_random() const override { return probability_ < 1; }
  [[nodiscard]] Lengths longest(Lengths lengths) const override {
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

std::vector<std::string> Prefix::pieces(std::span<const std::string> languages) const {
  std::vector<std::string> all;
  for (const auto* list : {&source, &target})
    for (const std::string& piece : *list) all.push_back(filled(piece, languages));
  return all;
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
