#include "train/export_command.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/captured.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::train {
namespace {

class ExportCommandTest : public testing::Test {
 protected:
  ExportCommand made(const std::string& run, double limit_s = 60) {
    return {{.run = run, .limit_s = limit_s}, Files::system(), folder.path(), log, clock};
  }
  /// The next record; nullopt once nothing runs any more.
  static std::optional<telemetry::ValidationRecord> next_of(ExportCommand& command) {
    while (command.is_running()) {
      if (auto record = command.poll()) return record;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return std::nullopt;
  }

  test::TempFolder folder;
  Log log;
  Clock clock;
};

TEST_F(ExportCommandTest, GivesTheNumbersOfTheLastLine) {
  ExportCommand command = made(
      "echo hello; echo \"{\\\"comet\\\": 0.5, \\\"at\\\": $ARGOSY_STEP, \\\"of\\\": \\\"$ARGOSY_EXPORT\\\"}\"; echo");
  EXPECT_FALSE(command.poll());
  command.exported(12, "export/12");
  const auto record = next_of(command);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->set, "command");
  ASSERT_EQ(record->figures.size(), 3U);
  EXPECT_EQ(record->figures[0].name, "comet");
  EXPECT_EQ(record->figures[0].value, 0.5);
  EXPECT_EQ(record->figures[1].value, 12);
  EXPECT_EQ(record->figures[2].name, "export_step");
  EXPECT_EQ(record->figures[2].value, 12);
  EXPECT_TRUE(test::says(Files::system().read_text(folder / "command.json"), "export/12"));
}

TEST_F(ExportCommandTest, LooksAtTheNewestExportAfterABusyTime) {
  ExportCommand command = made("sleep 0.2; echo '{\"a\": 1}'");
  for (const int step : {1, 1, 2, 3}) command.exported(step, "export");
  EXPECT_EQ(next_of(command).value().figures.back().value, 1);
  EXPECT_EQ(next_of(command).value().figures.back().value, 3);
  EXPECT_FALSE(next_of(command));
}

TEST_F(ExportCommandTest, WarnsOnceOfCommandsThatHangFailOrPrintNoFigures) {
  const auto said = [&](const std::string& run, double limit_s) {
    return test::stderr_of([&] {
      ExportCommand command = made(run, limit_s);
      for (const int step : {1, 2}) {
        command.exported(step, "export");
        EXPECT_FALSE(next_of(command));
      }
    });
  };
  const auto once = [](const std::string& text, const std::string& part) {
    EXPECT_TRUE(test::says(text, "of step 1", part));
    EXPECT_EQ(text.find("of step 2"), std::string::npos) << text;
  };
  once(said("sleep 60", 0.1), "the command: expected done within 0.1 s");
  once(said("exit 3", 60), "the command: expected an exit with code 0, got 3");
  for (const char* bad : {"echo nonsense", "echo '[1]'", "echo '{\"a\": \"b\"}'", "true"})
    once(said(bad, 60), "command.json: expected a last line such as");
}

TEST_F(ExportCommandTest, WarnsAgainAfterASuccess) {
  const std::string said = test::stderr_of([&] {
    ExportCommand command = made("[ $ARGOSY_STEP = 2 ] && echo '{\"a\": 1}'");
    for (const int step : {1, 2, 3}) {
      command.exported(step, "export");
      EXPECT_EQ(next_of(command).has_value(), step == 2);
    }
  });
  EXPECT_TRUE(test::says(said, "of step 1", "of step 3"));
}

}  // namespace
}  // namespace argosy::train
