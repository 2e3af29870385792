#include <gmock/gmock.h>

#include "soup/soup.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"
#include "support/shared_folder.hpp"

/// Soups of running means.
namespace argosy::soup {
namespace {

class SoupOfMeans : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::uint64_t seed : {1, 2, 3}) {
      inputs.push_back((folder / fmt::format("{:09}", seed)).string());
      if (!context.get().is_root()) continue;
      test::write_checkpoint(Files::system(), inputs.back(), test::tiny_units(), partition::Layout{{2}}, seed,
                             {.run_uuid = std::string(32, 'a'),
                              .save_nonce = fmt::format("{:016}", seed),
                              .step = static_cast<std::int64_t>(seed)},
                             seed < 3);
    }
    context.get().world.barrier("inputs");
  }
  [[nodiscard]] SoupConfig config(std::size_t count, bool ema = true) const {
    SoupConfig config;
    config.inputs.assign(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(count));
    config.output = (folder / "soup").string();
    config.ema = ema;
    return config;
  }
  Os os;
  test::TestContext context{os, test::world()};
  test::SharedFolder folder;
  std::vector<std::string> inputs;
};

TEST_F(SoupOfMeans, AveragesThemInThePlaceOfTheWeights) {
  (void)make_soup(context.get(), config(2));
  SoupConfig weights = config(2, false);
  weights.output = (folder / "of weights").string();
  (void)make_soup(context.get(), weights);
  const checkpoint::Reader soup{Files::system(), folder / "soup"}, other{Files::system(), folder / "of weights"};
  EXPECT_FALSE(soup.has_ema());
  EXPECT_EQ(soup.sections().soup.at("of"), "ema");
  EXPECT_NE(soup.manifest().at("save_nonce"), other.manifest().at("save_nonce"));
  for (const auto& parameter : soup.parameters()) {
    const std::vector<float> values = soup.read_parameter(parameter.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const double sum = static_cast<double>(test::element(parameter.name, 3, at, 1)) +
                         static_cast<double>(test::element(parameter.name, 3, at, 2));
      ASSERT_EQ(values[i], static_cast<float>(sum / 2)) << parameter.name << " " << i;
    }
  }
}

TEST_F(SoupOfMeans, RefusesACheckpointWithoutOne) {
  EXPECT_THAT(test::refusal(Fault::data, [&] { make_soup(context.get(), config(3)); }),
              testing::HasSubstr("000000003"));
  EXPECT_FALSE(Files::system().exists(folder / "soup"));
}

TEST_F(SoupOfMeans, IsEvaluatedByTheMeansThoughTheWeightsOfItsMembersHaveBeen) {
  std::vector<double> seen;
  const Evaluator evaluator{.identity = "first element", .evaluate = [&](const checkpoint::Reader& reader) {
                              seen.push_back(reader.read_parameter("head/scale").front());
                              context.get().world.barrier("evaluated");
                              if (seen.size() == 3) throw Error{Fault::data, {.wanted = "more time"}};
                              return ValidationLoss{.loss = 1};
                            }};
  EXPECT_THROW((void)make_soup(context.get(), config(2, false), evaluator),
               Error);  // and leaves a journal of two losses
  (void)make_soup(context.get(), config(2), evaluator);
  ASSERT_EQ(seen.size(), 6U);
  for (const std::uint64_t seed : {1, 2}) {
    EXPECT_EQ(seen[seed - 1], test::element("head/scale", 0, 0, seed));
    EXPECT_EQ(seen[seed + 2], test::element("head/scale", 3, 0, seed));
  }
}

}  // namespace
}  // namespace argosy::soup
