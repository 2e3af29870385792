#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fixed_clock.hpp"
#include "support/temp_folder.hpp"
#include "telemetry/sinks.hpp"
#include "telemetry/wire.hpp"

namespace argosy::telemetry {
namespace {

using testing::ElementsAre;

class WandbTest : public testing::Test {
 protected:
  WandbTest() { clock.now_s = 1700000000; }
  SinkSetup setup(std::int64_t resumed_step) {
    return {.files = files,
            .path = folder / "small_run/wandb",
            .resumed_step = resumed_step,
            .log = log,
            .clock = clock,
            .config = {.wandb = {.mode = WandbMode::offline,
                                 .entity = "team",
                                 .project = "ships",
                                 .group = "small",
                                 .name = "first"}},
            .configuration = {{"seed", 3}, {"model", {{"width", 32}}}}};
  }
  static StepRecord at(std::int64_t step, double nll) {
    StepRecord record;
    record.last.step = step;
    record.nll = nll;
    return record;
  }
  Path run() { return folder / "small_run/wandb" / files.list(folder / "small_run/wandb").at(0); }
  Path file() {
    const std::string name = run().filename().string();
    return run() / ("run-" + name.substr(name.rfind('-') + 1) + ".wandb");
  }
  /// The records of the file, after checking header, chunks and checksums.
  std::vector<std::string> records() {
    const std::string text = files.read_text(file());
    EXPECT_EQ(text.substr(0, 7), std::string(":W&B\xe1\xbe\0", 7));
    std::vector<std::string> found;
    std::string record;
    for (std::size_t at = 7; at < text.size();) {
      if (32768 - at % 32768 < 7) {
        EXPECT_EQ(text.substr(at, 32768 - at % 32768), std::string(32768 - at % 32768, '\0'));
        at += 32768 - at % 32768;
      }
      const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
      const std::size_t size = byte(4) + 256U * byte(5);
      EXPECT_LE(at % 32768 + 7 + size, 32768U);
      const std::string_view body = std::string_view(text).substr(at + 6, 1 + size);
      EXPECT_EQ(wire::crc<0xedb88320>(as_bytes(body)),
                byte(0) | byte(1) << 8U | byte(2) << 16U | unsigned{byte(3)} << 24U);
      record += body.substr(1);
      if (body[0] == 1 || body[0] == 4) found.push_back(std::exchange(record, {}));
      at += 7 + size;
    }
    EXPECT_EQ(record, "");
    return found;
  }
  /// Which kinds of records there are; a history with its step.
  std::vector<std::string> kinds() {
    std::vector<std::string> kinds;
    std::int64_t number = 0;
    for (const std::string& record : records()) {
      EXPECT_EQ(wire::field_of(record, 1)->number, ++number);
      for (const auto& [field, name] :
           {std::pair{2U, "history"}, {3U, "summary"}, {5U, "config"}, {17U, "run"}, {18U, "exit"}}) {
        const auto content = wire::field_of(record, field);
        if (!content) continue;
        kinds.emplace_back(name);
        if (field == 2)
          kinds.back() += std::to_string(wire::field_of(wire::field_of(content->bytes, 2)->bytes, 1)->number);
      }
    }
    return kinds;
  }

