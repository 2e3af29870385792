#include "core/lease.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "core/signal.hpp"
#include "support/caught.hpp"
#include "support/fixed_clock.hpp"
#include "support/own_process.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

constexpr double wall_begin_s = 1.7e9;

class StepClock : public test::FixedClock {
 public:
  double wall_s() const override { return wall_begin_s + now_s; }
};

class LeaseTest : public testing::Test {
 protected:
  void leave(std::int64_t generation, const std::string& content) {
    files.write_atomically(folder / fmt::format("run.lock.{}", generation), content);
  }
  Owner self() { return Owner::of_this_process(files, clock); }
  /// An owner like this process but for what `change` does.
  template <class Change>
  void leave_owner(std::int64_t generation, const Change& change) {
    Owner owner = self();
    change(owner);
    leave(generation, owner.text());
  }
  Lease lease(const Clock& by) { return {files, by, folder.path(), "run directory"}; }
  Lease lease() { return lease(clock); }
  /// Generation taken, or nullopt when refused.
  std::optional<std::int64_t> take() {
    std::optional<std::int64_t> generation;
    const auto error = test::caught([&] { generation = lease().generation(); });
    EXPECT_TRUE(!error || error->fault() == Fault::usage);
    if (error) text = error->what();
    return generation;
  }

  Files files = Files::system();
  StepClock clock;
  test::TempFolder folder;
  std::string text;
};

TEST_F(LeaseTest, SaysWhoHoldsIt) {
  const Lease lock = lease();
  const auto owner = Owner::parse(files.read_text(folder / "run.lock.1"));
  ASSERT_TRUE(owner);
  EXPECT_EQ(owner->pid, getpid());
  EXPECT_EQ(owner->boot_id.size(), 36U);
  EXPECT_FALSE(owner->start_time.empty());
  EXPECT_FALSE(owner->host.empty());
  EXPECT_EQ(owner->heartbeat_s, wall_begin_s);
}

TEST_F(LeaseTest, RefusesASecondJobAndNamesTheFirst) {
  const Lease lock = lease();
  EXPECT_EQ(take(), std::nullopt);
  EXPECT_TRUE(test::says(text, fmt::format("process {}", getpid()), self().host, "run.lock.1"));
  EXPECT_LT(clock.now_s, 3);
}

TEST_F(LeaseTest, FollowsAReleasedOwnerAndRisesEachTime) {
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), 2);
  EXPECT_EQ(take(), 3);
  EXPECT_FALSE(files.exists(folder / "run.lock.2"));
  EXPECT_EQ(clock.now_s, 0) << "at once";
}

TEST_F(LeaseTest, TakesOverFromDeadProcessesAtOnce) {
  const pid_t unreaped = fork();
  if (unreaped == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(unreaped), &info, WEXITED | WNOWAIT);
  const std::function<void(Owner&)> deaths[] = {[](Owner& owner) { owner.pid = test::dead_pid(); },
                                                [&](Owner& owner) { owner.pid = unreaped; },
                                                [](Owner& owner) { owner.start_time += "1"; }};  // of another process
  for (std::int64_t generation = 7; const auto& death : deaths) {
    leave_owner(generation, death);
    EXPECT_EQ(take(), generation + 1);
    generation += 2;
  }
  EXPECT_EQ(clock.now_s, 0);
  waitpid(unreaped, nullptr, 0);
}

TEST_F(LeaseTest, TakesOverTwoMinutesAfterARestartOfTheMachine) {
  leave_owner(1, [](Owner& owner) { owner.boot_id[0] = owner.boot_id[0] == '0' ? '1' : '0'; });
  EXPECT_EQ(take(), std::nullopt) << "another machine of that name: it beats since this one was started";
  double up_s = 0;
  std::ifstream("/proc/uptime") >> up_s;
  clock.now_s += up_s + 60;
  const double begin_s = clock.now_s;
  EXPECT_EQ(take(), 2);
  EXPECT_GT(clock.now_s - begin_s, 120);
  EXPECT_LT(clock.now_s - begin_s, 125);
}

