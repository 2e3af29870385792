#pragma once

#include <boost/describe.hpp>
#include <memory>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Text to ids by the tokenizer: the best segmentation.
struct Subword {
  static constexpr const char* type = "subword";
  static constexpr Stage stage = Stage::tokenize;

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Subword, (), ())
std::span<const config::KeyText> key_texts(const Subword&);
void validate(const Subword&, config::Problems&);

}  // namespace argosy::data
