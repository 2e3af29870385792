#include "data/transforms/switchout.hpp"

#include "data/transforms/draws.hpp"
#include "data/transforms/id_noise.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Switchout&) {
  static constexpr config::KeyText texts[] = {
      {"temperature", "switchout: n pieces are replaced with a probability proportional to exp(-n x temperature)"},
      {"sides", "switchout: source, target or both"},
  };
  return texts;
}

void validate(const Switchout& config, config::Problems& problems) {
  validate_temperature(config.temperature, problems);
}

std::unique_ptr<const Transform> Switchout::make(const Materials& materials) const {
  const auto change = [live = of_sides(materials.tokenizer, sides, ordinary_ids)](
                          Side side, std::vector<std::int32_t>& ids, std::vector<bool>&,
                          const std::vector<std::size_t>& places, RandomStream& random) {
    for (const std::size_t place : places) ids[place] = draw_one(random, live.at(static_cast<std::size_t>(side)));
  };
  return make_id_noise({.type = type, .temperature = temperature, .sides = sides, .spared = 0, .change = change});
}

}  // namespace argosy::data
