#include "telemetry/run_report.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "support/fixed_clock.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::telemetry {
namespace {

using testing::Contains, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

TEST(Starts, AreWholeLinesOfAStepAndATime) {
  EXPECT_THAT(parse_starts("0 1700\n12\n12 1800\n12 19"), ElementsAre(Start{0, 1700}, Start{12, 0}, Start{12, 1800}));
  EXPECT_THAT(parse_starts(""), IsEmpty());
}

TEST(Starts, ALineThatSaysNothingEndsARowOfFruitlessOnes) {
  const std::vector<std::string> lines(
      {"", "a[$(touch x)]", "-1 2", "12 ", " 12", "12 x", "1234567890123456789 1", "12 1 1", std::string("1\0", 2)});
  for (const std::string& line : lines) EXPECT_THAT(parse_starts(line + "\n"), ElementsAre(Start{})) << line;
  EXPECT_EQ(fruitless(parse_starts("12 1\nx\n12 2\n12 3\n"), 12), 2);
  EXPECT_EQ(fruitless(parse_starts("12 1\n12 2\n"), 13), 0);
  EXPECT_EQ(fruitless({}, 0), 0);
}

TEST(Chain, NamesTheJobOfEachStage) {
  const auto jobs = parse_chain(R"({"config":"x","stages":[{"stage":"count","job":"17"},{"stage":"train","job":""}]})");
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].stage + " " + jobs[0].job, "count 17");
  EXPECT_EQ(jobs[1].job, "");
}

TEST(Chain, RefusesAnythingElse) {
  for (const char* text :
       {"", "[]", "{}", R"({"stages":{}})", R"({"stages":[1]})", R"({"stages":[{"stage":"cook","job":"1"}]})",
        R"({"stages":[{"stage":"train","job":"a[$(x)]"}]})", R"({"stages":[{"stage":"train","job":17}, 2]})",
        R"({"stages":[{"stage":"soup","job":"1"},{"stage":"soup","job":"2"}]})", R"({"stages":[{"stage":"train")"})
    EXPECT_THROW((void)parse_chain(text), Error) << text;
}

TEST(State, IsWhatTheExitFileAndSlurmSayTogether) {
  const comm::ExitRecord done{.code = 0, .step = 5}, failed{.code = 3, .step = 5}, stopped{.code = 75, .step = 5};
  const Queue gone{{"7", ""}}, waits{{"7", "PENDING Dependency"}}, runs{{"7", "RUNNING None"}},
      ends{{"7", "COMPLETING None"}};
  EXPECT_EQ(state_of("", std::nullopt, gone), "new");
  EXPECT_EQ(state_of("7", std::nullopt, {}), "submitted");
  EXPECT_EQ(state_of("7", std::nullopt, gone), "cancelled");
  EXPECT_EQ(state_of("7", std::nullopt, waits), "queued pending dependency");
  EXPECT_EQ(state_of("7", std::nullopt, runs), "queued running");
  EXPECT_EQ(state_of("7", stopped, waits), "queued pending dependency");
  EXPECT_EQ(state_of("7", stopped, gone), "stopped");
  EXPECT_EQ(state_of("7", failed, gone), "failed 3");
  EXPECT_EQ(state_of("7", done, {}), "done");
  EXPECT_EQ(state_of("7", done, ends), "done");
  EXPECT_EQ(state_of("7", done, runs), "queued running") << "requeued by hand";
  EXPECT_EQ(state_of("7", std::nullopt, {{"7", "PENDING a\x1b[2Jb"}}), "queued pending a?[2jb");
}

class RunFilesTest : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) { files.write_atomically(folder / name, text); }
  RunReport report() { return report_of(files, clock, folder.path(), queue); }
  std::string text() {
    std::string all;
    for (const std::string& line : report().lines) all += line + "\n";
    return all;
  }

  test::TempFolder folder;
  test::FixedClock clock;
  Files files = Files::system();
  RunFiles run{files, folder.path()};
  Queue queue;
  const std::string status = R"({"state":"running","step":1200,"fraction_done":2.4E-1,"time":"1970-01-02T00:00:00Z",)"
                             R"("eta_s":3.6005E3,"job":"103","reason":"a \"b\""})";
};

TEST_F(RunFilesTest, CheckpointsAreOneAStepOldestFirst) {
  EXPECT_THAT(run.checkpoints(), IsEmpty());
  EXPECT_EQ(run.newest_step(), 0);
  for (const char* name : {"checkpoints/000000100", "checkpoints/000000020", "checkpoints/.tmp-000000130-ab",
                           "checkpoints/000000140.bad", "checkpoints/150", "export/000000100", "export/000000120"})
    files.make_folders(folder / name);
  EXPECT_THAT(run.checkpoints(), ElementsAre("checkpoints/000000020", "export/000000100", "export/000000120"));
  EXPECT_EQ(run.newest_step(), 120);
}

