#include "soup/soup.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_set.hpp"
#include "support/faulty_os.hpp"
#include "support/on_root.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::soup {
namespace {

using testing::HasSubstr;

/// Ranks share the elements to compare.
std::size_t rank() { return static_cast<std::size_t>(test::world().rank()); }
std::size_t ranks() { return static_cast<std::size_t>(test::world().size()); }

checkpoint::Sections sections_at(int step) {
  checkpoint::Sections sections = test::toy_sections(3.0 - step / 100.0);
  sections.optimizer = {{"step", step - 1}, {"component_steps", {{"encoder.en", step - 5}}}};
  sections.counters = {{"tgt_tokens", step * 100}};
  return sections;
}

class SoupOnRanks : public testing::Test {
 protected:
  SoupOnRanks() {
    test::TestContext two_nodes{os, test::world(), test::Hierarchy::two_nodes};
    config.inputs = test::save_three(two_nodes, folder / "run", test::large_units(), sections_at);
    config.shard_bytes = 2'300'000;  // several files even of a small model
  }
  /// Makes the soup of `config` under that name.
  SoupResult make(const std::string& name = "soup") {
    config.output = (folder / name).string();
    return make_soup(context.get(), config);
  }
  std::string refusal(Fault fault) {
    return test::refusal(fault, [&] { make(); });
  }
  void expect_nothing_left() { EXPECT_EQ(folder.names(), std::vector<std::string>{"run"}); }

  test::FaultyOs os;
  test::TestContext context{os, test::world()};
  test::SharedFolder folder;
  SoupConfig config;
};

TEST_F(SoupOnRanks, BitsDoNotDependOnTheRankCount) {
  const int size = test::world().size(), rank = test::world().rank();
  for (const auto& [dtype, shards] : {std::pair{DType::f32, 3}, {DType::bf16, 2}}) {
    config.dtype = dtype;
    std::vector<Path> soups;
    for (int ranks = 1; ranks <= size; ++ranks) {
      const comm::Communicator some = test::world().split(rank < ranks ? 0 : 1, rank);
      config.output = (folder / fmt::format("{}-{}", name_of(dtype), ranks)).string();
      soups.emplace_back(config.output);
      if (rank < ranks) {
        test::TestContext on_some{os, some};
        const SoupResult report = make_soup(on_some.get(), config);
        EXPECT_EQ(std::tuple(report.shards, report.inputs), std::tuple(shards, 3U));
      }
      test::world().barrier("soup done");
    }
    test::on_root([&] {
      for (const Path& soup : soups)
        for (int shard = 0; shard < shards; ++shard) {
          const std::string name = checkpoint::shard_name(shard, shards);
          EXPECT_TRUE(Files::system().read_text(soup / name) == Files::system().read_text(soups[0] / name))
              << soup << " " << name;
        }
    });
  }
}

/// The bf16 nearest to a value, the even one of two that are as near.
float nearest_bf16(long double value) {
  const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
  std::uint16_t best = bits;
  for (const int offset : {-1, 1}) {
    const auto other = static_cast<std::uint16_t>(bits + offset);
    const long double gain = std::abs(value - f32_from_bf16(best)) - std::abs(value - f32_from_bf16(other));
    if (gain > 0 || (gain == 0 && other % 2 == 0)) best = other;
  }
  return f32_from_bf16(best);
}

TEST_F(SoupOnRanks, Bf16IsTheNearestToTheMeanRoundedOnce) {
  config.dtype = DType::bf16;
  // Sums that fp64 holds exactly and fp32 does not.
  config.recipe = {.type = RecipeType::weighted, .weights = {1, 0x1p-12, 0x1p-13}, .normalize = false};
  const SoupResult report = make();
  EXPECT_LT(static_cast<double>(report.bytes_written), 2.01 * static_cast<double>(report.parameters));
  const checkpoint::Reader reader{Files::system(), config.output};
  EXPECT_TRUE(reader.verify().finite);
  EXPECT_EQ(reader.weights(), DType::bf16);
  checkpoint::WeightStream stream = reader.stream();
  std::size_t narrow = 0, at_tie_in_fp32 = 0;
  for (std::size_t id = 0; id < reader.parameters().size(); ++id) {
    const std::string& name = reader.parameters()[id].name;
    const std::vector<float> got = reader.read_parameter(name);
    std::vector<float> streamed(got.size());
    stream.read(id, 0, streamed);
    EXPECT_EQ(got, streamed) << name;
    for (std::size_t i = rank(); i < got.size(); i += ranks()) {
      long double mean = 0;
      for (const auto& [seed, weight] : {std::pair{10, 1.0}, {20, 0x1p-12}, {30, 0x1p-13}})
        mean += weight * static_cast<long double>(
                             test::element(name, 0, static_cast<std::int64_t>(i), static_cast<std::uint64_t>(seed)));
      ASSERT_EQ(got[i], nearest_bf16(mean)) << name << " " << i;
      narrow += got[i] == static_cast<float>(mean) ? 0 : 1;
      at_tie_in_fp32 += bf16_from_f32(static_cast<float>(mean)) == bf16_from_f32(got[i]) ? 0 : 1;
    }
  }
  stream.finish();
  EXPECT_GT(narrow, 300'000U);
  std::int64_t ties[] = {static_cast<std::int64_t>(at_tie_in_fp32)};
  test::world().all_reduce(ties);
  EXPECT_GT(ties[0], 0) << "rounding to fp32 first is another mean";
}

TEST_F(SoupOnRanks, SoupsOfOneTypeMakeASoup) {
  const std::vector<std::string> inputs = config.inputs;
  std::vector<std::string> soups;
  config.dtype = DType::bf16;
  for (const int left_out : {0, 1}) {
    config.inputs = inputs;
    config.inputs.erase(config.inputs.begin() + left_out);
    make(fmt::format("without-{}", left_out));
    soups.push_back(config.output);
  }
  config.allow_soup = true;
  config.inputs = soups;
  config.dtype = DType::f32;
  make();
  const checkpoint::Reader one{Files::system(), soups[0]}, two{Files::system(), soups[1]};
  EXPECT_NE(one.manifest().at("save_nonce"), two.manifest().at("save_nonce")) << "no shard passes for the other's";
  const std::vector<float> a = one.read_parameter("head/weight"), b = two.read_parameter("head/weight");
  const std::vector<float> got = checkpoint::Reader(Files::system(), config.output).read_parameter("head/weight");
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], (a[i] + b[i]) / 2) << i;

