#include "soup/soup.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "core/error.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::soup {
namespace {

class SoupOnRanks : public testing::Test {
 protected:
  SoupOnRanks() {
    test::TestContext context{os, test::world(), test::Hierarchy::two_nodes};
    checkpoint::Store store{context.get(), run, {}};
    for (const int step : {10, 20, 30}) {
      test::Toy toy{test::large_units(), context.topology().layout(), context.topology().canonical_rank()};
      const auto report = store.save(checkpoint::Kind::temp, step, toy.fill(static_cast<std::uint64_t>(step)).states(),
                                     test::toy_sections(3.0 - step / 100.0), test::toy_attachments());
      EXPECT_TRUE(report.committed) << report.why_not;
      config.inputs.push_back(report.directory.string());
    }
    config.shard_bytes = 2'300'000;  // several files even of a small model
  }
  test::FaultyOs os;
  test::TempFolder own;
  Path folder = test::world().broadcast(own.path().string());
  Path run = folder / "run";
  SoupConfig config;
};

TEST_F(SoupOnRanks, BitsDoNotDependOnTheRankCount) {
  const int size = test::world().size(), rank = test::world().rank();
  std::vector<Path> soups;
  for (int ranks = 1; ranks <= size; ++ranks) {
    const comm::Communicator some = test::world().split(rank < ranks ? 0 : 1, rank);
    config.output = (folder / fmt::format("soup-{}", ranks)).string();
    soups.emplace_back(config.output);
    if (rank < ranks) {
      test::TestContext context{os, some};
      const SoupReport report = make_soup(context.get(), config);
      EXPECT_EQ(report.shards, 3);
      EXPECT_EQ(report.inputs, 3U);
    }
    test::world().barrier("soup done");
  }
  if (rank == 0) {
    for (const Path& soup : soups) {
      for (int shard = 0; shard < 3; ++shard) {
        const std::string name = checkpoint::shard_name(shard, 3);
        EXPECT_TRUE(Files::system().read_text(soup / name) == Files::system().read_text(soups[0] / name))
            << soup << " " << name;
      }
    }
  }
  test::world().barrier("compared");
}

TEST_F(SoupOnRanks, EqualsTheLongDoubleMean) {
  test::TestContext context{os, test::world()};
  config.output = (folder / "soup").string();
  static_cast<void>(make_soup(context.get(), config));
  const checkpoint::Reader reader{Files::system(), config.output};
  reader.verify();
  EXPECT_FALSE(reader.has_moments());
  EXPECT_EQ(reader.step(), 30);
  EXPECT_EQ(reader.attachment("tokenizer.model"), test::toy_attachments()[0].content);
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters()) {
    const std::vector<float> got = reader.read_parameter(parameter.name);
    for (std::size_t i = 0; i < got.size(); ++i) {
      long double sum = 0;
      for (const std::uint64_t seed : {10, 20, 30})
        sum += test::element(parameter.name, 0, static_cast<std::int64_t>(i), seed);
      const long double mean = sum / 3;
      const auto wanted = static_cast<float>(mean);
      const long double ulp =
          std::nextafter(std::abs(wanted), std::numeric_limits<float>::infinity()) - std::abs(wanted);
      ASSERT_LE(std::abs(static_cast<long double>(got[i]) - mean), 0.5L * ulp) << parameter.name << " " << i;
    }
  }
  test::world().barrier("compared");
}

TEST_F(SoupOnRanks, WeightsMultiplyInDoubleAndAreDividedByOnce) {
  test::TestContext context{os, test::world()};
  config.output = (folder / "soup").string();
  config.recipe = {.type = RecipeType::weighted, .weights = {0.1, 0.7, -0.3}};
  static_cast<void>(make_soup(context.get(), config));
  const checkpoint::Reader reader{Files::system(), config.output};
  const std::vector<float> got = reader.read_parameter("head/weight");
  for (std::size_t i = 0; i < got.size(); ++i) {
    long double sum = 0;
    for (const auto& [seed, weight] : {std::pair{10U, 0.1}, {20U, 0.7}, {30U, -0.3}})
      sum += static_cast<long double>(weight) * test::element("head/weight", 0, static_cast<std::int64_t>(i), seed);
    // Sums that cancel leave the roundings of fp64 alone.
    const auto wanted = static_cast<float>(sum / (0.1 + 0.7 - 0.3));
    ASSERT_NEAR(got[i], wanted, std::abs(wanted) * std::numeric_limits<float>::epsilon() + 1e-15) << i;
  }
  test::world().barrier("compared");
}

TEST_F(SoupOnRanks, AMeanThatFp32CannotHoldIsRefused) {
  test::TestContext context{os, test::world()};
  config.output = (folder / "soup").string();
  config.recipe = {.type = RecipeType::weighted, .weights = {1e39, 1e39, 1e39}, .normalize = false};
  test::refusal(Fault::numeric, [&] { make_soup(context.get(), config); });
  test::world().barrier("rank 0 has tidied up");
  EXPECT_EQ(Files::system().list(folder), (std::vector<std::string>{"run"}));
  test::world().barrier("looked");
}

TEST_F(SoupOnRanks, AnIngredientDamagedAnywhereLeavesNothing) {
  if (test::world().rank() == 0) {
    const Path shard = Path{config.inputs[1]} / checkpoint::shard_name(0, test::world().size());
    // The last byte of the weights that rank 0 holds of the first unit.
    const checkpoint::Reader reader{Files::system(), config.inputs[1]};
    const checkpoint::ShardIdentity identity{
        reader.run_uuid(), std::string(reader.manifest().at("save_nonce").as_string()), 20, 0, test::world().size()};
    const checkpoint::ShardMap map = checkpoint::open_shard(
        Files::system(), shard, identity, checkpoint::specs_of(reader.unit_names(), reader.spaces(), true, 0));
    test::flip(shard, map.datasets[0].offset + map.datasets[0].spec.size_bytes() / 2);
  }
  test::world().barrier("damaged");
  test::TestContext context{os, test::world()};
  config.output = (folder / "soup").string();
  const std::string said = test::refusal(Fault::corrupt, [&] { make_soup(context.get(), config); });
  EXPECT_NE(said.find("000000020"), std::string::npos) << said;
  test::world().barrier("rank 0 has tidied up");
  EXPECT_EQ(Files::system().list(folder), (std::vector<std::string>{"run"}));
  EXPECT_EQ(os.open_files(), 0U);
  test::world().barrier("looked");
}

TEST_F(SoupOnRanks, AFailedWriteOfOneRankLeavesNothing) {
  if (test::world().rank() == test::world().size() - 1)
    os.fail(test::Call::pwrite, os.count(test::Call::pwrite), ENOSPC, true);
  test::TestContext context{os, test::world()};
  config.output = (folder / "soup").string();
  test::refusal(Fault::io, [&] { make_soup(context.get(), config); });
  test::world().barrier("rank 0 has tidied up");
  EXPECT_EQ(Files::system().list(folder), (std::vector<std::string>{"run"}));
  test::world().barrier("looked");
}

}  // namespace
}  // namespace argosy::soup
