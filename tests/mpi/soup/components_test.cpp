#include <gmock/gmock.h>

#include <set>

#include "soup/soup.hpp"
#include "support/modular_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::soup {
namespace {

class SoupOfComponents : public testing::Test {
 protected:
  SoupOfComponents() {
    config.components = config.allow_cross_run = true;
    const spec::Sharing first = test::sharing_of({"en-fr", "en-de"}), second = test::sharing_of({"fr-en", "en-fr"});
    config.inputs = {test::save_modular(context, folder / "a", 10, first),
                     test::save_modular(context, folder / "a", 20, first),
                     test::save_modular(context, folder / "b", 30, second)};
    config.output = (folder / "soup").string();
  }
  /// What it must be, of checkpoints that have the parameter.
  static float mean_of(const std::string& name, std::int64_t i, const std::map<std::uint64_t, double>& weights) {
    double sum = 0, divisor = 0;
    for (const auto& [seed, weight] : weights) {
      sum += weight * static_cast<double>(test::element(name, 0, i, seed));
      divisor += weight;
    }
    return static_cast<float>(sum / divisor);
  }

  Os os;
  test::TestContext context{os, test::world()};
  test::SharedFolder folder;
  SoupConfig config;
};

TEST_F(SoupOfComponents, EachIsTheMeanOverTheCheckpointsThatHaveIt) {
  config.recipe = {.type = RecipeType::weighted, .weights = {1, 2, 4}};
  config.shard_bytes = 5'000;
  const SoupResult result = make_soup(context.get(), config);
  EXPECT_GT(result.shards, 2);
  const checkpoint::Reader soup{Files::system(), config.output};
  model::require_own_parameters(soup);
  EXPECT_EQ(model::stored_sharing(soup), test::sharing_of({"en-fr", "en-de", "fr-en"}));
  EXPECT_EQ(soup.sections().soup.at("components"),
            (boost::json::value{{"encoder.fr", {2}}, {"decoder.de", {0, 1}}, {"decoder.en", {2}}}));
  EXPECT_EQ(soup.unit_names().size(), 7U) << "embedding, encoder.en.0, encoder.fr.0, encoder.1, decoder.*.0";
  std::set<std::string> alone;
  for (const checkpoint::Reader::Parameter& parameter : soup.parameters()) {
    const std::string component = parameter.name.substr(0, parameter.name.find('/'));
    const bool first_only = component == "decoder.de",
               second_only = component == "encoder.fr" || component == "decoder.en";
    const std::map<std::uint64_t, double> weights = first_only ? std::map<std::uint64_t, double>{{10, 1}, {20, 2}}
                                                    : second_only
                                                        ? std::map<std::uint64_t, double>{{30, 4}}
                                                        : std::map<std::uint64_t, double>{{10, 1}, {20, 2}, {30, 4}};
    if (weights.size() < 3) alone.insert(component);
    const std::vector<float> got = soup.read_parameter(parameter.name);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], mean_of(parameter.name, static_cast<std::int64_t>(i), weights)) << parameter.name << " " << i;
  }
  EXPECT_EQ(alone.size(), 3U);
  test::world().barrier("compared");
}

TEST_F(SoupOfComponents, TheOrderOfTasksIsNoDifference) {
  config.components = false;
  config.inputs[0] = test::save_modular(context, folder / "c", 10, test::sharing_of({"en-fr", "fr-en"}));
  config.inputs.erase(config.inputs.begin() + 1);
  (void)make_soup(context.get(), config);
  const checkpoint::Reader soup{Files::system(), config.output};
  model::require_own_parameters(soup);
  const std::string name = "encoder.fr/layer_0/ffn/linear_0/weight";
  EXPECT_EQ(soup.read_parameter(name)[5], mean_of(name, 5, {{10, 1}, {30, 1}}));
  test::world().barrier("compared");
}

}  // namespace
}  // namespace argosy::soup
