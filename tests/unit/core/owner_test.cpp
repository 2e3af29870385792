#include "core/owner.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <functional>

#include "support/own_process.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

class OwnerTest : public testing::Test {
 protected:
  [[nodiscard]] static Owner of_this_process() { return Owner::of_this_process(Files::system(), Clock{}); }
  [[nodiscard]] static bool is_gone(const Owner& owner) { return owner.is_gone(Files::system(), of_this_process()); }
};

TEST_F(OwnerTest, SurvivesAsText) {
  const Owner owner = of_this_process();
  EXPECT_NE(owner.pid_namespace, 0U);
  const auto back = Owner::parse(owner.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(std::tuple(back->pid, back->pid_namespace, back->start_time),
            std::tuple(owner.pid, owner.pid_namespace, owner.start_time));
}

TEST_F(OwnerTest, ReadsTextsOfEarlierVersionsAndHoldsTheirOwnersForAlive) {
  const auto old = Owner::parse(
      R"({"host":"a","pid":7,"start_time":"1","boot_id":"b","slurm_job":"","slurm_restart":0,"heartbeat":1.5e9,)"
      R"("beats":3,"nonce":"c","released":false})");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->pid_namespace, 0U);
  Owner here = of_this_process();
  here.pid = test::dead_pid();
  EXPECT_TRUE(is_gone(here));
  here.pid_namespace = 0;
  EXPECT_FALSE(is_gone(here)) << "nobody knows where its number meant something";
}

TEST_F(OwnerTest, RefusesNumbersThatNoProcessHas) {
  Owner owner = of_this_process();
  for (const std::int64_t pid : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 31, INT64_MAX}) {
    owner.pid = pid;
    EXPECT_FALSE(Owner::parse(owner.text())) << pid;
  }
  for (const double heartbeat_s : {-1e300, 1e12, 1e300}) {
    std::string text = of_this_process().text();
    const std::size_t at = text.find("\"heartbeat\":"), end = text.find(',', at);
    text.replace(at, end - at, fmt::format("\"heartbeat\":{}", heartbeat_s));
    EXPECT_FALSE(Owner::parse(text)) << heartbeat_s;
  }
}

TEST_F(OwnerTest, AnotherBootOfTheSameHostNameMayBeAnotherMachine) {
  Owner owner = of_this_process();
  owner.boot_id[0] = owner.boot_id[0] == '0' ? '1' : '0';
  EXPECT_FALSE(is_gone(owner));
  const Clock clock;
  const Owner self = of_this_process();
  EXPECT_FALSE(owner.may_have_ended_with_an_earlier_boot(Files::system(), clock, self)) << "it beats now";
  owner.heartbeat_s = 1e9;
  EXPECT_TRUE(owner.may_have_ended_with_an_earlier_boot(Files::system(), clock, self)) << "not since we were started";
  owner.boot_id = self.boot_id;
  EXPECT_FALSE(owner.may_have_ended_with_an_earlier_boot(Files::system(), clock, self));
}

/// What `look` answers in a new pid namespace, with a /proc of its own or with the one outside; nullopt where this
/// machine does not allow that.
std::optional<bool> in_new_pid_namespace(bool own_proc, const std::function<bool()>& look) {
  constexpr int yes = 10, no = 11, not_allowed = 12;
  const int answer = test::exit_code_in_child([&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) return not_allowed;
    return test::exit_code_in_child([&] {
      const bool made = !own_proc || (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                      mount("proc", "/proc", "proc", 0, nullptr) == 0);
      return !made ? not_allowed : look() ? yes : no;
    });
  });
  if (answer == not_allowed) return std::nullopt;
  EXPECT_TRUE(answer == yes || answer == no) << answer;
  return answer == yes;
}

TEST_F(OwnerTest, ContainersDoNotTakeEachOtherForDead) {
  const Owner outside = of_this_process();
  for (const bool own_proc : {true, false}) {
    const auto gone = in_new_pid_namespace(own_proc, [&] { return is_gone(outside); });
    if (!gone) GTEST_SKIP() << "no rights to make a pid namespace";
    EXPECT_FALSE(*gone) << own_proc;
    // The first process of each has number 1.
    const test::TempFolder folder;
    const auto write = [&] { return Files::system().write_atomically(folder / "x", of_this_process().text()), true; };
    // The second looks while the first lives: the inode of one that has ended may come back.
    const auto look = [&] {
      const Owner first = of_this_process();
      return write() && in_new_pid_namespace(own_proc, [&] { return is_gone(first); }).value_or(true);
    };
    EXPECT_EQ(in_new_pid_namespace(own_proc, look), false) << own_proc;
    const auto inside = Owner::parse(Files::system().read_text(folder / "x"));
    ASSERT_TRUE(inside);
    EXPECT_EQ(inside->pid, 1);
    EXPECT_FALSE(is_gone(*inside)) << own_proc;
  }
}

TEST_F(OwnerTest, AProcessThatProcHidesIsNotGone) {
  class Hiding : public Os {  // as a /proc mounted with hidepid hides those of other users
   public:
    int open(const char* path, int flags, unsigned mode) override {
      const bool hidden = std::string_view{path} == fmt::format("/proc/{}/stat", getpid());
      return Os::open(hidden ? "/proc/nothing" : path, flags, mode);
    }
  } os;
  EXPECT_FALSE(of_this_process().is_gone(Files{os}, of_this_process()));
}

}  // namespace
}  // namespace argosy
