#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out examples with a side that is mostly punctuation, digits and symbols: more than `threshold` of its
/// characters, white space left out.
struct Punctuation {
  static constexpr const char* type = "punctuation";
  static constexpr Stage stage = Stage::text;
  double threshold = .5;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(Punctuation, (), (threshold))
std::span<const config::KeyText> key_texts(const Punctuation&);
void validate(const Punctuation&, config::Problems&);

}  // namespace argosy::data
