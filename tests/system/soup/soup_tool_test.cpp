#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "checkpoint/checkpoint.hpp"
#include "support/checkpoints.hpp"
#include "support/temp_folder.hpp"

/// apps/soup as people type it: a shell pattern, several ranks, the result line, the exit file.
namespace argosy::soup {
namespace {

class SoupTool : public testing::Test {
 protected:
  SoupTool() {
    test::TestContext context{os, test::world()};
    checkpoint::Store store{context.get(), folder / "ckpts", {}};
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    for (const int step : {10, 20, 30}) {
      const auto report = store.save(checkpoint::Kind::temp, step, toy.fill(static_cast<std::uint64_t>(step)).states(),
                                     test::toy_sections(3.0 - step / 100.0), test::toy_attachments());
      EXPECT_TRUE(report.committed) << report.why_not;
    }
  }
  /// Runs `soup words` in the folder on `ranks` ranks, outside of this test's MPI job; fills `output`; returns its exit
  /// code.
  int run(int ranks, const std::string& words) {
    const std::string command = fmt::format(
        "cd '{}' && env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u PMI_PORT -u PMI_ID ARGOSY_EXIT_FILE=exit {} -n {} "
        "'{}/apps/soup' {} "
        "> out 2>&1",
        folder.path().string(), std::getenv("ARGOSY_MPIEXEC"), ranks, std::getenv("ARGOSY_BUILD_DIR"), words);
    static_cast<void>(std::system(command.c_str()));
    output = Files::system().read_text(folder / "out");
    return std::atoi(Files::system().read_text(folder / "exit").c_str());  // launchers lose exit codes
  }
  Os os;
  test::TempFolder folder;
  std::string output;
};

TEST_F(SoupTool, AveragesWhatAPatternNames) {
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 0) << output;
  EXPECT_NE(output.find("loss"), std::string::npos) << output;
  const std::string last = output.substr(output.rfind('\n', output.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("result {\"tool\":\"soup\",\"status\":\"ok\"")) << last;
  const checkpoint::Reader reader{Files::system(), folder / "soup"};
  reader.verify();
  EXPECT_EQ(reader.step(), 30);
  EXPECT_EQ(run(1, "ckpts/checkpoints/*"), 2) << "never overwritten: " << output;
  EXPECT_EQ(run(1, "--out second ckpts/checkpoints/000000010 ckpts/checkpoints/000000020"), 0) << output;
  EXPECT_EQ(run(1, "--out third soup second"), 3) << "soups are no ingredients: " << output;
  EXPECT_NE(output.find("--allow-soup"), std::string::npos) << output;
  EXPECT_EQ(run(1, "--out third --allow-soup soup second"), 0) << output;
}

TEST_F(SoupTool, EndsWithTheCodeOfTheFault) {
  EXPECT_EQ(run(2, "ckpts/checkpoints/000000010"), 2) << output;
  EXPECT_EQ(run(2, "ckpts/checkpoints/000000010 nowhere"), 3) << output;
  test::flip(folder / "ckpts/checkpoints/000000020/MANIFEST.json", 77);
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 4) << output;
  EXPECT_NE(output.find("000000020"), std::string::npos) << output;
  EXPECT_NE(output.find("\"status\":\"failed\""), std::string::npos) << output;
  EXPECT_FALSE(Files::system().exists(folder / "soup"));
}

TEST_F(SoupTool, TeachesByExamples) {
  EXPECT_EQ(run(1, "--help"), 0) << output;
  EXPECT_NE(output.find("runs/mt/checkpoints/*"), std::string::npos) << output;
}

}  // namespace
}  // namespace argosy::soup
