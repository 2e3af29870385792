#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "data/tokenizer.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

/// What switchout, token_drop and token_mask have in common: they change n places of a side, with
/// P(n) ∝ exp(-n · temperature).
namespace argosy::data {

struct IdNoise {
  std::string_view type;
  double temperature;
  Sides sides;
  std::size_t spared;  // so many places of a side are never changed
  /// Changes the places, which ascend, of the ids; `loss` belongs to them, or is empty. For any number of threads.
  std::function<void(Side, std::vector<std::int32_t>& ids, std::vector<bool>& loss,
                     const std::vector<std::size_t>& places, RandomStream&)>
      change;
};

/// made(tokenizer) of both sides, by Side; of a side that is left as it is, nothing.
template <class Make>
[[nodiscard]] auto of_sides(const Tokenizer& tokenizer, Sides sides, Make&& make) {
  std::array<decltype(make(tokenizer)), 2> made{};
  for (const Side side : {Side::source, Side::target})
    if (sides != (side == Side::source ? Sides::target : Sides::source))
      made.at(static_cast<std::size_t>(side)) = make(tokenizer.side(side));
  return made;
}

/// recipe: what else decides what `change` does.
[[nodiscard]] std::unique_ptr<const Transform> make_id_noise(IdNoise noise, std::string_view recipe = "");

/// Checks the key `temperature`.
void validate_temperature(double temperature, config::Problems& problems);

}  // namespace argosy::data