  config.inputs = {inputs[0], soups[0]};
  EXPECT_THAT(test::refusal(Fault::data, [&] { make("mixed"); }),
              HasSubstr("expected weights of type f32, like the first input, got bf16"));
}

TEST_F(SoupOnRanks, EqualsTheLongDoubleMean) {
  make();
  const checkpoint::Reader reader{Files::system(), config.output};
  reader.verify();
  EXPECT_FALSE(reader.has_optimizer_state());
  EXPECT_EQ(reader.step(), 30);
  EXPECT_EQ(reader.attachment("tokenizer.model"), test::toy_attachments()[0].content);
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters()) {
    const std::vector<float> got = reader.read_parameter(parameter.name);
    for (std::size_t i = rank(); i < got.size(); i += ranks()) {
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
}

/// Moment `tensor` of an element in a soup of steps 10, 20 and 30.
float moment_of(Moments moments, const std::string& name, int tensor, std::int64_t i) {
  if (moments == Moments::zero) return 0;
  if (moments == Moments::first) return test::element(name, tensor, i, 10);
  double sum = 0;
  for (const std::uint64_t seed : {10, 20, 30}) sum += test::element(name, tensor, i, seed);
  return static_cast<float>(sum / 3);
}

TEST_F(SoupOnRanks, MomentsAreDroppedZeroTheFirstOnesOrAveraged) {
  config.shard_bytes = 5'000'000;
  std::swap(config.inputs[1], config.inputs[2]);  // the newest is the newest wherever it stands
  for (const Moments moments : {Moments::zero, Moments::first, Moments::avg}) {
    config.moments = moments;
    EXPECT_EQ(make(name_of(moments)).shards, 4) << "weights and moments";
    const checkpoint::Reader reader{Files::system(), config.output};
    EXPECT_TRUE(reader.has_optimizer_state());
    reader.verify(test::world().rank(), test::world().size());
    EXPECT_EQ(reader.step(), 30);
    EXPECT_TRUE(reader.sections().metrics.empty());
    EXPECT_EQ(reader.sections().optimizer.at("step"), moments == Moments::zero    ? 0
                                                      : moments == Moments::first ? 9
                                                                                  : 29);
    const boost::json::value* const of_components = reader.sections().optimizer.if_contains("component_steps");
    EXPECT_EQ(of_components == nullptr, moments == Moments::zero);
    if (of_components != nullptr) {
      EXPECT_EQ(of_components->at("encoder.en"), moments == Moments::first ? 5 : 25);
    }
    EXPECT_EQ(reader.sections().counters.at("tgt_tokens"), 3000) << "the newest one's";
    EXPECT_EQ(reader.sections().history.back().at("change"), "weights: the mean of 3 checkpoints");
    test::Toy got = test::own_toy(context, test::large_units()).fill_all(9);
    const int canonical_rank = context.topology().canonical_rank();
    reader.read_state(got.states(), canonical_rank);
    for (std::size_t u = 0; u < got.spaces().size(); ++u) {
      for (const partition::Interval& mine : partition::intervals_of(got.spaces()[u], canonical_rank)) {
        const std::string& name = got.spaces()[u].params()[mine.param].name;
        for (std::int64_t i = mine.begin; i < mine.end; i += 3) {
          const auto at = static_cast<std::size_t>(mine.local_offset + i - mine.begin);
          ASSERT_EQ(got.tensor(0, u)[at], moment_of(Moments::avg, name, 0, i)) << name << " " << i;
          for (const int tensor : {1, 2})
            ASSERT_EQ(got.tensor(tensor, u)[at], moment_of(moments, name, tensor, i))
                << name << " " << tensor << " " << i;
        }
      }
    }
  }
}

TEST_F(SoupOnRanks, MomentsThatCannotBeHadAreRefused) {
  config.moments = Moments::avg;
  config.recipe = {.type = RecipeType::weighted, .weights = {2, -0.5, 1}};
  EXPECT_THAT(refusal(Fault::usage), HasSubstr("second moments are never negative"));
  config.recipe = {};
  config.dtype = DType::bf16;
  EXPECT_THAT(refusal(Fault::usage), HasSubstr("leave --dtype or --optimizer out"));
  config.dtype = DType::f32;
  config.moments = Moments::drop;
  make("weights");
  config.inputs.insert(config.inputs.begin(), config.output);
  config.allow_soup = true;
  for (const Moments moments : {Moments::first, Moments::avg}) {
    config.moments = moments;
    EXPECT_THAT(refusal(Fault::data), HasSubstr("has no optimizer state for --optimizer"));
  }
  config.moments = Moments::zero;
  EXPECT_THAT(refusal(Fault::data), HasSubstr("is not of a training run"));
}

TEST_F(SoupOnRanks, WeightsMultiplyInDoubleAndAreDividedByOnce) {
  config.recipe = {.type = RecipeType::weighted, .weights = {0.1, 0.7, -0.3}};
  make();
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
}

TEST_F(SoupOnRanks, AMeanHalfwayBetweenTwoFloatsIsTheEvenOne) {
  test::TestContext two_nodes{os, test::world(), test::Hierarchy::two_nodes};
  checkpoint::Store store{two_nodes.get(), folder / "halves", {}};
  config.inputs.clear();
  for (const int step : {1, 2}) {
    test::Toy toy = test::own_toy(two_nodes);
    for (std::size_t unit = 0; unit < toy.spaces().size(); ++unit) {
      std::vector<float>& weights = toy.tensor(0, unit);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        // 48 a + c is 49 times the mean, exactly; divisions before the sum and products with 1/49 are not.
        const double mean = 0x1.e66666p0 + static_cast<double>(2 * (i % 200) + 1) * 0x1p-24;
        const auto a = static_cast<float>((49 * mean - 0.5) / 48);
        weights[i] = step == 1 ? a : static_cast<float>(49 * mean - 48 * static_cast<double>(a));
      }
    }
    const auto report = store.save(checkpoint::Kind::temp, step, toy.states(), sections_at(step), {});
    ASSERT_TRUE(report.committed) << report.why_not;
    config.inputs.push_back(report.directory.string());
  }
  config.recipe = {.type = RecipeType::weighted, .weights = {48, 1}};
  make();
  const checkpoint::Reader reader{Files::system(), config.output};
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
    for (const float got : reader.read_parameter(parameter.name)) {
      ASSERT_NEAR(got, 0x1.e66666p0, 202 * 0x1p-23) << parameter.name;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got) % 2, 0U) << parameter.name << " " << got;
    }
  test::world().barrier("compared");
}

