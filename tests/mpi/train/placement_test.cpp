#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <boost/json/serialize.hpp>
#include <map>
#include <numeric>

#include "model/stored_model.hpp"
#include "mpi/train/material.hpp"
#include "support/refusal.hpp"

/// Runs whose ranks train some of the tasks each, and have the components of these.
namespace argosy::test {
namespace {

using plan::RunConfig;
using spec::Share;

class PlacedRun : public testing::Test {
 protected:
  /// Twelve directions between four languages, two of which have the text of the others: encoder blocks by source,
  /// for all and by target, decoder blocks by target.
  [[nodiscard]] RunConfig config(const std::string& name, const std::string& placement,
                                 const std::vector<std::string>& set = {},
                                 spec::EmbeddingShare embeddings = spec::EmbeddingShare::all) const {
    RunConfig config = Material::get().config(folder_ / name, set);
    config.data.shards = (folder_ / "shards").string();
    const data::CorpusConfig verses = config.data.corpora[0];
    const plan::ValidationSet valid = config.validation.sets[0];
    config.data.corpora.clear();
    config.validation.sets.clear();
    const auto is_english = [](const std::string& code) { return code < "m"; };
    for (const std::string source : {"aa", "bb", "yy", "zz"}) {
      for (const std::string target : {"aa", "bb", "yy", "zz"}) {
        if (source == target) continue;
        data::CorpusConfig& corpus = config.data.corpora.emplace_back(verses);
        corpus.name = source + "-" + target;
        corpus.languages = {source, target};
        corpus.source = is_english(source) ? verses.source : *verses.target;
        corpus.target = is_english(target) ? verses.source : *verses.target;
        if (corpus.name != "aa-zz" && corpus.name != "zz-bb") continue;
        plan::ValidationSet& own = config.validation.sets.emplace_back(valid);
        own.source = is_english(source) ? valid.source : *valid.target;
        own.target = is_english(target) ? valid.source : *valid.target;
        own.corpus = corpus.name;
      }
    }
    config.model.embeddings.share = embeddings;
    config.model.encoder.layers.reset();
    config.model.decoder.layers.reset();
    config.model.encoder.stacks = {
        {.layers = 1, .share = Share::source}, {.layers = 1}, {.layers = 1, .share = Share::target}};
    config.model.decoder.stacks = {{.layers = 1, .share = Share::target}};
    config.batch.global_size = 24 * config.batch.micro_size.value();
    config.placement = plan::PlacementConfig::parse(placement);
    return config;
  }
  void SetUp() override {
    const Log log{world().rank(), LogLevel::error};
    (void)data::run_preprocess(world(), Files::system(), log,
                               {.data = config("none", "everywhere").data, .cache = folder_ / "cache"});
  }
  /// Tasks by their source on one rank after the other; the last task on all ranks.
  [[nodiscard]] static std::string by_hand() {
    boost::json::object ranks;
    int next = 0;
    for (const std::string source : {"aa", "bb", "yy", "zz"})
      for (const std::string target : {"aa", "bb", "yy", "zz"})
        if (source != target) ranks[source + "-" + target] = boost::json::array{next++ / 3 % world().size()};
    boost::json::array& last = ranks["zz-yy"].get_array();
    last.clear();
    for (int rank = 0; rank < world().size(); ++rank) last.push_back(rank);
    return boost::json::serialize(ranks);
  }
  [[nodiscard]] static std::vector<double> losses(const Path& run) {
    std::vector<double> losses;
    for (const boost::json::object& line : metrics_lines(run))
      if (const auto* loss = line.if_contains("loss")) losses.push_back(loss->to_number<double>());
    return losses;
  }
  SharedFolder folder_;
};

TEST_F(PlacedRun, LearnsWhatRanksWithAllComponentsLearn) {
  struct Case {
    std::vector<std::string> set;
    spec::EmbeddingShare embeddings = spec::EmbeddingShare::all;
    Hierarchy hierarchy = Hierarchy::flat;
  };
  const std::vector<Case> cases{{{"sharding.zero_stage=1"}},
                                {{"sharding.zero_stage=3"}, spec::EmbeddingShare::language},
                                {{"sharding.zero_stage=3", "sharding.scope=hybrid", "optimizer.type=adafactor"},
                                 spec::EmbeddingShare::all,
                                 Hierarchy::two_nodes}};
  for (const auto& [set, embeddings, hierarchy] : cases) {
    const std::string setting = fmt::format("{}", fmt::join(set, " "));
    SCOPED_TRACE(setting);
    std::vector<std::string> settings = set;
    settings.emplace_back("validation.metrics=[\"loss\", \"bleu\"]");
    const auto run = [&](const std::string& name, const std::string& placement) {
      const train::TrainReport report =
          train_run(config(name + setting, placement, settings, embeddings), {}, hierarchy);
      EXPECT_EQ(report.exit, Exit::ok);
      const boost::json::object memory = report.figures.at("memory").as_object();
      EXPECT_EQ(memory.at("state_bytes"), memory.at("planned_state_bytes")) << placement;
      EXPECT_EQ(memory.at("state_off_plan_bytes"), 0) << placement << ", on every rank";
      EXPECT_EQ(memory.at("checkpoint_copy_bytes"), memory.at("planned_checkpoint_copy_bytes")) << placement;
      return memory.at("state_bytes").to_number<double>();
    };
    const double all_bytes = run("everywhere", "everywhere");
    for (const std::string& placement : {std::string("auto"), by_hand()}) {
      const std::string name = placement == "auto" ? "auto" : "hand";
      const double bytes = run(name, placement);
      const bool saves_weights = world().size() > 1 && setting == "sharding.zero_stage=1";
      EXPECT_TRUE(!saves_weights || bytes < all_bytes) << placement;
      const std::vector<double> expected = losses(folder_ / ("everywhere" + setting)),
                                found = losses(folder_ / (name + setting));
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6 * expected[i]) << i;
    }
  }
}

TEST_F(PlacedRun, ElasticSumsGiveTheBitsOfRanksWithAllComponents) {
  const std::vector<std::string> elastic{"sharding.reduction=elastic", "model.dropout=0.1"};
  const auto weights = [&](const std::string& name, const std::string& placement) {
    EXPECT_EQ(train_run(config(name, placement, elastic, spec::EmbeddingShare::language)).exit, Exit::ok);
    const checkpoint::Reader reader{Files::system(), folder_ / name / "export/000000006"};
    std::vector<std::vector<float>> all;
    for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
      all.push_back(reader.read_parameter(parameter.name));
    return all;
  };
  const auto expected = weights("everywhere", "everywhere");
  EXPECT_EQ(weights("auto", "auto"), expected);
  EXPECT_EQ(weights("hand", by_hand()), expected);
}

TEST_F(PlacedRun, GoesOnUnderAnotherPlacement) {
  const auto numbers = [&](const std::string& name) {
    const checkpoint::Reader reader{Files::system(), folder_ / name / "export/000000006"};
    std::vector<std::vector<float>> all;
    for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
      all.push_back(reader.read_parameter(parameter.name));
    return all;
  };
  for (const char* optimizer : {"adamw", "adafactor"}) {
    SCOPED_TRACE(optimizer);
    const bool elastic = std::string_view(optimizer) == "adamw";
    std::vector<std::string> set{fmt::format("optimizer.type={}", optimizer), "optimizer.ema=0.9"};
    if (elastic) set.emplace_back("sharding.reduction=elastic");
    const std::string whole = fmt::format("whole {}", optimizer), parts = fmt::format("parts {}", optimizer);
    EXPECT_EQ(train_run(config(whole, "everywhere", set)).exit, Exit::ok);
    EXPECT_EQ(train_run(config(parts, by_hand(), set), stop_behind(1, 0)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config(parts, "everywhere", set), stop_behind(3, 0)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config(parts, "auto", set), {}, Hierarchy::one_rank_a_node).exit, Exit::ok);
    const auto expected = numbers(whole), found = numbers(parts);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(!elastic || found == expected);
    const std::vector<double> expected_losses = losses(folder_ / whole), found_losses = losses(folder_ / parts);
    ASSERT_EQ(found_losses.size(), expected_losses.size());
    for (std::size_t i = 0; i < found_losses.size(); ++i)
      EXPECT_NEAR(found_losses[i], expected_losses[i], 1e-5 * expected_losses[i]) << i;
  }
}

TEST_F(PlacedRun, AdaptersLearnTheBitsOfRanksWithAllComponents) {
  EXPECT_EQ(train_run(config("old", "everywhere")).exit, Exit::ok);
  train::TrainOptions options;
  options.open_model = [](comm::Context&, const std::string& name) {
    return model::whole_model(std::make_unique<checkpoint::Reader>(Files::system(), name));
  };
  const auto values_of = [&](const std::string& name, const std::string& placement) {
    RunConfig config = this->config(name, placement, {"sharding.reduction=elastic", "sharding.zero_stage=2"});
    config.init_from = plan::InitFrom{{{.from = (folder_ / "old/export/000000006").string()}}};
    config.lora =
        spec::LoraConfig{.rank = 2, .dropout = 0.1, .targets = std::vector<std::string>{"encoder", "decoder.yy"}};
    const train::TrainReport report = train_run(config, options);
    EXPECT_EQ(report.exit, Exit::ok);
    const boost::json::object memory = report.figures.at("memory").as_object();
    EXPECT_EQ(memory.at("state_bytes"), memory.at("planned_state_bytes")) << placement;
    const checkpoint::Reader reader{Files::system(), Path{config.run_dir} / "export/000000006"};
    std::map<std::string, std::vector<float>> values;
    for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
      values[parameter.name] = reader.read_parameter(parameter.name);
    return values;
  };
  const auto everywhere = values_of("everywhere", "everywhere");
  EXPECT_EQ(values_of("by hand", by_hand()), everywhere);
  EXPECT_THAT(everywhere.at("encoder.zz/layer_0/ffn/linear_0/lora_B"), testing::Contains(testing::Ne(0.0F)));
}

TEST_F(PlacedRun, KeepsItsPlacementWhereThatIsAuto) {
  const auto owners = [&](std::int64_t step) {
    std::vector<std::vector<int>> found;
    const Path checkpoint = folder_ / "run" / fmt::format("{}/{:09}", step == 6 ? "export" : "checkpoints", step);
    const checkpoint::Reader reader{Files::system(), checkpoint};
    for (const partition::FlatSpace& space : reader.spaces()) found.push_back(space.owners());
    return found;
  };
  EXPECT_EQ(train_run(config("run", by_hand()), stop_behind(1, 0)).exit, Exit::stopped);
  EXPECT_EQ(train_run(config("run", "auto"), stop_behind(3, 0)).exit, Exit::stopped);
  EXPECT_EQ(owners(3), owners(2));
  EXPECT_EQ(train_run(config("run", "everywhere")).exit, Exit::ok);
  EXPECT_EQ(owners(6) == owners(3), world().size() == 1);
  const checkpoint::Reader reader{Files::system(), folder_ / "run/export/000000006"};
  EXPECT_THAT(config::text_of(reader.sections().history),
              testing::HasSubstr(world().size() == 1 ? "[]" : "placement: everywhere, was "));
}

TEST_F(PlacedRun, SaysTheShareOfIdleRanks) {
  const auto idle_share = [&](const std::string& name, const std::string& placement) {
    return train_run(config(name, placement)).figures.at("idle_share").to_number<double>();
  };
  const double everywhere = idle_share("everywhere", "everywhere");  // the last step of a pool is short
  RunConfig config = this->config("uneven", by_hand());
  for (auto& [task, ranks] : config.placement.tasks) ranks = {0};
  std::vector<int>& all = config.placement.tasks.begin()->second;
  all.resize(static_cast<std::size_t>(world().size()));
  std::iota(all.begin(), all.end(), 0);
  const double idle = train_run(config).figures.at("idle_share").to_number<double>();
  EXPECT_EQ(idle > everywhere + .1, world().size() > 1) << "rank 0 has nearly all tasks";
}

TEST_F(PlacedRun, SaysWhatDoesNotFitTheRanks) {
  RunConfig config = this->config("wrong", by_hand());
  for (auto& [task, ranks] : config.placement.tasks) ranks = {world().size()};
  EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(config); }), testing::HasSubstr("ranks from 0 to"));
  if (world().size() == 1) return;
  for (auto& [task, ranks] : config.placement.tasks) ranks = {0};
  EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(config); }), testing::HasSubstr("none for rank 1"));
}

}  // namespace
}  // namespace argosy::test
