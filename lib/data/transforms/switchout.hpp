#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Puts random pieces of the vocabulary in n places of a side, with P(n) ∝ exp(-n · temperature) (SwitchOut: Wang et
/// al., arXiv:1808.07512).
struct Switchout {
  static constexpr const char* type = "switchout";
  static constexpr Stage stage = Stage::ids;
  double temperature = 1;
  Sides sides = Sides::both;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Switchout, (), (temperature, sides))
std::span<const config::KeyText> key_texts(const Switchout&);
void validate(const Switchout&, config::Problems&);

}  // namespace argosy::data
