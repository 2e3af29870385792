#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Leaves out pairs whose sentence ends do not agree. Of a and b marks . ? ! … in source and target, the score is
/// -ln(|a - b| + max(0, a - 1) + max(0, b - 1) + 1); a pair stays from `threshold` on (Vázquez et al., WMT 2019).
struct TerminalPunctuation {
  static constexpr const char* type = "terminal_punctuation";
  static constexpr Stage stage = Stage::text;
  static constexpr bool needs_pairs = true;
  double threshold = -2;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials&) const;
};
BOOST_DESCRIBE_STRUCT(TerminalPunctuation, (), (threshold))
std::span<const config::KeyText> key_texts(const TerminalPunctuation&);
void validate(const TerminalPunctuation&, config::Problems&);

}  // namespace argosy::data