TEST_F(LeaseTest, WaitsForTheHeartbeatOfAnOwnerInAnotherPidNamespace) {
  leave_owner(1, [](Owner& owner) {
    owner.pid = test::dead_pid();
    ++owner.pid_namespace;
  });
  EXPECT_EQ(take(), std::nullopt);
  clock.now_s = 700;
  EXPECT_EQ(take(), 2);
  EXPECT_GT(clock.now_s, 820);
}

TEST_F(LeaseTest, NamesThatItDoesNotMakeAreNoLocksAndStay) {
  const std::vector<std::string> others({"-5", "007", "1000000000000000", "9223372036854775807", "99999999999999999999",
                                         "mine", "mine.tmp-0123456789abcdef"});
  for (const std::string& end : others) files.write_atomically(folder / ("run.lock." + end), "mine");
  EXPECT_EQ(take(), 1);
  for (const std::string& end : others) EXPECT_TRUE(files.exists(folder / ("run.lock." + end))) << end;
  EXPECT_EQ(clock.now_s, 0);
}

TEST_F(LeaseTest, RefusesALockAfterWhichThereIsNoNumber) {
  leave(999'999'999'999'999, "forged");
  test::refusal(Fault::io, [&] { lease(); });
  EXPECT_LT(clock.now_s, 15);
}

TEST_F(LeaseTest, NeitherHangsOnAPipeNorOnALinkThatLeadsNowhere) {
  ASSERT_EQ(mkfifo((folder / "run.lock.3").c_str(), 0600), 0);
  EXPECT_EQ(test::error_of([&] { lease(); }).facts().got, "a pipe");
  files.remove(folder / "run.lock.3");
  files.link_symbolically("nowhere", folder / "run.lock.3");
  test::refusal(Fault::io, [&] { lease(); });
  EXPECT_LT(clock.now_s, 400);
}

TEST_F(LeaseTest, ObeysASignalWhileItWaits) {
  const StopSignals stop;
  class Signalled : public StepClock {
   public:
    void sleep_s(double seconds) const override {
      StepClock::sleep_s(seconds);
      if (now_s > 5) raise(SIGTERM);
    }
  } signalled;
  leave_owner(1, [](Owner& owner) {
    owner.host += "-other";
    owner.heartbeat_s -= 700;
  });
  const Error error = test::error_of([&] { lease(signalled); });
  EXPECT_EQ(error.fault(), Fault::usage);
  EXPECT_TRUE(test::says(error.facts().got, "signal 15"));
  EXPECT_LT(signalled.now_s, 10);
  EXPECT_EQ(files.list(folder.path()), std::vector<std::string>{"run.lock.1"});
}

TEST_F(LeaseTest, LeavesOwnersOnOtherHostsAlone) {
  leave_owner(1, [](Owner& owner) {
    owner.host += "-other";
    owner.pid = test::dead_pid();
  });
  EXPECT_EQ(take(), std::nullopt);
}

TEST_F(LeaseTest, PassesToTheNextStartOfTheSameSlurmJob) {
  const auto of_job = [](Owner& owner) {
    owner.host += "-other";
    owner.slurm_job = "4711";
    owner.slurm_restart = 0;
  };
  leave_owner(1, of_job);
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(take(), 2);
  leave_owner(5, of_job);
  setenv("SLURM_RESTART_COUNT", "0", 1);
  EXPECT_EQ(take(), std::nullopt) << "the same start, not a later one";
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
}

TEST_F(LeaseTest, WaitsForALineThatCanBeRead) {
  for (const char* half : {"", "{\"host\":\"a\",", "[]"}) {
    clock.now_s = 0;
    leave(3, half);
    EXPECT_EQ(take(), 4) << "its writer is dead";
    EXPECT_GT(clock.now_s, 10);
    EXPECT_LT(clock.now_s, 12);
    files.remove(folder / "run.lock.4");
  }
}

TEST_F(LeaseTest, SeesThatAnotherHasTakenOver) {
  Lease lock = lease();
  lock.check();
  leave(2, self().text());
  test::refusal(Fault::usage, [&] { lock.check(); });
}

