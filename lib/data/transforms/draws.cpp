#include "data/transforms/draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.hpp"

namespace argosy::data {

// The inverse of the distribution function of a geometric distribution that ends at `most`.
std::int64_t draw_count(RandomStream& random, std::int64_t most, double temperature) {
  const double all = std::expm1(-temperature * static_cast<double>(most + 1));
  const double count = std::floor(-std::log1p(random.uniform() * all) / temperature);
  return std::min(most, static_cast<std::int64_t>(count));
}

// Floyd (Bentley, "Programming Pearls", CACM 1987).
std::vector<std::size_t> draw_places(RandomStream& random, std::size_t size, std::size_t count) {
  std::set<std::size_t> places;
  for (std::size_t last = size - count; last < size; ++last)
    if (!places.insert(random.below(last + 1)).second) places.insert(last);
  return {places.begin(), places.end()};
}

std::vector<std::int32_t> ordinary_ids(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::int64_t id = 0; id < tokenizer.vocabulary().pieces; ++id)
    if (tokenizer.is_ordinary(id)) ids.push_back(narrow<std::int32_t>(id));
  if (ids.empty())
    throw_error(Fault::config, "data.tokenizer", "pieces of text", "special pieces only", "use another tokenizer");
  return ids;
}

std::int32_t id_of_piece(const Tokenizer& tokenizer, std::string_view piece, std::string_view type) {
  const auto id = tokenizer.id_of(piece);
  if (!id)
    throw_claim(Fault::config, fmt::format("the tokenizer has no piece {}, which the transform {} needs", piece, type),
                "data.tokenizer", fmt::format("a tokenizer with the piece {}", piece), "none",
                "train the tokenizer with data.tokenizer_training, which adds such pieces, or use one that has it");
  return narrow<std::int32_t>(*id);
}

std::vector<std::int32_t> ids_of_pieces(const Tokenizer& tokenizer, const std::vector<std::string>& pieces,
                                        std::string_view type) {
  std::vector<std::int32_t> ids;
  ids.reserve(pieces.size());
  for (const std::string& piece : pieces) ids.push_back(id_of_piece(tokenizer, piece, type));
  return ids;
}

}  // namespace argosy::data
