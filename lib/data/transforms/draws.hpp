#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "data/tokenizer.hpp"

/// What transforms that add noise to ids have in common.
namespace argosy::data {

/// n of 0 to `most` with P(n) ∝ exp(-n · temperature); temperature > 0.
[[nodiscard]] std::int64_t draw_count(RandomStream& random, std::int64_t most, double temperature);

/// `count` distinct places of 0 to size - 1, ascending; all sets of places are equally likely.
[[nodiscard]] std::vector<std::size_t> draw_places(RandomStream& random, std::size_t size, std::size_t count);

template <class Value>
[[nodiscard]] const Value& draw_one(RandomStream& random, const std::vector<Value>& of) {
  return of[random.below(of.size())];
}

/// All ids that are pieces of text, in ascending order; at least one.
[[nodiscard]] std::vector<std::int32_t> ordinary_ids(const Tokenizer& tokenizer);

/// The id of a piece that the transform `type` needs. Throws Error{config} if the tokenizer does not have it.
[[nodiscard]] std::int32_t id_of_piece(const Tokenizer& tokenizer, std::string_view piece, std::string_view type);
[[nodiscard]] std::vector<std::int32_t> ids_of_pieces(const Tokenizer& tokenizer,
                                                      const std::vector<std::string>& pieces, std::string_view type);

}  // namespace argosy::data
