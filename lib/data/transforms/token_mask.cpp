#include "data/transforms/token_mask.hpp"

#include "data/transforms/draws.hpp"
#include "data/transforms/id_noise.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const TokenMask&) {
  static constexpr config::KeyText texts[] = {
      {"temperature", "token_mask: n pieces are masked with a probability proportional to exp(-n x temperature)"},
      {"sides", "token_mask: source, target or both"},
      {"mask_piece", "token_mask: the piece that is put in their place"},
  };
  return texts;
}

void validate(const TokenMask& config, config::Problems& problems) {
  validate_temperature(config.temperature, problems);
  require_piece(problems, "/mask_piece", config.mask_piece);
}

std::unique_ptr<const Transform> TokenMask::make(const Materials& materials) const {
  const auto masks = of_sides(materials.tokenizer, sides,
                              [&](const Tokenizer& tokenizer) { return id_of_piece(tokenizer, mask_piece, type); });
  const auto change = [masks](Side side, std::vector<std::int32_t>& ids, std::vector<bool>&,
                              const std::vector<std::size_t>& places, RandomStream&) {
    for (const std::size_t place : places) ids[place] = masks.at(static_cast<std::size_t>(side));
  };
  return make_id_noise({.type = type, .temperature = temperature, .sides = sides, .spared = 0, .change = change},
                       mask_piece);
}

}  // namespace argosy::data
