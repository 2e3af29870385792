#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Takes n pieces of a side out, with P(n) ∝ exp(-n · temperature); one stays at least.
struct TokenDrop {
  static constexpr const char* type = "token_drop";
  static constexpr Stage stage = Stage::ids;
  double temperature = 1;
  Sides sides = Sides::source;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(TokenDrop, (), (temperature, sides))
std::span<const config::KeyText> key_texts(const TokenDrop&);
void validate(const TokenDrop&, config::Problems&);

}  // namespace argosy::data
