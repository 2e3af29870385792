#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "support/checkpoints.hpp"
#include "support/temp_folder.hpp"

/// kill -9 at random times while a process saves one checkpoint after the other, and a restart that has to find
/// everything.
namespace argosy::checkpoint {
namespace {

constexpr const char* run_variable = "ARGOSY_TEST_KILLED_RUN";

/// The process that is killed: goes on from the newest checkpoint, saves for ever, tells each acknowledged step on
/// stdout.
TEST(Killed, DISABLED_SavesForEver) {
  const char* const run = std::getenv(run_variable);
  ASSERT_NE(run, nullptr);
  Os os;
  test::TestContext context{os, test::world()};
  Store store{context.get(), run, {.max_checkpoints = 3}};
  test::Toy toy{test::tiny_units(), context.topology().layout(), 0},
      got{test::tiny_units(), context.topology().layout(), 0};
  std::int64_t step = 0;
  const Path checkpoints = Path{run} / "checkpoints";
  int temporaries = 0;
  for (const std::string& name : Files::system().list(checkpoints)) {
    if (name.starts_with(".")) std::printf("left %s\n", name.c_str());
    ++temporaries;
  }
  if (const auto newest = store.newest()) {
    step = newest->step();
    newest->verify();
    newest->read_state(got.states(), 0);
    if (!(got == toy.fill(static_cast<std::uint64_t>(step)))) std::printf("wrong state\n");
  }
  std::printf("begin %lld %d\n", static_cast<long long>(step), temporaries);
  std::fflush(stdout);
  while (true) {
    ++step;
    if (store
            .save(checkpoint::Kind::temp, step, toy.fill(static_cast<std::uint64_t>(step)).states(),
                  test::toy_sections(), test::toy_attachments())
            .committed) {
      std::printf("saved %lld\n", static_cast<long long>(step));
      std::fflush(stdout);
    }
  }
}

/// A child that runs the test above, outside of this program's MPI job.
class Saver {
 public:
  explicit Saver(const Path& run) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    from_ = ends[0];
    pid_ = fork();
    if (pid_ != 0) {
      close(ends[1]);
      return;
    }
    dup2(ends[1], STDOUT_FILENO);
    for (const char* name :
         {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"})
      unsetenv(name);
    setenv(run_variable, run.c_str(), 1);
    execl("/proc/self/exe", "saver", "--gtest_also_run_disabled_tests", "--gtest_filter=Killed.DISABLED_SavesForEver",
          nullptr);
    _exit(127);
  }
  ~Saver() {
    kill();
    close(from_);
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// The next line; nullopt after its end or a minute of silence.
  std::optional<std::string> line(int limit_ms = 60'000) {
    for (std::size_t end = text_.find('\n'); end == std::string::npos; end = text_.find('\n')) {
      pollfd waiting{from_, POLLIN, 0};
      char buffer[4096];
      const ssize_t got = poll(&waiting, 1, limit_ms) > 0 ? read(from_, buffer, sizeof(buffer)) : 0;
      if (got <= 0) return std::nullopt;
      text_.append(buffer, static_cast<std::size_t>(got));
    }
    const std::size_t end = text_.find('\n');
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
  std::string text_;
};

/// ARGOSY_FAULT_SCALE multiplies the number of kills; ARGOSY_FAULT_SEED repeats a failure.
TEST(Kill, LosesNoAcknowledgedCheckpoint) {
  const char* const scale_text = std::getenv("ARGOSY_FAULT_SCALE");
  const char* const seed_text = std::getenv("ARGOSY_FAULT_SEED");
  const double scale = scale_text == nullptr ? 1 : std::atof(scale_text);
  const std::uint64_t seed = seed_text == nullptr ? 20 : std::strtoull(seed_text, nullptr, 10);
  SCOPED_TRACE(fmt::format("ARGOSY_FAULT_SEED={}", seed));
  RandomStream random{seed, 1};
  const test::TempFolder folder;
  std::int64_t acknowledged = 0;
  int saves = 0;
  for (int kills = 0; kills < static_cast<int>(25 * scale); ++kills) {
    Saver saver{folder / "run"};
    while (true) {  // the first lines: what the restart has found
      const auto line = saver.line();
      ASSERT_TRUE(line) << "the saver ended by itself after " << kills << " kills";
      EXPECT_FALSE(line->starts_with("left ") || line->starts_with("wrong ")) << *line;
      if (!line->starts_with("begin ")) continue;
      std::istringstream words{line->substr(6)};
      std::int64_t step = 0;
      int temporaries = 0;
      words >> step >> temporaries;
      EXPECT_GE(step, acknowledged);
      EXPECT_LE(temporaries, 4);
      acknowledged = step;
      break;
    }
    const auto until_us = static_cast<useconds_t>(random.below(250'000));
    if (random.below(4) > 0) {
      const auto line = saver.line();
      ASSERT_TRUE(line && line->starts_with("saved ")) << "no save after " << kills << " kills";
      acknowledged = std::stoll(line->substr(6));
    }
    usleep(until_us);
    saver.kill();
    while (const auto line = saver.line(0)) {
      if (!line->starts_with("saved ")) continue;
      acknowledged = std::stoll(line->substr(6));
      ++saves;
    }
  }
  EXPECT_GT(saves, 10);
}

}  // namespace
}  // namespace argosy::checkpoint
