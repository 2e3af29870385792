#include "core/child.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

class ChildTest : public testing::Test {
 protected:
  /// The exit code of a command once it has ended.
  int code_of(const std::string& command, const std::vector<std::string>& variables = {}) {
    Child child(command, variables, folder / "out");
    for (;;) {
      if (const std::optional<int> code = child.poll()) return *code;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::string text() { return Files::system().read_text(folder / "out"); }

  test::TempFolder folder;
};

TEST_F(ChildTest, WritesItsOutputToTheFileAndGivesItsCode) {
  EXPECT_EQ(code_of("cat; echo \"$STEP\"; exit 3", {"STEP=12"}), 3);
  EXPECT_EQ(text(), "12\n");
  EXPECT_EQ(code_of("kill -9 $$"), 128 + SIGKILL);
  EXPECT_EQ(text(), "");
}

TEST_F(ChildTest, IsNotToldWhatTheLauncherSaysToThisRank) {
  setenv("PMI_RANK", "1", 1);
  setenv("ARGOSY_EXIT_FILE", "exit", 1);
  EXPECT_EQ(code_of("env"), 0);
  unsetenv("PMI_RANK");
  unsetenv("ARGOSY_EXIT_FILE");
  EXPECT_EQ(text().find("PMI_RANK"), std::string::npos);
  EXPECT_EQ(text().find("ARGOSY_EXIT_FILE"), std::string::npos);
  EXPECT_NE(text().find("PATH="), std::string::npos);
}

TEST_F(ChildTest, EndsWithItsObjectAndAllItStarted) {
  {
    Child child("(sleep 0.3; echo late) & wait", {}, folder / "out");
    EXPECT_FALSE(child.poll());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(text(), "");
}

TEST_F(ChildTest, SaysWhatIsWrongWhereItCannotBeStarted) {
  const auto start = [&] { const Child child("true", {}, folder / "none/out"); };
  EXPECT_TRUE(
      test::says(test::refusal(Fault::io, start), "none/out cannot be started: No such file or directory; check that"));
}

}  // namespace
}  // namespace argosy