TEST_F(SoupOnRanks, AMeanThatFp32CannotHoldIsRefused) {
  config.recipe = {.type = RecipeType::weighted, .weights = {1e39, 1e39, 1e39}, .normalize = false};
  refusal(Fault::numeric);
  expect_nothing_left();
}

TEST_F(SoupOnRanks, AnInputDamagedAnywhereLeavesNothing) {
  test::on_root([&] {
    const Path shard = Path{config.inputs[1]} / checkpoint::shard_name(0, test::world().size());
    // A byte of the weights that rank 0 holds of the first unit.
    const checkpoint::ShardMap map = test::map_of(config.inputs[1], 0);
    test::flip(shard, map.datasets[0].offset + map.datasets[0].spec.size_bytes() / 2);
  });
  EXPECT_THAT(refusal(Fault::corrupt), HasSubstr("000000020"));
  expect_nothing_left();
  EXPECT_EQ(os.open_files(), 0U);
}

TEST_F(SoupOnRanks, AFailedWriteOfOneRankLeavesNothing) {
  if (test::world().rank() == test::world().size() - 1)
    os.fail(test::Call::pwrite, os.count(test::Call::pwrite), ENOSPC, true);
  refusal(Fault::io);
  expect_nothing_left();
}

}  // namespace
}  // namespace argosy::soup
