#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/transforms/transform.hpp"

/// What filters on text have in common. They change nothing and draw nothing. A side without text is never at fault:
/// the pipeline leaves it out as "empty", or it is a language model's.
namespace argosy::data {

/// Why an example is left out, or nothing: it stays. For any number of threads.
using FindFault = std::function<std::optional<std::string>(const Example&)>;

/// recipe: all values that decide what `find` finds.
[[nodiscard]] std::unique_ptr<const Transform> make_filter(std::string_view type, std::string recipe, FindFault find);

/// `find` of the texts that an example has: the first fault, with the side it is on.
[[nodiscard]] FindFault on_each_side(std::function<std::optional<std::string>(std::string_view text)> find);

/// `find` of source and target, if there are both.
[[nodiscard]] FindFault on_pairs(
    std::function<std::optional<std::string>(std::string_view source, std::string_view target)> find);

}  // namespace argosy::data
