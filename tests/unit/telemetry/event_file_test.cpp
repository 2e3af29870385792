#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/fixed_clock.hpp"
#include "support/temp_folder.hpp"
#include "telemetry/sinks.hpp"

namespace argosy::telemetry {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, EqualsTheKnownAnswers) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(as_bytes(std::string_view{"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32})),
            0x8a9136aaU);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62a8ab43U);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(as_bytes(ascending)), 0x46dd794eU);
  EXPECT_EQ(crc32c(as_bytes(std::string{ascending.rbegin(), ascending.rend()})), 0x113fdb5cU);
  EXPECT_EQ(crc32c({}), 0U);
}

class EventFileTest : public testing::Test {
 protected:
  std::string written() {
    const auto names = files.list(folder.path());
    return names.size() == 1 ? files.read_text(folder / names[0]) : std::string();
  }
  SinkSetup setup(std::int64_t resumed_step) {
    return {.files = files, .path = folder.path(), .resumed_step = resumed_step, .log = log, .clock = clock};
  }
  /// Payloads of the records, after checking lengths and both checksums.
  static std::vector<std::string> records(std::string_view text) {
    std::vector<std::string> payloads;
    while (!text.empty()) {
      std::uint64_t size = 0;
      std::uint32_t header_crc = 0, crc = 0;
      std::memcpy(&size, text.data(), 8);
      std::memcpy(&header_crc, text.data() + 8, 4);
      EXPECT_EQ(header_crc, masked(text.substr(0, 8)));
      payloads.emplace_back(text.substr(12, size));
      std::memcpy(&crc, text.data() + 12 + size, 4);
      EXPECT_EQ(crc, masked(payloads.back()));
      text.remove_prefix(16 + size);
    }
    return payloads;
  }
  static std::uint32_t masked(std::string_view bytes) {
    const std::uint32_t crc = crc32c(as_bytes(bytes));
    return (crc >> 15 | crc << 17) + 0xa282ead8U;
  }

  test::TempFolder folder;
  test::FixedClock clock;
  Log log;
  Files files = Files::system();
};

TEST_F(EventFileTest, BeginsAsTensorFlowsOwnDo) {
  const EventFile file(setup(0));
  const std::string text = written();
  EXPECT_EQ(text.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  ASSERT_EQ(records(text).size(), 1U);
  EXPECT_EQ(records(text)[0], std::string("\x09\0\0\0\0\0\0\0\0\x1a\x0d", 11) + "brain.Event:2");
}

// Both checksums of both records as a bitwise CRC-32C gives them that answers RFC 3720's vectors, masked by TFRecord's
// definition.
TEST_F(EventFileTest, FramesTheScalarsOfAStepWithMaskedChecksums) {
  EventFile file(setup(0));
  clock.now_s = 1.0;
  const Figure scalars[] = {{"loss", 2.5}, {"lr", 0.5}};
  file.append(300, scalars);
  const std::string text = written();
  ASSERT_EQ(text.size(), 16U + 24 + 16 + 38);
  EXPECT_EQ(text.substr(36, 4), "\xee\xdf\x28\xa3");
  EXPECT_EQ(text.substr(40, 12), std::string("\x26\0\0\0\0\0\0\0\x73\x4f\xe3\x00", 12));
  EXPECT_EQ(text.substr(90, 4), "\x53\x7f\x41\x71");
  const auto all = records(text);
  ASSERT_EQ(all.size(), 2U);
  // wall_time 1.0; step 300; summary of 26 bytes: {tag "loss", 2.5}, {tag "lr", 0.5}
  EXPECT_EQ(all[1], std::string("\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x2a\x18", 14) +
                        std::string("\x0a\x0b\x0a\x04loss\x15\0\0\x20\x40", 13) +
                        std::string("\x0a\x09\x0a\x02lr\x15\0\0\0\x3f", 11));
}

// Summary.Value {1 tag, 8 TensorProto {1 DT_STRING, 2 shape 2 x 3, 8 texts}, 9 metadata {1 plugin {1 "text"}}}.
TEST_F(EventFileTest, HoldsSamplesAsATableOfText) {
  EventFile file(setup(0));
  file.validation(
      {.step = 300, .set = "d", .figures = {{"loss", 2}}, .more = {{"distinct", 1}}, .samples = {{"a", "b", "c"}}});
  const auto all = records(written());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_NE(all[1].find("validation/d/distinct"), std::string::npos);
  EXPECT_TRUE(all[2].ends_with(std::string("\x0a\x14validation/d/samples") +
                               std::string("\x42\x35\x08\x07\x12\x08\x12\x02\x08\x02\x12\x02\x08\x03") +
                               std::string("\x42\x06source\x42\x09reference\x42\x0btranslation\x42\x01") + "a\x42\x01" +
                               "b\x42\x01" + "c" + std::string("\x4a\x08\x0a\x06\x0a\x04text")))
      << all[2];
}

TEST_F(EventFileTest, AFileAfterTheClockWasSetBackComesLast) {
  clock.now_s = 2e9;
  std::vector<std::string> before;
  for (const double set_by_s : {0.0, 0.0, -1e6, 100.0, -1e6}) {
    clock.set_by_s = set_by_s;
    const EventFile file(setup(41));
    std::vector<std::string> names = files.list(folder.path());
    std::ranges::sort(names);
    ASSERT_EQ(names.size(), before.size() + 1);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), names.begin())) << names.back();
    before = names;
  }
}

TEST_F(EventFileTest, AResumedRunSaysFromWhere) {
  const EventFile file(setup(41));
  const auto all = records(written());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1], std::string("\x09\0\0\0\0\0\0\0\0\x10\x2a\x3a\x02\x08\x01", 15));
}

}  // namespace
}  // namespace argosy::telemetry