TEST_F(LeaseTest, BeatsAreSeenByOthers) {
  Lease lock = lease();
  clock.now_s = 60;
  lock.beat();
  EXPECT_EQ(Owner::parse(files.read_text(folder / "run.lock.1"))->heartbeat_s, wall_begin_s + 60);
}

/// An owner on another host, whose heartbeat lies `age_s` back by our clock; it beats every 15 s until `dies_s`.
class DistantOwner : public StepClock {
 public:
  DistantOwner(const Files& files_to_use, Path lock_path, Owner owner_to_be, double age_s, double dies)
      : files(files_to_use), path(std::move(lock_path)), owner(std::move(owner_to_be)), dies_s(dies) {
    owner.host += "-other";
    owner.heartbeat_s = wall_s() - age_s;
    files.write_atomically(path, owner.text());
  }
  void sleep_s(double seconds) const override {
    StepClock::sleep_s(seconds);
    constexpr double interval_s = 15;
    if (now_s > dies_s || now_s < beaten_s + interval_s) return;
    beaten_s = now_s;
    owner.heartbeat_s += drift * interval_s;
    ++owner.beats;
    files.write_atomically(path, owner.text());
  }
  Files files;
  Path path;
  mutable Owner owner;
  double dies_s, drift = 1;
  mutable double beaten_s = 0;
};

constexpr double year_s = 3.2e7, never = 1e9;

TEST_F(LeaseTest, RefusesALiveOwnerElsewhereAtOnceWhereClocksAgree) {
  for (const double age_s : {-500.0, 0.0, 14.0, 500.0}) {
    const DistantOwner elsewhere{files, folder / "run.lock.1", self(), age_s, never};
    test::refusal(Fault::usage, [&] { lease(elsewhere); });
    EXPECT_LT(elsewhere.now_s, 3) << age_s;
  }
}

TEST_F(LeaseTest, TakesNoLiveOwnerForDeadWhateverTheClocksSay) {
  for (const double age_s : {-year_s, -700.0, 700.0, 20 * year_s})
    for (const double drift : {1.0, 0.0, -1000.0}) {
      DistantOwner elsewhere{files, folder / "run.lock.1", self(), age_s, never};
      elsewhere.drift = drift;
      test::refusal(Fault::usage, [&] { lease(elsewhere); });
      EXPECT_LT(elsewhere.now_s, 20) << age_s;
    }
}

TEST_F(LeaseTest, TakesOverWhereTheHeartbeatHasStopped) {
  for (const double age_s : {700.0, 20 * year_s, -year_s}) {
    const DistantOwner elsewhere{files, folder / "run.lock.1", self(), age_s, 0};
    EXPECT_EQ(lease(elsewhere).generation(), 2);
    EXPECT_GT(elsewhere.now_s, 120) << age_s;
    EXPECT_LT(elsewhere.now_s, 125) << age_s;
    files.remove(folder / "run.lock.2");
  }
}

TEST_F(LeaseTest, AClockThatJumpsWhileItWaitsProvesNothing) {
  class Jumping : public DistantOwner {
   public:
    using DistantOwner::DistantOwner;
    double wall_s() const override { return DistantOwner::wall_s() + (now_s > 0.5 ? year_s : 0); }
  };
  const Jumping elsewhere{files, folder / "run.lock.1", self(), 5, never};
  test::refusal(Fault::usage, [&] { lease(elsewhere); });
}

TEST_F(LeaseTest, BeatsByItselfUntilItEnds) {
  const Clock real;
  Lease lock = lease(real);
  const auto beats = [&] { return Owner::parse(files.read_text(folder / "run.lock.1"))->beats; };
  {
    const std::jthread beating = heartbeat(lock, std::chrono::milliseconds{5});
    const double begin_s = real.monotonic_s();
    while (beats() < 3 && real.monotonic_s() < begin_s + 30) real.sleep_s(0.01);
  }
  const std::int64_t last = beats();
  EXPECT_GE(last, 3);
  real.sleep_s(0.05);
  EXPECT_EQ(beats(), last);
}

