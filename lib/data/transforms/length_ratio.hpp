#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out pairs of which one side has more than `threshold` times the words of the other. Words are what white
/// space separates.
struct LengthRatio {
  static constexpr const char* type = "length_ratio";
  static constexpr Stage stage = Stage::text;
  static constexpr bool needs_pairs = true;
  double threshold = 3;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(LengthRatio, (), (threshold))
std::span<const config::KeyText> key_texts(const LengthRatio&);
void validate(const LengthRatio&, config::Problems&);

}  // namespace argosy::data
