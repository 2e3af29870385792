#include "comm/exit_file.hpp"

#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::comm {
namespace {

class ExitFileTest : public testing::Test {
 protected:
  const test::TempFolder temporary_;
  const Files files_ = Files::system();
  const Path folder_ = temporary_.path(), path_ = folder_ / "exit.1.0";
  const ExitFile exit_file_{files_, path_};
};

TEST_F(ExitFileTest, HoldsCodeAndStep) {
  exit_file_.write_agreed(75, 1200);
  EXPECT_EQ(files_.read_text(path_), "75 1200\n");
}

TEST(ExitRecords, AreACodeAStepAndPerhapsAWord) {
  EXPECT_EQ(parse_exit("75 1200\n"), (ExitRecord{.code = 75, .step = 1200}));
  EXPECT_EQ(parse_exit("0 0"), (ExitRecord{}));
  EXPECT_EQ(parse_exit("75 999999999999999999 stop_file\n"),
            (ExitRecord{.code = 75, .step = 999999999999999999, .why = "stop_file"}));
}

TEST(ExitRecords, AreNothingElse) {
  for (const std::string text :
       {"", "75", "75 ", "75  12", " 75 12", "75 12 ", "256 1", "-1 1", "1 -1", "a[$(x)] 1", "1 a[$(x)]", "75 12 Stop",
        "75 12 a b", "75 12 x1", "0x4 1", "75\t12", "1 1234567890123456789"}) {
    EXPECT_EQ(parse_exit(text), std::nullopt) << text;
    EXPECT_EQ(parse_exit(text + "\n"), std::nullopt) << text;
  }
  for (const char* text : {"75 12\n\n", "75 12\r\n"}) EXPECT_EQ(parse_exit(text), std::nullopt) << text;
  EXPECT_EQ(parse_exit(std::string("75 12\0", 6)), std::nullopt);
  EXPECT_EQ(parse_exit("75 12 " + std::string(33, 'a')), std::nullopt);
}

TEST_F(ExitFileTest, TheAgreedCodeReplacesAnything) {
  exit_file_.write_first(5, 7);
  exit_file_.write_agreed(0, 8);
  EXPECT_EQ(files_.read_text(path_), "0 8\n");
}

TEST_F(ExitFileTest, TheFirstFailingRankHasTheWord) {
  exit_file_.write_first(5, 7);
  exit_file_.write_first(70, 9);
  EXPECT_EQ(files_.read_text(path_), "5 7\n");
}

TEST_F(ExitFileTest, ClearForgetsAnEarlierRun) {
  exit_file_.write_agreed(5, 7);
  exit_file_.clear();
  EXPECT_FALSE(files_.exists(path_));
  exit_file_.clear();
}

TEST_F(ExitFileTest, AWordOfAnEarlierRunThatStaysIsRefusedBeforeAnyWork) {
  exit_file_.write_agreed(0, 7);
  test::FaultyOs os;
  os.fail(test::Call::unlink, 0, EPERM, true);
  const ExitFile locked{Files{os}, path_};
  EXPECT_TRUE(test::says(test::refusal(Fault::io, [&] { locked.clear(); }), "the exit file of an earlier run"));
  files_.remove(path_);
  locked.clear();  // the file is not there, or holds no word: no script can be misled
  files_.write_atomically(path_, "");
  locked.clear();
}

TEST_F(ExitFileTest, WhatHoldsNoWordIsLeftThere) {
  ExitFile{files_, folder_}.clear();
  ExitFile{files_, folder_ / "missing" / "exit"}.clear();
  ExitFile{files_, "/dev/full/exit"}.clear();
  EXPECT_TRUE(files_.exists(folder_));
}

TEST_F(ExitFileTest, WithoutAPathNothingHappens) {
  const ExitFile none{files_, ""};
  none.clear();
  none.write_agreed(0, 1);
  none.write_first(5, 1);
  EXPECT_TRUE(files_.list(folder_).empty());
}

TEST_F(ExitFileTest, AFailingRankKeepsItsOwnErrorWhereNothingCanBeWritten) {
  const ExitFile nowhere{files_, folder_ / "missing" / "exit"};
  nowhere.write_first(5, 1);
  EXPECT_FALSE(files_.exists(folder_ / "missing"));
}

}  // namespace
}  // namespace argosy::comm
