#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// With a probability joins a pair to the 1 to `lines` pairs before it in its document, with blanks between them. How
/// many is drawn, and a document's first pair has none before it. `growth` is how many more pieces this may make.
struct Concatenate {
  static constexpr const char* type = "concatenate";
  static constexpr Stage stage = Stage::text;
  static constexpr bool needs_pairs = true;
  double probability = .5;
  std::int64_t lines = 1;
  std::optional<double> growth{};

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(Concatenate, (), (probability, lines, growth))
std::span<const config::KeyText> key_texts(const Concatenate&);
void validate(const Concatenate&, config::Problems&);

}  // namespace argosy::data
