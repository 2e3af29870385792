#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "checkpoint/shard_set.hpp"
#include "soup/soup.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/own_process.hpp"
#include "support/temp_folder.hpp"

/// What a soup may hold at a time, whatever the number and the size of its inputs: memory and open files.
namespace argosy::soup {
namespace {

constexpr std::uint64_t mib = 1 << 20;

/// This process may map so many bytes more, while this lives.
class MemoryCap {
 public:
  explicit MemoryCap(std::uint64_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * 4096 + bytes;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~MemoryCap() { setrlimit(RLIMIT_AS, &before_); }
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  rlimit before_{};
};

/// Notes the most files that were ever open at once.
class CountingOs : public test::FaultyOs {
 public:
  int open(const char* path, int flags, unsigned mode) override {
    const int fd = FaultyOs::open(path, flags, mode);
    most = std::max(most, open_files());
    return fd;
  }
  std::size_t most = 0;
};

class SoupBounds : public testing::Test {
 protected:
  /// Weights alone, written by all ranks of a layout, one after the other.
  void save(const test::Units& units, const partition::Layout& layout, std::int64_t step,
            std::optional<std::uint64_t> seed = {}) {
    checkpoint::Manifest manifest = test::manifest_of(units, layout);
    manifest.step = step;
    manifest.save_nonce = fmt::format("{:016}", step);
    manifest.tensors = test::adamw_tensors(units.size(), false, false);
    const Path target = folder / fmt::format("{:09}", step);
    std::optional<test::Toy> toy;
    test::commit_shards(Files::system(), target, manifest, {}, [&](int rank) {
      toy.emplace(units, layout, rank);
      toy->fill(seed.value_or(static_cast<std::uint64_t>(step)));
      if (seed) toy->tensor(0, 0)[0] = static_cast<float>(step);  // the same weights twice are refused
      return test::bytes_of(toy->states(false));
    });
    config.inputs.push_back(target.string());
  }
  SoupResult make(Os& door, const std::string& name) {
    test::TestContext context{door, test::world()};
    config.output = (folder / name).string();
    return make_soup(context.get(), config);
  }

  Os os;
  test::TempFolder folder;
  SoupConfig config;
};

TEST_F(SoupBounds, SeventyTwoInputsOfManyShardsAreAsExactAsTwo) {
  constexpr int count = 72;
  std::size_t shards = 0;
  for (int step = 0; step < count; ++step) {
    const partition::Layout layout{std::vector<int>(static_cast<std::size_t>(1 + step % 3), 1 + step % 2)};
    shards += static_cast<std::size_t>(layout.world());
    save(test::tiny_units(), layout, step);
  }
  ASSERT_GT(shards, 3U * count / 2);
  CountingOs door;
  EXPECT_EQ(make(door, "soup").inputs, static_cast<std::size_t>(count));
  EXPECT_LE(door.most, 2U * count + 4) << "two of each input, and what is written";
  const checkpoint::Reader soup{Files::system(), config.output};
  for (const checkpoint::Reader::Parameter& parameter : soup.parameters()) {
    const std::vector<float> got = soup.read_parameter(parameter.name);
    for (std::size_t i = 0; i < got.size(); ++i) {
      long double sum = 0;
      for (std::uint64_t seed = 0; seed < count; ++seed)
        sum += test::element(parameter.name, 0, static_cast<std::int64_t>(i), seed);
      const long double mean = sum / count;
      const float magnitude = std::abs(static_cast<float>(mean));
      const long double ulp = std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude;
      ASSERT_LE(std::abs(static_cast<long double>(got[i]) - mean), 0.5L * ulp) << parameter.name << " " << i;
    }
  }
}

TEST_F(SoupBounds, TheBitsAreThoseOfOneRoundingAfterTheOther) {
  constexpr std::uint64_t seed = 5;
  for (int step = 0; step < 3; ++step) save(test::large_units(), partition::Layout{{1}}, step, seed);
  const std::vector<double> weights{0.1, 0.7, -0.8 + 1e-9};  // nearly nothing is left: roundings in fp64 show in fp32
  config.recipe = {.type = RecipeType::weighted, .weights = weights, .normalize = false};
  make(os, "soup");
  const checkpoint::Reader soup{Files::system(), config.output};
  const std::string name = soup.parameters().front().name;
  const std::vector<float> got = soup.read_parameter(name);
  for (std::size_t i = 1; i < got.size(); ++i) {  // but for the one that differs
    const auto value = static_cast<double>(test::element(name, 0, static_cast<std::int64_t>(i), seed));
    double sum = 0;
    for (const double weight : weights) {
      const volatile double product = weight * value;  // not fused with the sum
      sum += product;
    }
    ASSERT_EQ(got[i], static_cast<float>(sum)) << i;
  }
}

constexpr std::uint64_t cap_bytes = 4 * mib;
constexpr const char* folder_variable = "ARGOSY_TEST_SOUP_FOLDER";

/// A process that has freed nothing, and whose threads share one heap: else both would be a reserve next to the cap.
TEST_F(SoupBounds, DISABLED_UnderACap) {
  const char* const inputs = std::getenv(folder_variable);
  ASSERT_NE(inputs, nullptr);
  test::TestContext context{os, test::world()};
  // A first soup loads what libraries load when they are first used.
  config.inputs = {Path(inputs) / "000000001", Path(inputs) / "000000002"};
  config.output = (Path(inputs) / "first").string();
  make_soup(context.get(), config);
  config.inputs.clear();
  for (int step = 10; step < 34; ++step)
    config.inputs.push_back((Path(inputs) / fmt::format("run/checkpoints/{:09}", step)).string());
  config.output = (Path(inputs) / "soup").string();
  config.shard_bytes = 5 * mib;
  const MemoryCap cap{cap_bytes};
  EXPECT_THROW(static_cast<void>(::operator new(cap_bytes)), std::bad_alloc);
  make_soup(context.get(), config);
}

#ifndef __SANITIZE_ADDRESS__  // whose own memory cannot be capped
TEST_F(SoupBounds, InputsOfFiftyTimesTheMemoryPassThroughIt) {
  const test::Units large{{"embedding", {{"weight", {1500, 1500}}}}, {"head", {{"bias", {1000}}}}};
  for (const int step : {1, 2}) save(test::tiny_units(), partition::Layout{{1}}, step);
  std::uint64_t input_bytes = 0;
  for (int step = 10; step < 34; ++step) {
    test::TestContext context{os, test::world()};
    checkpoint::Store store{context.get(), folder / "run", {.max_checkpoints = 24}};
    test::Toy toy{large, context.topology().layout(), 0};
    toy.fill_all(static_cast<float>(step));
    const auto report = store.save(checkpoint::Kind::temp, step, toy.states(false), test::toy_sections(), {});
    ASSERT_TRUE(report.committed) << report.why_not;
    input_bytes += report.bytes;
  }
  ASSERT_GE(input_bytes, 50 * cap_bytes);
  ASSERT_EQ(test::run_alone("SoupBounds.DISABLED_UnderACap",
                            {{folder_variable, folder.path().c_str()}, {"MALLOC_ARENA_MAX", "1"}}),
            0);
  const checkpoint::Reader soup{Files::system(), folder / "soup"};
  checkpoint::WeightStream stream = soup.stream();
  std::vector<float> row(1500);
  for (std::int64_t i = 0; i < 1500; ++i) {
    stream.read(0, i * 1500, row);
    ASSERT_EQ(row, std::vector<float>(1500, 21.5F)) << i;
  }
  stream.finish();
}
#endif

}  // namespace
}  // namespace argosy::soup
