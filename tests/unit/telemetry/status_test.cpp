#include "telemetry/status.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "core/error.hpp"
#include "support/faulty_os.hpp"
#include "support/fixed_clock.hpp"
#include "support/temp_folder.hpp"

namespace argosy::telemetry {
namespace {

class StatusTest : public testing::Test {
 protected:
  StatusTest() { clock.now_s = 86400; }
  boost::json::value now() { return boost::json::parse(files.read_text(folder / "status.json")); }

  test::TempFolder folder;
  test::FixedClock clock;
  Files files = Files::system();
};

TEST_F(StatusTest, TellsHowEachRunEnded) {
  {
    Status status(files, folder.path(), clock, 5, 0.25);
    EXPECT_EQ(now(), boost::json::parse(R"({"state": "running", "step": 5, "fraction_done": 0.25,
                                            "time": "1970-01-02T00:00:00Z"})"));
    clock.now_s += 1;
    status.running(7, 0.35);
    status.stopped(8, "SIGTERM");
  }
  EXPECT_EQ(now(), boost::json::parse(R"({"state": "stopped", "step": 8, "fraction_done": 0.35,
                                          "time": "1970-01-02T00:00:01Z", "reason": "SIGTERM"})"));
  { Status(files, folder.path(), clock, 8).done(9); }
  EXPECT_EQ(now().at("state"), "done");
  EXPECT_EQ(now().at("step"), 9);
}

TEST_F(StatusTest, SaysThatItIsAliveEveryTenSecondsAndWhenItWillEnd) {
  setenv("SLURM_JOB_ID", "4711", 1);
  Status status(files, folder.path(), clock, 0);
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

TEST_F(StatusTest, AFullDiskDoesNotEndTheTraining) {
  test::FaultyOs os;
  Status status(Files{os}, folder.path(), clock, 0);
  os.fail(test::Call::write, os.count(test::Call::write), ENOSPC);
  clock.now_s += 20;
  EXPECT_NO_THROW(status.running(1, 0.1));
  clock.now_s += 20;
  status.running(2, 0.2);
  EXPECT_EQ(now().at("step"), 2);
}

TEST_F(StatusTest, AnErrorOnItsWayOutLeavesFailed) {
  try {
    Status status(files, folder.path(), clock, 1);
    status.running(3, 0.3);
    throw Error{Fault::numeric, {.got = "NaN"}};
  } catch (const Error&) {
  }
  EXPECT_EQ(now().at("state"), "failed");
  EXPECT_EQ(now().at("step"), 3);
}

TEST_F(StatusTest, AFullDiskDoesNotReplaceTheError) {
  test::FaultyOs os;
  os.fail(test::Call::write, 1, ENOSPC, true);
  EXPECT_NO_THROW(Status(Files{os}, folder.path(), clock, 1));
  EXPECT_EQ(now().at("state"), "running") << "what could be written stays whole";
}

}  // namespace
}  // namespace argosy::telemetry
