#include "data/transforms/duplicate_target.hpp"

#include "data/transforms/filter.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const DuplicateTarget&) {
  static constexpr config::KeyText texts[] = {
      {"ignore_case", "duplicate_target: compare source and target in lower case"},
  };
  return texts;
}

void validate(const DuplicateTarget&, config::Problems&) {}

std::unique_ptr<const Transform> DuplicateTarget::make(const Materials&) const {
  const auto find = [ignores = ignore_case](std::string_view source,
                                            std::string_view target) -> std::optional<std::string> {
    const bool same = source == target || (ignores && tokenizer::lower_case(source) == tokenizer::lower_case(target));
    return same ? std::optional<std::string>{"the target is the source"} : std::nullopt;
  };
  return make_filter(type, ignore_case ? "any case" : "as it is", on_pairs(find));
}

}  // namespace argosy::data
