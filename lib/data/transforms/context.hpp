#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Puts the lines before an example in its document in front of it, each followed by the piece `separator`, so that a
/// sentence is translated with its context (Tiedemann and Scherrer, DiscoMT 2017). Lines before the target bear no
/// loss. Where a side would have more than `max_pieces`, its first lines are left out, whole; its own line stays. The
/// lines are as the file has them, in their best segmentation.
struct Context {
  static constexpr const char* type = "context";
  static constexpr Stage stage = Stage::ids;
  static constexpr bool needs_pairs = true;
  std::int64_t source_previous = 0, target_previous = 0, max_pieces = 200;
  std::string separator = "<sep>";

  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::string>) const { return {separator}; }
  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Context, (), (source_previous, target_previous, max_pieces, separator))
std::span<const config::KeyText> key_texts(const Context&);
void validate(const Context&, config::Problems&);

}  // namespace argosy::data
