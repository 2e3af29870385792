#include "comm/run_main.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <boost/describe.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/environment.hpp"
#include "comm/exit_file.hpp"
#include "comm/launcher.hpp"
#include "comm/message.hpp"
#include "comm/session.hpp"
#include "core/denormals.hpp"
#include "core/hash.hpp"
#include "core/utf8.hpp"

namespace argosy::comm {
namespace {

// How long a failed rank waits for the others to fail as well, as they do with a wrong option, before it ends the job.
constexpr double lone_failure_s = 2;
// How long a failed rank may take to come to its end: a device may hold its main thread, or the destructors of its
// data.
constexpr std::chrono::seconds hold_limit{10};

// Global, because the step must reach the exit file from any point of failure.
std::atomic<std::int64_t> exit_step{0};
std::string exit_why;  // of a stop

/// How one rank's body ended.
struct Outcome {
  int code = 0;
  std::string sentence;          // of the error, if any
  bool others_may_hang = false;  // a communication failed, so MPI can no longer be trusted
  bool reader_left = false;      // of standard output

  [[nodiscard]] bool failed() const {
    return code != static_cast<int>(Exit::ok) && code != static_cast<int>(Exit::stopped);
  }
};
BOOST_DESCRIBE_STRUCT(Outcome, (), (code, sentence))  // what the other ranks are told

Outcome outcome_of(const Error& error) {
  return {static_cast<int>(exit_code(error.fault())), error.what(), error.fault() == Fault::comm,
          dynamic_cast<const ReaderLeft*>(&error) != nullptr};
}

Outcome outcome_of(const std::function<Exit()>& body) {
  try {
    return {.code = static_cast<int>(body()), .sentence = ""};
  } catch (const Error& error) {
    return outcome_of(error);
  } catch (const std::exception& error) {
    return {static_cast<int>(Exit::internal), fmt::format("unexpected internal error: {}", error.what()), false};
  }
}

Outcome outcome_of(const std::exception_ptr& error) {
  return outcome_of([&]() -> Exit { std::rethrow_exception(error); });
}

std::string result_line(std::string_view tool, std::string_view status, const boost::json::object& figures) {
  boost::json::object line{{"tool", tool}, {"status", status}};
  for (const auto& figure : figures) line.insert(figure);
  return "result " + replace_invalid_utf8(boost::json::serialize(line));
}

std::string failure_line(std::string_view tool, const Outcome& outcome) {
  return result_line(tool, "failed", {{"code", outcome.code}, {"error", outcome.sentence}});
}

/// **Collective.** The outcome of the lowest failing rank; else stopped if any rank stopped.
Outcome common_outcome(const Communicator& verdicts, const Outcome& mine) {
  std::array<std::int64_t, 2> largest{mine.failed() ? verdicts.size() - verdicts.rank() : 0, mine.code};
  verdicts.all_reduce(std::span<std::int64_t>{largest}, Reduce::max);
  if (largest[0] == 0) return {.code = static_cast<int>(largest[1]), .sentence = ""};
  const int failing = verdicts.size() - static_cast<int>(largest[0]);
  return from_message<Outcome>(verdicts.broadcast(to_message(mine), failing));
}

/// **Collective.** Whether this is the lowest rank with that text.
bool is_first_with(const Communicator& verdicts, const std::string& text) {
  const auto own = std::bit_cast<std::int64_t>(hash64(text));
  const std::vector<std::int64_t> hashes = verdicts.all_gather(own);
  return std::find(hashes.begin(), hashes.end(), own) - hashes.begin() == verdicts.rank();
}

/// How this rank ends: the log, the exit file and the result line for scripts.
struct Ending {
  Environment& environment;
  const Log& log;
  const ExitFile& exit_file;
  std::string_view tool;

  /// Logs each different error once, on the lowest rank that has it, and writes the common code to the exit file.
  /// Returns the common outcome. **Collective.**
  [[nodiscard]] Outcome settle(const Outcome& mine) const {
    const Communicator& verdicts = environment.verdicts();
    Outcome common = common_outcome(verdicts, mine);
    const bool speaks = common.failed() && is_first_with(verdicts, to_message(mine));
    if (speaks && mine.failed() && !mine.sentence.empty()) log.error("{}", mine.sentence);
    log.flush();
    verdicts.barrier("sentences");
    if (verdicts.rank() == 0) {
      if (!common.sentence.empty()) log.plain(failure_line(tool, common));
      try {
        exit_file.write_agreed(common.code, exit_step, common.code == static_cast<int>(Exit::stopped) ? exit_why : "");
      } catch (const Error& error) {
        log.warn("exit code {} cannot be written to the exit file: {}", common.code, error.what());
      }
    }
    return common;
  }

  [[noreturn]] void fail_alone(const Outcome& mine) const {
    log.error("{}", mine.sentence);
    exit_file.write_first(mine.code, exit_step);
    Log{0}.plain(failure_line(tool, mine));
    log.flush();
    environment.abort(mine.code);
  }