  test::TempFolder folder;
  test::FixedClock clock;
  Log log;
  Files files = Files::system();
};

TEST_F(WandbTest, Crc32EqualsTheKnownAnswer) { EXPECT_EQ(wire::crc<0xedb88320>(as_bytes("123456789")), 0xcbf43926U); }

TEST_F(WandbTest, TheFirstRecordNamesTheRunAndItsConfiguration) {
  { const WandbFolder sink(setup(0)); }
  const std::string name = run().filename().string();
  EXPECT_EQ(name.substr(0, name.size() - 8), "offline-run-20231114_221320-");
  const std::string record = records().at(0);
  const std::string_view content = wire::field_of(record, 17)->bytes;
  const auto text = [&](unsigned field) { return std::string(wire::field_of(content, field)->bytes); };
  EXPECT_EQ(text(1), name.substr(name.size() - 8));
  EXPECT_THAT((std::vector{text(2), text(3), text(6), text(8)}), ElementsAre("team", "ships", "small", "first"));
  SinkSetup unnamed = setup(0);
  unnamed.config.wandb.name.reset();
  unnamed.path = folder / "other_run/wandb";
  { const WandbFolder sink(unnamed); }
  const Path other = unnamed.path / files.list(unnamed.path).at(0);
  const std::string bytes = files.read_text(other / file().filename());
  EXPECT_NE(bytes.find("other_run"), std::string::npos) << "the name is that of run_dir";
  EXPECT_EQ(wire::field_of(text(17), 1)->number, 1700000000U);
  const std::string config = text(4);
  const auto item = wire::field_of(config, 1);
  EXPECT_EQ(wire::field_of(item->bytes, 1)->bytes, "seed");
  EXPECT_EQ(wire::field_of(item->bytes, 16)->bytes, "3");
  EXPECT_TRUE(files.exists(run() / "files"));
}

TEST_F(WandbTest, AStartContinuesTheFileWhereTheRunGoesOn) {
  {
    WandbFolder sink(setup(0));
    for (const std::int64_t step : {10, 20, 30}) sink.step(at(step, 2));
    sink.validation({.step = 30, .set = "dev", .figures = {{"loss", 2.5}}});
  }
  EXPECT_THAT(kinds(), ElementsAre("run", "history10", "summary", "history20", "summary", "history30", "summary",
                                   "history30", "summary", "exit"));
  const std::string whole = files.read_text(file());
  // A crash cuts the file within its last record: the run goes on after those that are whole.
  files.write_atomically(file(), std::string_view(whole).substr(0, whole.size() - 3));
  clock.now_s += 100;
  {
    WandbFolder sink(setup(20));
    sink.step(at(25, 1));
  }
  EXPECT_EQ(files.list(folder / "small_run/wandb").size(), 1U);
  EXPECT_THAT(kinds(), ElementsAre("run", "history10", "summary", "history20", "summary", "config", "history25",
                                   "summary", "exit"));
  EXPECT_NE(records().at(6).find("_runtime\x82\x01\x03"
                                 "100"),
            std::string::npos)
      << "seconds since the first start";
  // Before the first checkpoint, nothing but the run is left.
  { const WandbFolder sink(setup(0)); }
  EXPECT_THAT(kinds(), ElementsAre("run", "config", "exit"));
  // Damage: from there on.
  std::string damaged = files.read_text(file());
  damaged[9] = static_cast<char>(damaged[9] + 1);
  files.write_atomically(file(), damaged);
  { const WandbFolder sink(setup(0)); }
  EXPECT_THAT(kinds(), ElementsAre("run", "exit"));
}

TEST_F(WandbTest, AClockThatIsSetBackTakesNoTimeFromTheRun) {
  clock.now_s = 1e6;
  {
    WandbFolder sink(setup(0));
    clock.now_s += 5;
    clock.set_by_s = -3000;
    sink.step(at(10, 2));
  }
  EXPECT_NE(records().at(1).find("_runtime\x82\x01\x01"
                                 "5"),
            std::string::npos);
  {
    WandbFolder sink(setup(10));
    clock.now_s += 7;
    sink.step(at(20, 2));
  }
  EXPECT_NE(records().at(4).find("_runtime\x82\x01\x01"
                                 "7"),
            std::string::npos);
}

TEST_F(WandbTest, RecordsCrossBlocksInChunks) {
  WandbFolder sink(setup(0));
  const std::size_t steps = 300;  // of about 900 bytes each
  for (std::size_t i = 1; i <= steps; ++i)
    sink.step(at(static_cast<std::int64_t>(i), 2.0 + static_cast<double>(i) / 7));
  const std::string large(70000, 'x');  // more than two blocks
  sink.validation({.step = 301, .set = large, .figures = {{"loss", 2.5}}});
  ASSERT_GT(files.read_text(file()).size(), 4U * 32768);
  EXPECT_EQ(kinds().size(), 1 + 2 * (steps + 1));
  EXPECT_NE(records().at(1 + 2 * steps).find(large), std::string::npos);
}

TEST_F(WandbTest, AnErrorLeavesTheRunWithoutAnEnd) {
  try {
    WandbFolder sink(setup(0));
    throw std::runtime_error("training fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(kinds(), ElementsAre("run"));
}

TEST_F(WandbTest, FiguresThatAreUnknownAreLeftOut) {
  {
    WandbFolder sink(setup(0));
    StepRecord record = at(7, std::numeric_limits<double>::quiet_NaN());
    record.loss = 2.5;
    sink.step(record);
  }
  const std::string history = records().at(1);
  EXPECT_EQ(history.find("nll"), std::string::npos);
  EXPECT_EQ(history.find("mfu"), std::string::npos);
  EXPECT_NE(history.find("loss\x82\x01\x03"
                         "2.5"),
            std::string::npos);
}

}  // namespace
}  // namespace argosy::telemetry
