#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Puts the mask piece in n places of a side, with P(n) ∝ exp(-n · temperature).
struct TokenMask {
  static constexpr const char* type = "token_mask";
  static constexpr Stage stage = Stage::ids;
  double temperature = 1;
  Sides sides = Sides::source;
  std::string mask_piece = "<mask>";

  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::string>) const { return {mask_piece}; }
  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(TokenMask, (), (temperature, sides, mask_piece))
std::span<const config::KeyText> key_texts(const TokenMask&);
void validate(const TokenMask&, config::Problems&);

}  // namespace argosy::data
