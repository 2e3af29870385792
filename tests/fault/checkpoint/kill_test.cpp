#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "core/random.hpp"
#include "support/fault_options.hpp"
#include "support/saved_toys.hpp"
#include "support/temp_folder.hpp"

/// kill -9 at random times of jobs that save one checkpoint after the other, of their launcher, all their ranks or one,
/// and restarts, on one rank or two, that have to find everything and leave nothing behind.
namespace argosy::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr const char* run_variable = "ARGOSY_TEST_KILLED_RUN";
constexpr int max_checkpoints = 3;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// Names in a run directory that no finished work accounts for.
std::vector<std::string> left_in(const Path& run) {
  std::vector<std::string> left;
  for (const char* folder : {"", "checkpoints", "export"}) {
    if (!Files::system().exists(run / folder)) continue;
    for (const std::string& name : Files::system().list(run / folder)) {
      const bool known = *folder == '\0' ? name == "run.json" || name == "latest" || name == "checkpoints" ||
                                               name == "export" || name.starts_with("run.lock.")
                                         : name.find_first_not_of("0123456789") == std::string::npos;
      if (!known || name.find(".tmp") != std::string::npos) left.push_back((Path{folder} / name).string());
    }
  }
  return left;
}

/// The job that is killed: goes on from the newest checkpoint and saves for ever, now and then as a permanent one,
/// every third time while it waits, else while the state goes on changing. Rank 0 tells each acknowledged step.
TEST(Killed, DISABLED_SavesForEver) {
  const char* const mark = std::getenv(run_variable);  // number of the job and its run directory
  ASSERT_NE(mark, nullptr);
  const Path run = std::string{mark}.substr(std::string_view{mark}.find(':') + 1);
  Os os;
  test::TestContext context{os, test::world()};
  const int rank = context.topology().canonical_rank();
  std::optional<Store> opened;
  try {
    opened.emplace(context.get(), run, Store::Options{.max_checkpoints = max_checkpoints});
  } catch (const Error& error) {
    if (error.fault() != Fault::usage) throw;
    if (rank == 0) say("refused");  // ranks of the job that was killed are still alive
    return;
  }
  Store& store = *opened;
  test::Toy live = test::own_toy(context), kept = live, found = live;
  std::int64_t step = 0;
  if (rank == 0) {
    for (const std::string& name : left_in(run)) say("left " + name);
  }
  if (const auto newest = store.load(found.states())) {
    step = newest->step();
    if (!(found == live.fill(static_cast<std::uint64_t>(step)))) say("wrong state");
  }
  if (rank == 0) say(fmt::format("begin {} {}", step, Files::system().list(run / "checkpoints").size()));
  while (true) {
    ++step;
    const Kind kind = step % 7 == 0 ? Kind::export_ : Kind::temp;
    live.fill(static_cast<std::uint64_t>(step));
    std::optional<SaveReport> report;
    if (step % 3 == 0) {
      report = store.save(kind, step, live.states(), test::toy_sections(), test::toy_attachments());
    } else {
      store.begin_save(kind, step, kept.states(), test::toy_sections(), test::toy_attachments(), [&] {
        for (int t = 0; t < 3; ++t)
          for (std::size_t u = 0; u < live.spaces().size(); ++u)
            std::copy(live.tensor(t, u).begin(), live.tensor(t, u).end(), kept.tensor(t, u).begin());
      });
      store.wait_for_units();
      live.fill_all(static_cast<float>(step));
      while (!(report = store.poll_save())) context.get().clock.sleep_s(1e-3);
    }
    if (rank == 0) say(fmt::format("{} {}", report->committed ? "saved" : "not saved", step));
  }
}

enum class Victim { process, launcher, all_ranks, one_rank };
constexpr std::array<const char*, 4> victim_names{"process", "launcher", "all ranks", "one rank"};