  [[nodiscard]] int end(const Outcome& mine) const {
    if (mine.others_may_hang && environment.world().size() > 1) fail_alone(mine);
    Outcome common;
    try {
      const auto settled = [&] { common = settle(mine); };
      mine.failed() ? environment.within(lone_failure_s, settled) : settled();
      environment.finish(common.code);
    } catch (const Error& error) {
      fail_alone(mine.failed() ? mine : outcome_of(error));
    }
    return common.code;
  }
};

/// Ends the job with the first error of this rank if the main thread has not come to its end in time.
class Deadline {
 public:
  explicit Deadline(const Ending& ending) : ending_(ending) {}

  /// From any thread.
  void start(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (is_over_ || timer_.joinable()) return;
    timer_ = std::jthread([this, mine = outcome_of(error)](const std::stop_token& stop) {
      if (!stopped_within(stop, hold_limit)) ending_.fail_alone(mine);
    });
  }
  /// The main thread has come to its end.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    timer_ = {};  // if it is about to end the job, this waits for that
  }

 private:
  const Ending& ending_;
  std::mutex mutex_;
  bool is_over_ = false;
  std::jthread timer_;
};

/// An MPI library may abort the process when another rank has died. While this object lives, such an abort logs an
/// error and ends with code 5. Any other abort is left alone.
class LastWords {
 public:
  explicit LastWords(const Ending& ending) {
    current = &ending;
    std::signal(SIGABRT, &say);
  }
  ~LastWords() {
    std::signal(SIGABRT, SIG_DFL);
    current = nullptr;
  }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  /// Runs on the thread that aborts. That thread holds the mutex around MPI calls, which nothing here takes.
  static void say(int) {
    std::signal(SIGABRT, SIG_DFL);
    const std::optional<Error> error = Session::cut_short();
    if (!error || current == nullptr) return;
    constexpr unsigned limit_s = 10;  // if the state of MPI keeps the process from ending
    alarm(limit_s);
    current->fail_alone(outcome_of(*error));
  }

  static inline const Ending* current = nullptr;
};

}  // namespace

void print_result(const Log& log, std::string_view tool, boost::json::object figures) {
  std::string status = "ok";
  if (const auto found = figures.find("status"); found != figures.end()) {
    status = found->value().as_string();
    figures.erase(found);
  }
  log.plain(result_line(tool, status, figures));
}

void set_exit_step(std::int64_t step) noexcept { exit_step = step; }

void set_exit_why(std::string_view word) { exit_why = word; }

int run_main(int argc, char** argv, const std::function<Exit(Context&)>& body) {
  Files::hold_standard_streams();
  flush_denormals();       // before any thread starts, because it takes this from the one that starts it
  const StopSignals stop;  // first, because an early signal would kill the rank
  const bool dies_of_pipes = std::signal(SIGPIPE, SIG_IGN) == SIG_DFL;  // a write to a closed pipe then fails instead
  const std::string tool = argc > 0 ? Path(argv[0]).filename().string() : "argosy";
  const ExitFile exit_file{Files::system(), environment_variable("ARGOSY_EXIT_FILE").value_or("")};

  std::optional<Environment> environment;
  const Outcome started = outcome_of([&] {
    environment.emplace(argc, argv);
    return Exit::ok;
  });
  if (!environment) {
    Log{0}.error("{}", started.sentence);
    exit_file.write_first(started.code, exit_step);
    Log{0}.plain(failure_line(tool, started));
    return started.code;
  }

  const Communicator& world = environment->world();
  Log log{world.rank()};
  const Ending ending{*environment, log, exit_file, tool};
  const LastWords last_words{ending};
  Deadline deadline{ending};
  world.impl().session.on_failure = [&](const std::exception_ptr& error) { deadline.start(error); };
  const Clock clock;
  Outcome mine = outcome_of([&] {
    check_world_size(world.size(), environment_variable);
    static_cast<void>(seconds_in(environment_variable, Session::timeout_variable, Session::least_timeout_s));
    at_root(world, [&] { exit_file.clear(); });
    environment->exchange_hosts();
    const Topology topology = Topology::discover(world);
    Context context{world, topology, log, Files::system(), clock, stop};
    return body(context);
  });
  deadline.stop();
  if (is_later_copy(world.size(), environment_variable)) return mine.code;  // the first copy logs the error
  const bool dies = mine.reader_left && dies_of_pipes && world.size() == 1;
  if (dies) mine.sentence.clear();
  const int code = ending.end(mine);
  if (dies) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  return code;
}

void ends_in_time(const Context& context, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    context.world.impl().session.ends_in_time(std::current_exception());
    throw;
  }
}

int run_alone(int argc, char** argv, const std::function<Exit(const Log&)>& body) {
  Files::hold_standard_streams();
  const std::string tool = argc > 0 ? Path(argv[0]).filename().string() : "argosy";
  const Log log{0};
  const Outcome mine = outcome_of([&] { return body(log); });
  if (mine.failed() && !mine.sentence.empty()) {
    log.error("{}", mine.sentence);
    log.flush();
    log.plain(failure_line(tool, mine));
  }
  return mine.code;
}

}  // namespace argosy::comm
