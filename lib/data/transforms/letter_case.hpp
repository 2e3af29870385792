#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <optional>
#include <span>

#include "config/config.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

enum class CaseKind { lower, upper, title };
BOOST_DESCRIBE_ENUM(CaseKind, lower, upper, title)

/// Writes sides in lower case, in upper case, or with a capital at the beginning of each word and lower case after it,
/// by the rules of Unicode for no language. With a probability below 1 training does so with some examples, both sides
/// alike; `growth` is how many more pieces these may then have.
struct LetterCase {
  static constexpr const char* type = "case";
  static constexpr Stage stage = Stage::text;
  CaseKind to = CaseKind::lower;
  Sides sides = Sides::both;
  double probability = 1;
  std::optional<double> growth{};

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(LetterCase, (), (to, sides, probability, growth))
std::span<const config::KeyText> key_texts(const LetterCase&);
void validate(const LetterCase&, config::Problems&);

}  // namespace argosy::data
