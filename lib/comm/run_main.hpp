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

/// What every tool runs in: signal handlers, MPI, the one catch of errors, the exit file, the result line, the end.
namespace argosy::comm {

/// Rank 0 prints `result {"tool":…,"status":…,…}` as the last line on stderr. `status` is "ok" unless `figures` holds
/// another.
void print_result(const Log& log, std::string_view tool, boost::json::object figures);

/// What a tool may use of its process, passed down instead of global. Tests make their own.
struct Context {
  const Communicator& world;  // control traffic
  const Topology& topology;
  Log& log;
  Files files;
  const Clock& clock;
  const StopSignals& stop;

  [[nodiscard]] bool is_root() const noexcept { return world.rank() == 0; }
  /// Rank 0 writes `text` to standard output. Nothing else writes there. Throws Error{io} on rank 0 alone; run_main
  /// makes it the verdict of all ranks.
  void print(std::string_view text) const {
    if (is_root()) files.print(text);
  }
  void print_result(std::string_view tool, boost::json::object figures) const {
    comm::print_result(log, tool, std::move(figures));
  }
};

/// Runs `body` on every rank and returns the exit code of the process.
/// Before that it compares the number of ranks with ARGOSY_EXPECT_RANKS and with the launchers' variables; a launcher
/// that started N separate copies is an Error{usage}. An error is logged as one sentence, and a line
/// `result {"tool":…,"status":"failed","code":…,"error":…}` follows. If other ranks may be waiting, MPI_Abort ends the
/// job. The exit file (exit_file.hpp) is written; if that fails, the exit code stays the same. If the reader of
/// standard output has closed it, a single rank ends silently by SIGPIPE. A log that nobody reads does not harm a run.
/// All threads compute without denormal numbers (denormals.hpp).
int run_main(int argc, char** argv, const std::function<Exit(Context&)>& body);

/// Runs `body`, which uses a device through objects of the caller. If it throws, run_main logs that error and ends the
/// job within seconds, even if a destructor of these objects waits for the device forever. Rethrows.
void ends_in_time(const Context& context, const std::function<void()>& body);

/// run_main for a tool without MPI that only reads: the one catch and the result line. It writes no exit file, because
/// scripts call such a tool while ARGOSY_EXIT_FILE names the file of another tool.
int run_alone(int argc, char** argv, const std::function<Exit(const Log&)>& body);

/// The step that the exit file will name.
void set_exit_step(std::int64_t step) noexcept;
/// The word after it, for scripts, if the run ends with Exit::stopped (exit_file.hpp). Rank 0, main thread.
void set_exit_why(std::string_view word);

}  // namespace argosy::comm
