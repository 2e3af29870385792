#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out pairs whose target is their source. How often a target occurs in a corpus is nothing that a single pair
/// shows, so it does not matter.
struct DuplicateTarget {
  static constexpr const char* type = "duplicate_target";
  static constexpr Stage stage = Stage::text;
  static constexpr bool needs_pairs = true;
  bool ignore_case = false;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(DuplicateTarget, (), (ignore_case))
std::span<const config::KeyText> key_texts(const DuplicateTarget&);
void validate(const DuplicateTarget&, config::Problems&);

}  // namespace argosy::data