TEST_F(LeaseTest, AnOwnerThatWasReplacedBeatsNoMore) {
  Lease lock = lease();
  leave(2, self().text());
  files.remove(folder / "run.lock.1");
  lock.beat();
  EXPECT_FALSE(files.exists(folder / "run.lock.1"));
}

TEST_F(LeaseTest, GoesOnWhenTheLockIsRemovedWhileItLooks) {
  class Removing : public Os {  // another job has taken over between the listing and the reading
   public:
    int open(const char* path, int flags, unsigned mode) override {
      if (std::string_view{path}.ends_with("run.lock.1") && (flags & O_CREAT) == 0) Os::unlink(path);
      return Os::open(path, flags, mode);
    }
  } os;
  leave_owner(1, [](Owner& owner) { owner.pid = test::dead_pid(); });
  files = Files{os};
  EXPECT_EQ(take(), 1);
}

TEST_F(LeaseTest, OneOfTwoStartsWinsWhereverTheOtherIsKeptWaiting) {
  class Slow : public Os {  // the other job starts at the n-th call
   public:
    Slow(int n, std::function<void()> other) : left_(n), other_(std::move(other)) {}
    int open(const char* path, int flags, unsigned mode) override { return wait(), Os::open(path, flags, mode); }
    std::int64_t write(int fd, const void* from, std::size_t size) override {
      return wait(), Os::write(fd, from, size);
    }
    int fsync(int fd) override { return wait(), Os::fsync(fd); }
    int rename_noreplace(const char* from, const char* to) override { return wait(), Os::rename_noreplace(from, to); }
    [[nodiscard]] bool reached() const { return left_ < 0; }

   private:
    void wait() {
      if (left_-- == 0) other_();
    }
    int left_;
    std::function<void()> other_;
  };
  int lost = 0, n = 0;
  for (bool reached = true; reached; ++n) {
    const Path run = folder / fmt::format("{}", n);
    files.make_folder(run);
    std::optional<Lease> other;
    bool refused = false;
    Slow os{n, [&] {
              const auto error = test::caught([&] { other.emplace(Files::system(), clock, run, "run directory"); });
              EXPECT_TRUE(!error || error->fault() == Fault::usage);
              refused = error.has_value();
            }};
    try {
      const Lease lock{Files{os}, clock, run, "run directory"};
      EXPECT_TRUE(refused || !os.reached()) << "two owners, call " << n;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::usage) << error.what();
      EXPECT_TRUE(other) << "no owner, call " << n;
      ++lost;
    }
    reached = os.reached();
  }
  EXPECT_GT(lost, 4) << "before its line is there";
  EXPECT_GT(n - lost, 2);
}

TEST_F(LeaseTest, OneOfManyWinsAStaleLock) {
  for (int round = 0; round < 5; ++round) {
    leave_owner(100 * (round + 1), [](Owner& owner) { owner.pid = test::dead_pid(); });
    std::vector<pid_t> children;
    int gate[2], held[2];
    ASSERT_EQ(pipe(gate), 0);
    ASSERT_EQ(pipe(held), 0);
    for (int i = 0; i < 6; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        close(gate[1]);
        close(held[1]);
        char byte = 0;
        static_cast<void>(read(gate[0], &byte, 1));  // end of file: all start together
        int code = 2;
        try {
          const Lease lock = lease();
          static_cast<void>(read(held[0], &byte, 1));  // holds it until all others have given up
          code = 0;
        } catch (const Error& error) {
          code = error.fault() == Fault::usage ? 1 : 3;
        }
        _exit(code);
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    close(held[0]);
    int winners = 0, losers = 0;
    for (int ended = 0; ended < 6; ++ended) {
      if (losers == 5) close(held[1]);
      int status = 0;
      waitpid(-1, &status, 0);
      winners += WEXITSTATUS(status) == 0 ? 1 : 0;
      losers += WEXITSTATUS(status) == 1 ? 1 : 0;
    }
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(losers, 5);
  }
}

}  // namespace
}  // namespace argosy
