#include "data/transforms/token_drop.hpp"

#include "data/transforms/id_noise.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const TokenDrop&) {
  static constexpr config::KeyText texts[] = {
      {"temperature", "token_drop: n pieces are removed with a probability proportional to exp(-n x temperature)"},
      {"sides", "token_drop: source, target or both"},
  };
  return texts;
}

void validate(const TokenDrop& config, config::Problems& problems) {
  validate_temperature(config.temperature, problems);
}

std::unique_ptr<const Transform> TokenDrop::make(const Materials&) const {
  const auto change = [](Side, std::vector<std::int32_t>& ids, std::vector<bool>& loss,
                         const std::vector<std::size_t>& places, RandomStream&) {
    const auto remove = [&](auto& values) {
      if (values.empty()) return;
      std::size_t kept = 0, next = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (next < places.size() && places[next] == i)
          ++next;
        else
          values[kept++] = values[i];
      }
      values.resize(kept);
    };
    remove(ids);
    remove(loss);
  };
  return make_id_noise({.type = type, .temperature = temperature, .sides = sides, .spared = 1, .change = change});
}

}  // namespace argosy::data
