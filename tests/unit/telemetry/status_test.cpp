#include "telemetry/status.hpp"

#include <boost/json/parse.hpp>

#include "support/captured.hpp"
#include "support/faulty_os.hpp"
#include "support/fixed_clock.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::telemetry {
namespace {

class StatusTest : public testing::Test {
 protected:
  StatusTest() { clock.now_s = 86400; }
  boost::json::value now() { return boost::json::parse(files.read_text(folder / "status.json")); }

  test::TempFolder folder;
  test::FixedClock clock;
  Log log;
  Files files = Files::system();
};

TEST_F(StatusTest, TellsHowEachRunEnded) {
  {
    Status status(files, folder.path(), log, clock, 5, 0.25);
    EXPECT_EQ(now(), boost::json::parse(R"({"state": "running", "step": 5, "fraction_done": 0.25,
                                            "time": "1970-01-02T00:00:00Z"})"));
    clock.now_s += 1;
    status.running(7, 0.35);
    status.stopped(8, "SIGTERM");
  }
  EXPECT_EQ(now(), boost::json::parse(R"({"state": "stopped", "step": 8, "fraction_done": 0.35,
                                          "time": "1970-01-02T00:00:01Z", "reason": "SIGTERM"})"));
  { Status(files, folder.path(), log, clock, 8).done(9); }
  EXPECT_EQ(now().at("state"), "done");
  EXPECT_EQ(now().at("step"), 9);
}

TEST_F(StatusTest, SaysThatItIsAliveEveryTenSecondsAndWhenItWillEnd) {
  setenv("SLURM_JOB_ID", "4711", 1);
  Status status(files, folder.path(), log, clock, 0);
  for (int second = 1; second <= 12; ++second) {
    clock.now_s += 1;
    status.running(second, second / 100.0);
    EXPECT_EQ(now().at("step"), second < 10 ? 0 : 10) << second;
  }
  unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(now().at("time"), "1970-01-02T00:00:10Z");
  EXPECT_DOUBLE_EQ(now().at("eta_s").to_number<double>(), 90);
  EXPECT_EQ(now().at("job"), "4711");
}

TEST_F(StatusTest, NoFailingCallEndsTheTrainingOrLeavesHalfAFile) {
  enum class End { stopped, done, failed };
  const auto run = [&](Os& os, End end) {
    Status status(Files{os}, folder.path(), log, clock, 0);
    for (std::int64_t step = 1; step <= 2; ++step) {
      clock.now_s += 20;
      status.running(step, 0.1);
    }
    if (end == End::stopped) status.stopped(2, "SIGTERM");
    if (end == End::done) status.done(2);
  };
  for (const End end : {End::stopped, End::done, End::failed}) {
    test::FaultyOs sound;
    run(sound, end);
    ASSERT_GT(sound.count(), 12U);
    for (std::size_t n = 0; n < sound.count(); ++n) {
      files.remove(folder / "status.json");
      test::FaultyOs os;
      os.fail(n, EACCES);
      const std::string said = test::stderr_of([&] { EXPECT_NO_THROW(run(os, end)) << n; });
      EXPECT_EQ(os.open_files(), 0U) << n;
      EXPECT_EQ(files.list(folder.path()), std::vector<std::string>{"status.json"}) << n;
      EXPECT_NO_THROW((void)now()) << n;
      if (sound.records()[n].call == test::Call::unlink) continue;
      EXPECT_TRUE(test::says(said, "status.json is not written from step ")) << n;
    }
  }
}

TEST_F(StatusTest, SaysOnceThatItCannotBeWrittenAndThatItCanAgain) {
  test::FaultyOs os;
  os.fail(test::Call::open, 0, EROFS, true);
  std::optional<Status> status;
  std::string said = test::stderr_of([&] { status.emplace(Files{os}, folder.path(), log, clock, 3); });
  EXPECT_TRUE(test::says(said, "not written from step 3 on: "));
  clock.now_s += 20;
  EXPECT_EQ(test::stderr_of([&] { status->running(4, 0.1); }), "");
  os.heal();
  clock.now_s += 20;
  said = test::stderr_of([&] { status->running(5, 0.1); });
  EXPECT_TRUE(test::says(said, "status.json is written again from step 5 on"));
  os.fail(test::Call::open, 0, EROFS, true);
  EXPECT_TRUE(test::says(test::stderr_of([&] { status->stopped(6, "SIGTERM"); }), "not written from step 6 on: "));
  EXPECT_EQ(now().at("step"), 5) << "what could be written stays whole";
}

TEST_F(StatusTest, ALinkInItsPlaceIsReplacedAndAFolderEndsNothing) {
  files.write_atomically(folder / "precious", "mine");
  files.link_symbolically("precious", folder / "status.json");
  Status(files, folder.path(), log, clock, 1).done(2);
  EXPECT_EQ(now().at("state"), "done");
  EXPECT_EQ(files.read_text(folder / "precious"), "mine");
  files.remove(folder / "status.json");
  files.make_folder(folder / "status.json");
  EXPECT_NO_THROW(Status(files, folder.path(), log, clock, 1).done(2));
}

TEST_F(StatusTest, AnErrorOnItsWayOutLeavesFailed) {
  try {
    Status status(files, folder.path(), log, clock, 1);
    status.running(3, 0.3);
    throw Error{Fault::numeric, {.got = "NaN"}};
  } catch (const Error&) {
  }
  EXPECT_EQ(now().at("state"), "failed");
  EXPECT_EQ(now().at("step"), 3);
}

}  // namespace
}  // namespace argosy::telemetry
