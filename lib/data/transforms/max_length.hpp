#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out pairs with a side of more pieces than this, EOS not counted.
struct MaxLength {
  static constexpr const char* type = "max_length";
  static constexpr Stage stage = Stage::ids;
  std::int64_t source = 200, target = 200;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(MaxLength, (), (source, target))
std::span<const config::KeyText> key_texts(const MaxLength&);
void validate(const MaxLength&, config::Problems&);

}  // namespace argosy::data
