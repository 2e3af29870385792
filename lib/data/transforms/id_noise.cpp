#include "data/transforms/id_noise.hpp"

#include <fmt/format.h>

#include <utility>

#include "data/transforms/draws.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {
namespace {

class IdNoiseTransform final : public Transform {
 public:
  IdNoiseTransform(IdNoise noise, std::string_view recipe)
      : noise_(std::move(noise)),
        recipe_(fmt::format("{} {} {} {}", noise_.type, noise_.temperature, static_cast<int>(noise_.sides), recipe)) {}

  [[nodiscard]] std::string_view type() const override { return noise_.type; }
  [[nodiscard]] std::string recipe() const override { return recipe_; }
  [[nodiscard]] Stage stage() const override { return Stage::ids; }
  [[nodiscard]] bool is_random() const override { return true; }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (random == nullptr) return true;
    change_ids(example, noise_.sides, [&](std::vector<std::int32_t>& ids) {
      if (ids.size() <= noise_.spared) return;
      const std::int64_t count =
          draw_count(*random, std::ssize(ids) - narrow<std::int64_t>(noise_.spared), noise_.temperature);
      std::vector<bool> none;
      const bool is_target = &ids == &example.target;
      noise_.change(is_target ? Side::target : Side::source, ids, is_target ? example.loss : none,
                    draw_places(*random, ids.size(), static_cast<std::size_t>(count)), *random);
    });
    return true;
  }

 private:
  IdNoise noise_;
  std::string recipe_;
};

}  // namespace

std::unique_ptr<const Transform> make_id_noise(IdNoise noise, std::string_view recipe) {
  return std::make_unique<IdNoiseTransform>(std::move(noise), recipe);
}

void validate_temperature(double temperature, config::Problems& problems) {
  require_in(problems, "/temperature", temperature, 1e-3, 1e3);
}

}  // namespace argosy::data