TEST_F(RunFilesTest, AJobsLastExitFileCounts) {
  write("exit.42.9", "5 7\n");
  write("exit.42.10", "75 12 stop_file\n");
  write("exit.42.x", "3 1\n");
  write("exit.421.11", "0 1\n");
  write("starts.42", "0 1700\n7 1800\n");
  const JobReport last = run.job("42"), earlier = run.job("42", 9), none = run.job("42", 8);
  EXPECT_EQ(last.exit, (comm::ExitRecord{.code = 75, .step = 12, .why = "stop_file"}));
  EXPECT_EQ(earlier.exit, (comm::ExitRecord{.code = 5, .step = 7}));
  EXPECT_EQ(none.exit, std::nullopt);
  EXPECT_THAT(last.starts, SizeIs(2));
  EXPECT_THAT(run.problems(), IsEmpty());
}

TEST_F(RunFilesTest, WhatCannotBeReadIsNamedAndHidesNothing) {
  write("status.json", status);
  write("exit.103.0", "a[$(x)] 1\n");
  write("starts.103", "x\n12 7\n");
  write("chain.json", "{");
  ASSERT_EQ(mkfifo((folder / "exit.103.1").c_str(), 0600), 0);
  files.link_symbolically("status.json", folder / "metrics.jsonl");
  const RunReport told = report();
  EXPECT_THAT(told.lines, Contains(HasSubstr("training running at step 1200")));
  std::string problems;
  for (const auto& problem : told.figures.at("problems").as_array()) problems += problem.as_string().c_str();
  EXPECT_TRUE(test::says(problems, "chain.json", "starts.103: 1 lines are not of the form STEP TIME",
                         "exit.103.1: not a regular file"));
}

TEST_F(RunFilesTest, AFileInTheirPlaceHidesNoOtherCheckpoints) {
  write("status.json", status);
  write("checkpoints", "a file");
  files.make_folders(folder / "export/000000030");
  EXPECT_EQ(RunFiles(files, folder.path()).newest_step(), 30);
  EXPECT_THAT(report().figures.at("problems").as_array(), testing::SizeIs(1));
}

TEST_F(RunFilesTest, NumbersThatAreNoneAreDamage) {
  const std::pair<const char*, const char*> changes[] = {
      {"1200", "-1"},        {"1200", "1e3"}, {"1200", "9223372036854775808"}, {"2.4E-1", "1e999"}, {"2.4E-1", "null"},
      {"running", "asleep"}, {"T00", "X00"}};
  for (const auto& [from, to] : changes) {
    std::string text = status;
    text.replace(text.find(from), std::string_view(from).size(), to);
    write("status.json", text);
    RunFiles fresh{files, folder.path()};
    EXPECT_EQ(fresh.training(), std::nullopt) << text;
    EXPECT_THAT(fresh.problems(), SizeIs(1)) << text;
  }
}

TEST_F(RunFilesTest, TellsPeopleHowFarTheRunIs) {
  clock.now_s = 86405;
  write("status.json", status);
  write("exit.103.0", "75 1200 stop_file\n");
  write("starts.103", "0 1700\n");
  write("chain.json", R"({"stages":[{"stage":"count","job":"101"},{"stage":"train","job":"103"}]})");
  write("metrics.jsonl",
        "{\"step\":1000,\"validation\":\"dev\",\"figures\":{\"loss\":2.1E0,\"chrf\":null}}\n"
        "{\"step\":1100,\"loss\":2.0}\n{\"step\":1200,\"validation\":\"dev\",\"fig");
  queue = {{"101", ""}, {"103", "RUNNING None"}};
  EXPECT_TRUE(test::says(text(), "count       101      cancelled", "train       103      queued running",
                         "training running at step 1200, 24.0 % done, last update 5 s ago: a \"b\"", "ETA 1970-01-0",
                         "job 103: 1 start, last exit code 75 at step 1200, because the stop file exists",
                         "validation at step 1000 on dev: loss 2.1000, chrf unknown", "no checkpoint", " MiB free"));
  EXPECT_EQ(report().figures.at("validation").at("step"), 1000);
}

TEST_F(RunFilesTest, OfALongMetricsFileOnlyTheTailIsRead) {
  const std::string validation = "{\"step\":7,\"validation\":\"dev\",\"figures\":{\"loss\":1}}\n";
  const std::string line = "{\"step\":8,\"loss\":2.0,\"validation\":" + std::string(200, ' ') + "0}\n";
  std::string text = validation;
  for (int i = 0; i < 10000; ++i) text += line;  // 2.3 MB without one
  write("metrics.jsonl", text);
  ASSERT_NE(run.validation(), std::nullopt);
  EXPECT_EQ(run.validation()->at("step"), 7);
  {
    File file = files.replace(folder / "metrics.jsonl");
    file.truncate(1ULL << 30);  // of zeros
    file.write_at(as_bytes("\n" + validation), (1ULL << 30) - 200);
    file.write_at(as_bytes(std::string_view("\n")), (1ULL << 30) - 1);
  }
  EXPECT_EQ(run.validation()->at("step"), 7);
}

TEST_F(RunFilesTest, AFolderThatIsNoRunIsRefused) {
  EXPECT_THROW(report(), Error);
  files.make_folders(folder / "checkpoints");
  EXPECT_THROW(report(), Error);
}

}  // namespace
}  // namespace argosy::telemetry
