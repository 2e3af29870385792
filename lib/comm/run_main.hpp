#pragma once

#include <boost/json/object.hpp>
#include <functional>

#include "comm/comm.hpp"
#include "comm/topology.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/signal.hpp"

/// The frame of every tool: signal handlers, MPI, the one catch, the exit file, the result line, an orderly end.
namespace argosy::comm {

/// What a program may reach, passed down, never global; tests build their own.
struct Context {
  const Communicator& world;  // control traffic
  const Topology& topology;
  Log& log;
  Files files;
  const Clock& clock;
  const StopSignals& stop;

  [[nodiscard]] bool is_root() const noexcept { return world.rank() == 0; }
  /// Rank 0 writes `text` to standard output, where nothing else writes. Throws Error{io} on that rank alone; run_main
  /// makes it the verdict of all.
  void print(std::string_view text) const {
    if (is_root()) files.print(text);
  }
  /// Rank 0 prints `result {…}` as the last line on stderr, with `tool` and `status` ("ok" unless figures say
  /// otherwise) in front.
  void print_result(std::string_view tool, boost::json::object figures) const;
};

/// Runs `body` on every rank and returns the process's exit code. Compares the world size with ARGOSY_EXPECT_RANKS and
/// with launchers' variables (Error{usage} for N copies of a world of one). Errors are logged as one sentence with the
/// rank; when other ranks may wait, the job is ended by MPI_Abort. Writes ARGOSY_EXIT_FILE (exit_file.hpp), which
/// changes no code when it cannot be written. On Error a `result {"tool":…,"status":"failed","code":…,"error":…}` line
/// is printed as well. Where the reader of standard output has left, a world of one ends without a word, by SIGPIPE;
/// nobody reading the log hurts no run.
int run_main(int argc, char** argv, const std::function<Exit(Context&)>& body);

/// The frame of a tool without MPI, which only looks: the one catch and the result line. Leaves the exit file alone,
/// since scripts call it while theirs is another tool's.
int run_alone(int argc, char** argv, const std::function<Exit(const Log&)>& body);

/// `result {"tool":…,"status":…,…}`; "ok" unless `figures` say otherwise.
void print_result(const Log& log, std::string_view tool, boost::json::object figures);

/// Step to be written into the exit file.
void set_exit_step(std::int64_t step) noexcept;
/// Rank 0, main thread: the word behind it, for scripts, should the run end with Exit::stopped (exit_file.hpp).
void set_exit_why(std::string_view word);

}  // namespace argosy::comm
