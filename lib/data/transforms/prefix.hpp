#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Puts whole pieces before a side, such as the language to translate into: {from} and {to} in them are the codes of
/// the corpus's languages. With a probability below 1 training leaves them out of some examples.
struct Prefix {
  static constexpr const char* type = "prefix";
  static constexpr Stage stage = Stage::ids;
  std::vector<std::string> source{}, target{};
  double probability = 1;

  /// All pieces that it needs of the tokenizer.
  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::string> languages) const;
  /// The same with {from} and {to} filled in.
  [[nodiscard]] Prefix filled(std::span<const std::string> languages) const;
  /// Whether a piece names a language.
  [[nodiscard]] bool names_languages() const;
  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Prefix, (), (source, target, probability))
std::span<const config::KeyText> key_texts(const Prefix&);
void validate(const Prefix&, config::Problems&);

}  // namespace argosy::data
