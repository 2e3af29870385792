#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/stored_model.hpp"
#include "mpi/train/material.hpp"

/// Runs whose tasks share only parts of the model.
namespace argosy::test {

class ModularRun : public testing::Test {
 protected:
  /// English to Spanish, and back; each language has an encoder block, and a decoder block, of its own.
  [[nodiscard]] plan::RunConfig config(const std::string& name, spec::Share source = spec::Share::source,
                                       spec::Share target = spec::Share::target) const {
    plan::RunConfig config = with_two_corpora(folder_);
    config.run_dir = (folder_ / name).string();
    config.data.shards = (folder_ / "shards").string();
    config.batch.pool = 200;
    config.data.corpora[1].name = "back";
    std::swap(config.data.corpora[1].source, *config.data.corpora[1].target);
    config.data.corpora[0].languages = {"en", "es"};
    config.data.corpora[1].languages = {"es", "en"};
    config.validation.sets[0].corpus = config.data.corpora[0].name;
    config.validation.sets.push_back(config.validation.sets[0]);
    config.validation.sets[1].corpus = "back";
    std::swap(config.validation.sets[1].source, *config.validation.sets[1].target);
    config.model.encoder.layers.reset();
    config.model.decoder.layers.reset();
    config.model.encoder.stacks = {{.layers = 1, .share = source}, {.layers = 1}};
    config.model.decoder.stacks = {{.layers = 1}, {.layers = 1, .share = target}};
    config.batch.global_size = 4 * world().size() * config.batch.micro_size.value();
    return config;
  }
  /// The same at a ZeRO stage, in a folder "NAME STAGE"; it translates in validations.
  [[nodiscard]] plan::RunConfig staged(const std::string& name, int stage) const {
    plan::RunConfig config = this->config(fmt::format("{} {}", name, stage));
    config.sharding.zero_stage = stage;
    config.validation.metrics = {plan::Metric::loss, plan::Metric::bleu};
    return config;
  }
  /// The Spanish of the run "old" becomes a new language, and what is kept of that run is frozen.
  void add_language(plan::RunConfig& config, const std::vector<std::string>& kept) const {
    config.data.corpora[0].languages = {"en", "xx"};
    config.data.corpora[1].languages = {"xx", "en"};
    config.init_from = plan::InitFrom{
        {{.from = (folder_ / "old/export/000000006").string(), .components = {kept}, .allow_new = true}}};
    config.freeze = kept;
  }
  [[nodiscard]] static train::TrainOptions opens_checkpoints() {
    train::TrainOptions options;
    options.open_model = [](comm::Context&, const std::string& name) {
      return model::whole_model(std::make_unique<checkpoint::Reader>(Files::system(), name));
    };
    return options;
  }
  SharedFolder folder_;
};

}  // namespace argosy::test
