#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out examples in which a string of `min` to `max` characters that begins with no space is followed by `count`
/// copies of itself. Spaces may stand before a copy. All white space counts as spaces, one like the other.
struct Repetition {
  static constexpr const char* type = "repetition";
  static constexpr Stage stage = Stage::text;
  std::int64_t count = 2, min = 3, max = 100;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(Repetition, (), (count, min, max))
std::span<const config::KeyText> key_texts(const Repetition&);
void validate(const Repetition&, config::Problems&);

}  // namespace argosy::data
