#include <cstdlib>

#include "load_fixture.hpp"

/// Checkpoints that earlier writers have left: every minor format is read, bit for bit.
namespace argosy::checkpoint {
namespace {

test::Units golden_units() {
  return {{"embedding", {{"embedding/weight", {7, 5}}}},
          {"head", {{"head/scale", {}, false}, {"head/weight", {5, 9}}}}};
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, IsReadBitForBit) {
  constexpr std::uint64_t seed = 4;
  const Path directory = Path{std::getenv("ARGOSY_SOURCE_DIR")} / "tests/unit/checkpoint/golden" / GetParam();
  const Reader reader{Files::system(), directory};
  const Reader::Verified verified = reader.verify();
  EXPECT_TRUE(verified.finite);
  EXPECT_GT(verified.bytes, 10'000U);
  EXPECT_EQ(fmt::format("{}.{}", reader.manifest().at("format_version").at("major").as_int64(),
                        reader.manifest().at("format_version").at("minor").as_int64()),
            GetParam());
  EXPECT_EQ(reader.has_ema(), std::string(GetParam()) == "1.2");
  EXPECT_EQ(reader.step(), 5);
  EXPECT_EQ(reader.run_uuid(), std::string(32, 'a'));
  EXPECT_EQ(reader.sections().schedule.at("args").at("peak").as_double(), 1.0 / 3.0);
  EXPECT_EQ(reader.attachment("tokenizer.model"), test::toy_attachments()[0].content);
  expect_state(reader, golden_units(), {{1}, {2}, {1, 2}}, seed, reader.has_ema());
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden, testing::Values("1.0", "1.1", "1.2", "1.3"),
                         [](const auto& test) { return fmt::format("V1_{}", test.param[2]); });

}  // namespace
}  // namespace argosy::checkpoint
