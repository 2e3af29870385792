#include "train/stop_policy.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <map>

#include "core/error.hpp"
#include "support/captured.hpp"
#include "support/faulty_os.hpp"
#include "support/fixed_clock.hpp"
#include "support/mpi_test.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::train {
namespace {

using testing::HasSubstr;

class StopPolicyTest : public testing::Test {
 protected:
  StopPolicyTest() {
    clock.now_s = 1000;
    config.file = (folder / "stop").string();
  }
  StopPolicy policy() {
    return {context, config, [this](const std::string& name) {
              const auto found = variables.find(name);
              return found == variables.end() ? std::nullopt : std::optional(found->second);
            }};
  }

  void stop_by_file() { Files::system().write_atomically(folder / "stop", std::string_view{}); }

  const test::TempFolder folder;
  test::FixedClock clock;
  StopSignals signals;
  comm::Communicator alone = test::world().split(test::world().rank(), 0);  // each rank the first of its own world
  comm::Topology topology = comm::Topology::discover(alone, "node");
  Log log{0, LogLevel::warn};
  comm::Context context{alone, topology, log, Files::system(), clock, signals};
  std::map<std::string, std::string> variables;
  plan::StopConfig config;
};

TEST_F(StopPolicyTest, GoesOnUnlessThereIsAReason) {
  StopPolicy stop = policy();
  EXPECT_FALSE(stop.wants_to_stop());
  stop.took(1e6, 1e6);
  EXPECT_FALSE(stop.wants_to_stop()) << "an allocation without an end";
  EXPECT_EQ(stop.reason(), "another rank was asked to stop");
}

TEST_F(StopPolicyTest, StopsForASignal) {
  StopPolicy stop = policy();
  std::raise(SIGUSR1);
  EXPECT_TRUE(stop.wants_to_stop());
  EXPECT_EQ(stop.reason(), "SIGUSR1");
}

TEST_F(StopPolicyTest, StopsForItsFileAndAsksOnceASecond) {
  StopPolicy stop = policy();
  EXPECT_FALSE(stop.wants_to_stop());
  stop_by_file();
  clock.now_s += 0.9;
  EXPECT_FALSE(stop.wants_to_stop());
  clock.now_s += 0.2;
  EXPECT_TRUE(stop.wants_to_stop());
  EXPECT_THAT(stop.reason(), HasSubstr("/stop exists"));
}

TEST_F(StopPolicyTest, RefusesToStartWhileItsFileIsThere) {
  stop_by_file();
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)policy(); }),
              testing::AllOf(HasSubstr("/stop exists"), HasSubstr("stop.file"), HasSubstr("remove it")));
}

TEST_F(StopPolicyTest, AStopForAnotherReasonIsAUsersTooWhileTheFileIsThere) {
  StopPolicy stop = policy();
  std::raise(SIGUSR1);
  EXPECT_TRUE(stop.wants_to_stop());
  EXPECT_FALSE(stop.is_asked_by_file());
  stop_by_file();
  EXPECT_TRUE(stop.is_asked_by_file());
}

TEST_F(StopPolicyTest, AFileThatCannotBeLookedUpIsAskedForAgain) {
  test::FaultyOs os;
  context.files = Files{os};
  StopPolicy stop = policy();
  stop_by_file();
  os.fail(test::Call::stat, os.count(test::Call::stat), ESTALE);
  EXPECT_THAT(test::stderr_of([&] { EXPECT_FALSE(stop.wants_to_stop()); }), HasSubstr("ESTALE"));
  clock.now_s += 2;
  EXPECT_TRUE(stop.wants_to_stop());
}

TEST_F(StopPolicyTest, KeepsTimeBeforeTheEndOfTheAllocation) {
  variables["ARGOSY_DEADLINE"] = "2000";
  const auto stops_at_s = [&] {
    StopPolicy stop = policy();
    const double begin_s = clock.now_s;
    while (!stop.wants_to_stop()) clock.now_s += 1;
    const double at_s = clock.now_s;
    EXPECT_THAT(stop.reason(), HasSubstr(fmt::format("ends in {:.0f} s", 2000 - at_s)));
    clock.now_s = begin_s;
    return at_s;
  };
  EXPECT_EQ(stops_at_s(), 1940) << "a minute";
  variables["ARGOSY_STOP_NOTICE_S"] = "300";
  EXPECT_EQ(stops_at_s(), 1700) << "as long as the scheduler would leave";
  config.before_end_s = 20.5;
  EXPECT_EQ(stops_at_s(), 1980) << "as configured";
}

TEST_F(StopPolicyTest, KeepsTimeForTwoOfItsLongestStepsAndSaves) {
  variables["ARGOSY_DEADLINE"] = "2000";
  variables["ARGOSY_STOP_NOTICE_S"] = "100";
  StopPolicy stop = policy();
  stop.took(20, 25);
  stop.took(5, 5);
  EXPECT_EQ(stop.kept_s(), 100);
  const std::string said = test::stderr_of([&] {
    stop.took(30, 25);
    stop.took(30, 30);
  });
  EXPECT_EQ(stop.kept_s(), 120);
  EXPECT_THAT(said, HasSubstr("do not fit into the 100 s"));
  EXPECT_THAT(said, HasSubstr("--signal=B:USR1@110, and set ARGOSY_STOP_NOTICE_S=110"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once";
  clock.now_s = 1879;
  EXPECT_FALSE(stop.wants_to_stop());
  clock.now_s = 1880;
  EXPECT_TRUE(stop.wants_to_stop());
}

TEST_F(StopPolicyTest, RefusesAnAllocationThatEndsTooSoon) {
  variables["ARGOSY_DEADLINE"] = "1050";
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)policy(); }),
              testing::AllOf(HasSubstr("needs 60 s for its last step"), HasSubstr("the allocation ends in 50 s"),
                             HasSubstr("ask for a longer allocation")));
  config.before_end_s = 10;
  EXPECT_NO_THROW((void)policy());
}

TEST_F(StopPolicyTest, RefusesWhatIsNoTime) {
  for (const char* text : {"soon", "12x", "-1", "N/A"}) {
    variables = {{"ARGOSY_DEADLINE", text}};
    EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)policy(); }),
                testing::AllOf(HasSubstr(text), HasSubstr("ARGOSY_DEADLINE")));
  }
}

}  // namespace
}  // namespace argosy::train
