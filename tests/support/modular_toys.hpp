#pragma once

#include <string>
#include <vector>

#include "config/describe.hpp"
#include "model/stored_spec.hpp"
#include "spec/model_spec.hpp"
#include "support/saved_toys.hpp"
#include "support/small_model.hpp"

/// Checkpoints of small models whose tasks have parts of their own.
namespace argosy::test {

/// An encoder layer for each source and one for all, a decoder layer for each target.
inline spec::ModelConfig modular_config() {
  spec::ModelConfig config = model_config({.width = 8, .ff = 12, .heads = 2});
  config.decoder.layers.reset();
  config.encoder.stacks = {{1, spec::Share::source}, {1, spec::Share::all}};
  config.decoder.stacks = {{1, spec::Share::target}};
  return config;
}

inline Units units_of(const spec::ModelConfig& config, const spec::Sharing& sharing) {
  Units units;
  for (const spec::Unit& unit : spec::ModelSpec(spec::resolve(config, 37), sharing).units)
    units.emplace_back(unit.name, unit.flat());
  return units;
}

inline checkpoint::Sections sections_of(const spec::ModelConfig& config, const spec::Sharing& sharing) {
  checkpoint::Sections sections = toy_sections();
  sections.model =
      model::model_section(config, boost::json::value(Digest{}.hex()), 37, DType::f32, std::nullopt, sharing);
  return sections;
}

/// Tasks by name: "en-fr".
inline spec::Sharing sharing_of(const std::vector<std::string>& names) {
  spec::Sharing sharing;
  for (const std::string& name : names)
    sharing.tasks.push_back({name, name.substr(0, name.find('-')), name.substr(name.find('-') + 1)});
  return sharing;
}

/// Saves what a model trained from the seed `step` holds, as that step of a run. Returns its folder. **Collective.**
inline std::string save_modular(TestContext& context, const Path& run, std::int64_t step, const spec::Sharing& sharing,
                                const spec::ModelConfig& config = modular_config()) {
  checkpoint::Store store{context.get(), run, {}};
  const auto report = save_toy(store, own_toy(context, units_of(config, sharing)), step, checkpoint::Kind::temp,
                               sections_of(config, sharing));
  EXPECT_TRUE(report.committed) << report.why_not;
  return report.directory.string();
}

}  // namespace argosy::test
