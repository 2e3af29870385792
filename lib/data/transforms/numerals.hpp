#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out pairs whose digits do not agree: twice the digits that both sides have, over those of both. Digits are
/// counted as often as they occur, 0 is left out, and 7 is 7 in any script (Vázquez et al., WMT 2019).
struct Numerals {
  static constexpr const char* type = "numerals";
  static constexpr Stage stage = Stage::text;
  static constexpr bool needs_pairs = true;
  double threshold = .5;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(Numerals, (), (threshold))
std::span<const config::KeyText> key_texts(const Numerals&);
void validate(const Numerals&, config::Problems&);

}  // namespace argosy::data