/// A job that runs the test above, outside of this program's own: one process, or two ranks under mpiexec.
class Job {
 public:
  Job(const Path& run, bool launched) : mark_(fmt::format("{}={}:{}", run_variable, next_++, run.string())) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    from_ = ends[0];
    pid_ = fork();
    if (pid_ != 0) {
      close(ends[1]);
      return;
    }
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    if (std::freopen("/dev/null", "r", stdin) == nullptr) _exit(127);
    for (const char* name :
         {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"})
      unsetenv(name);
    setenv(run_variable, mark_.c_str() + std::string_view{run_variable}.size() + 1, 1);
    setenv("UCX_TLS", "self,sm", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    const std::string program = executable().string();
    const char* const mpiexec = std::getenv("ARGOSY_MPIEXEC");
    constexpr const char *all = "--gtest_also_run_disabled_tests", *filter = "--gtest_filter=Killed.DISABLED_*";
    if (launched && mpiexec != nullptr) execlp(mpiexec, mpiexec, "-n", "2", program.c_str(), all, filter, nullptr);
    if (!launched) execl(program.c_str(), "saver", all, filter, nullptr);
    _exit(127);
  }
  ~Job() {
    end(0s);
    close(from_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The next line; nullopt after its end or `limit_ms` of silence.
  std::optional<std::string> line(int limit_ms = 60'000) {
    std::size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      pollfd waiting{from_, POLLIN, 0};
      char buffer[4096];
      const ssize_t got = poll(&waiting, 1, limit_ms) > 0 ? read(from_, buffer, sizeof(buffer)) : 0;
      if (got <= 0) return std::nullopt;
      text_.append(buffer, static_cast<std::size_t>(got));
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }
  void kill(Victim victim, std::uint64_t which) {
    const std::vector<pid_t> all = ranks();
    if (victim == Victim::launcher || victim == Victim::process || all.empty()) {
      ::kill(pid_, SIGKILL);
    } else if (victim == Victim::all_ranks) {
      for (const pid_t rank : all) ::kill(rank, SIGKILL);
    } else {
      ::kill(all[which % all.size()], SIGKILL);
    }
  }
  /// Whether launcher and ranks have ended; those that live after `limit` are killed.
  bool end(std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (true) {
      if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
      if (pid_ < 0 && ranks().empty()) return true;
      if (std::chrono::steady_clock::now() > until) break;
      std::this_thread::sleep_for(5ms);
    }
    for (const pid_t rank : ranks()) ::kill(rank, SIGKILL);
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return false;
  }

 private:
  static Path executable() { return std::filesystem::read_symlink("/proc/self/exe"); }
  /// The job's processes that run this program. Ranks leave the launcher's session and outlive it by a moment, so they
  /// are found by what their environment says.
  [[nodiscard]] std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      std::error_code gone;
      if (name.find_first_not_of("0123456789") != std::string::npos ||
          std::filesystem::read_symlink(entry.path() / "exe", gone) != executable())
        continue;
      std::ostringstream environment;
      environment << std::ifstream{entry.path() / "environ"}.rdbuf();
      if (environment.str().find(mark_) != std::string::npos) found.push_back(std::stoi(name));
    }
    return found;
  }

  const std::string mark_;
  static inline int next_ = 0;
  pid_t pid_ = -1;
  int from_ = -1;
  std::string text_;
};

struct Counts {
  std::array<int, 4> kills{};
  int saves = 0, refused = 0, failed_starts = 0;
};

/// One job from its start to its end by kill -9; `acknowledged` rises with what it says. `before`: a killed job that
/// may not have ended yet. False: MPI did not start.
bool run_and_kill(const Path& run, Victim victim, RandomStream& random, std::unique_ptr<Job>& before,
                  std::int64_t& acknowledged, Counts& counts) {
  auto started = std::make_unique<Job>(run, victim != Victim::process);
  Job& job = *started;
  EXPECT_TRUE(!before || before->end(20s)) << "ranks outlive their launcher";
  before.reset();
  std::string said;
  const bool in_start = random.below(8) == 0;
  const auto delay = std::chrono::microseconds(random.below(250'000));
  bool begun = false;
  while (!in_start && !begun) {
    const auto line = job.line();
    if (!line) {
      const bool no_mpi = said.find("MPI_Init") != std::string::npos || said.find("MPIR_Init") != std::string::npos;
      EXPECT_TRUE(no_mpi) << "a job ended before it had begun:\n" << said;
      return false;
    }
    said += *line + "\n";
    if (*line == "refused") {
      ++counts.refused;
      EXPECT_TRUE(job.end(20s));
      return true;
    }
    EXPECT_FALSE(line->starts_with("left ") || line->starts_with("wrong ")) << *line;
    if (!line->starts_with("begin ")) continue;
    std::istringstream words{line->substr(6)};
    std::int64_t step = 0;
    int temporaries = 0;
    words >> step >> temporaries;
    EXPECT_GE(step, acknowledged);
    EXPECT_LE(temporaries, max_checkpoints + 1);
    acknowledged = step;
    begun = true;
  }
  const auto hear = [&](const std::string& line) {
    EXPECT_FALSE(line.starts_with("wrong ") || line.starts_with("not saved")) << line;
    if (!line.starts_with("saved ")) return false;
    acknowledged = std::max<std::int64_t>(acknowledged, std::stoll(line.substr(6)));
    ++counts.saves;
    return true;
  };
  for (std::uint64_t left = begun ? random.below(3) : 0; left > 0; --left) {
    const auto line = job.line();
    EXPECT_TRUE(line && hear(*line)) << "no save: " << line.value_or("silence");
  }
  std::this_thread::sleep_for(delay);
  job.kill(victim, random.next_u64());
  ++counts.kills[static_cast<std::size_t>(victim)];
  // Now and then the next job starts next to ranks that the launcher's death has not yet reached.
  const bool at_once = victim == Victim::launcher && random.below(3) == 0;
  EXPECT_TRUE(at_once || job.end(20s)) << "ranks outlive the death of " << victim_names[static_cast<int>(victim)];
  while (const auto line = job.line(0)) hear(*line);
  if (at_once) before = std::move(started);
  return true;
}

/// ARGOSY_FAULT_SCALE multiplies the number of kills; ARGOSY_FAULT_SEED repeats a failure.
TEST(Kill, LosesNoAcknowledgedCheckpointAndLeavesNothingBehind) {
  const std::uint64_t seed = test::fault_seed(20);
  const int kills = test::scaled(test::is_sanitized ? 20 : 200);
  RandomStream random{seed, 1};
  const test::TempFolder folder;
  std::int64_t acknowledged = 0;
  Counts counts;
  std::unique_ptr<Job> before;
  for (int kill = 0; kill < kills && !testing::Test::HasFailure(); ++kill) {
    SCOPED_TRACE(fmt::format("kill {}, ARGOSY_FAULT_SEED={}", kill, seed));
    const auto victim = static_cast<Victim>(random.below(4));
    if (!run_and_kill(folder / "run", victim, random, before, acknowledged, counts)) ++counts.failed_starts;
  }
  std::printf(
      "kills: %d of a process, %d of a launcher, %d of all ranks, %d of one; %d saves acknowledged, the last of "
      "step %lld; %d jobs refused, %d not started by MPI\n",
      counts.kills[0], counts.kills[1], counts.kills[2], counts.kills[3], counts.saves,
      static_cast<long long>(acknowledged), counts.refused, counts.failed_starts);
  EXPECT_GT(counts.saves, kills);
  EXPECT_LE(counts.failed_starts, 2 + kills / 20);
}

}  // namespace
}  // namespace argosy::checkpoint
