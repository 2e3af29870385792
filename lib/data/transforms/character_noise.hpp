#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <optional>
#include <span>

#include "config/config.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Misspells sides: each character is left out, exchanged with the next one, followed by a random character of the same
/// text, or written twice, with these probabilities. `growth` is how many more pieces a misspelled text may have.
struct CharacterNoise {
  static constexpr const char* type = "noise";
  static constexpr Stage stage = Stage::text;
  double drop = 0, swap = 0, insert = 0, repeat = 0;
  Sides sides = Sides::source;
  std::optional<double> growth{};

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(CharacterNoise, (), (drop, swap, insert, repeat, sides, growth))
std::span<const config::KeyText> key_texts(const CharacterNoise&);
void validate(const CharacterNoise&, config::Problems&);

}  // namespace argosy::data
