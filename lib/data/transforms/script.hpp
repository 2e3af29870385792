#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out examples with letters of scripts that a side should not have. A side needs `threshold` of its letters in
/// its scripts. Letters that belong to no script are not counted, and a side without letters stays.
struct Script {
  static constexpr const char* type = "script";
  static constexpr Stage stage = Stage::text;
  std::vector<std::string> source{}, target{};  // names of scripts in Unicode; empty: the side is not looked at
  double threshold = 1;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(Script, (), (source, target, threshold))
std::span<const config::KeyText> key_texts(const Script&);
void validate(const Script&, config::Problems&);

}  // namespace argosy::data
