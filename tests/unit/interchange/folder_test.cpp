#include "interchange/formats.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::interchange {
namespace {

class OutputFolderTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> names() const { return files.list(folder.path()); }

  Files files = Files::system();
  test::TempFolder folder;
  Os os;
  test::TestContext context{os, test::world()};
};

TEST_F(OutputFolderTest, OfTwoAtOnceOneIsCommittedWholeAndTheOtherRefused) {
  {
    OutputFolder first{context.get(), folder / "model"};
    first.write("model.bin", "first");
    OutputFolder second{context.get(), folder / "model"};
    second.write("model.bin", "second, longer");
    first.commit();
    const Error error = test::error_of([&] { second.commit(); });
    EXPECT_EQ(error.fault(), Fault::usage);
    EXPECT_EQ(error.facts().where, (folder / "model").string());
  }
  EXPECT_EQ(names(), std::vector<std::string>{"model"});
  EXPECT_EQ(files.read_text(folder / "model/model.bin"), "first");
  EXPECT_EQ(files.list(folder / "model"), (std::vector<std::string>{"SHA256SUMS", "model.bin"}));
}

TEST_F(OutputFolderTest, LeavesFoldersAloneThatItDidNotMake) {
  files.make_folders(folder / ".tmp-model/mine");
  {
    OutputFolder output{context.get(), folder / "model"};
    output.write("model.bin", "whole");
    output.commit();
  }
  EXPECT_TRUE(files.exists(folder / ".tmp-model/mine"));
}

TEST_F(OutputFolderTest, SweepsWhatAKilledExportHasLeft) {
  Owner dead = Owner::of_this_process(files, Clock{});
  dead.start_time = "1";  // the number belongs to another process now
  const StagedFolder left{files, folder / "other", owned_nonce(dead)};
  left.make();
  files.write_atomically(left.path() / "model.bin", std::string_view{"half"});
  { const OutputFolder output{context.get(), folder / "model"}; }
  EXPECT_TRUE(names().empty());
}

TEST_F(OutputFolderTest, RefusesALinkThatLeadsNowhereBeforeTheWork) {
  files.link_symbolically("nowhere", folder / "model");
  test::refusal(Fault::usage, [&] { const OutputFolder output(context.get(), folder / "model"); });
  EXPECT_EQ(names(), std::vector<std::string>{"model"});
}

TEST_F(OutputFolderTest, TakesTheLongestNameAndRefusesLongerOnesAtOnce) {
  const std::string name(255, 'n');
  {
    OutputFolder output{context.get(), folder / name};
    output.commit();
  }
  EXPECT_EQ(names(), std::vector<std::string>{name});
  const Error error = test::error_of([&] { const OutputFolder output(context.get(), folder / (name + "n")); });
  EXPECT_EQ(error.facts().remedy, "choose a shorter name");
}

}  // namespace
}  // namespace argosy::interchange
