#include "core/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "core/clock.hpp"
#include "core/file.hpp"

namespace argosy {
namespace {

constexpr double progress_interval_s = 10, terminal_interval_s = 0.1;

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr std::array levels{spdlog::level::info, spdlog::level::warn, spdlog::level::err, spdlog::level::off};
  return levels[static_cast<std::size_t>(level)];
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

struct Log::State {
  explicit State(int of_rank) : rank(of_rank) {}

  /// Wipes an unfinished progress line, so that the next line starts at the left.
  void leave_progress_line() {
    if (std::exchange(on_progress_line, false)) put("\r\x1b[K");
  }

  const int rank;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  std::mutex mutex;
  std::optional<File> copy;
  spdlog::logger logger{"argosy", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  Clock clock;
  std::string what;  // of the progress under way
  double start_s = 0, start_done = 0, printed_s = 0;
  bool on_progress_line = false;
};

Log::Log(int rank, LogLevel level) : state_(std::make_unique<State>(rank)) {
  state_->logger.set_level(spdlog_level(rank == 0 ? level : std::max(level, LogLevel::warn)));
  const std::string who = rank == 0 ? "" : fmt::format("[r{:04}] ", rank);
  state_->logger.set_pattern(who + "%Y-%m-%d %H:%M:%S %-7l %v");
}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::write(LogLevel level, std::string_view text) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->logger.should_log(spdlog_level(level))) return;
  state_->leave_progress_line();
  state_->logger.log(spdlog_level(level), spdlog::string_view_t{text.data(), text.size()});
  constexpr std::array names{"info", "warning", "error", ""};
  copy(fmt::format("{} {:<7} {}\n", timestamp_text(state_->clock.wall_s()), names[static_cast<std::size_t>(level)],
                   text));
}

/// Under the lock.
void Log::copy(std::string_view line) const {
  State& s = *state_;
  if (!s.copy) return;
  try {
    s.copy->append(as_bytes(line));
  } catch (const Error& error) {
    s.copy.reset();
    s.logger.warn("the log goes to stderr alone from here on: {}", error.what());
  }
}

void Log::copy_to(File file) const {
  const std::lock_guard lock(state_->mutex);
  state_->copy.emplace(std::move(file));
}

bool Log::is_on_terminal() const noexcept { return state_->terminal; }

void Log::progress(std::string_view what, double done, double total, std::string_view figures) const {
  State& s = *state_;
  if (s.rank != 0) return;
  const std::lock_guard lock(s.mutex);
  const double now_s = s.clock.monotonic_s();
  const bool is_new = s.what != what;
  if (is_new) {
    s.what = what;
    s.start_s = now_s;
    s.start_done = done;
  }
  const bool finished = done >= total;
  const double interval_s = s.terminal ? terminal_interval_s : progress_interval_s;
  if (!is_new && !finished && now_s - s.printed_s < interval_s) return;
  s.printed_s = now_s;

  std::string line = fmt::format("{} {:3.0f} %", what, total > 0 ? 100 * done / total : 100.0);
  if (!figures.empty()) line += fmt::format(" · {}", figures);
  const double elapsed_s = now_s - s.start_s;
  if (finished) {
    line += fmt::format(" · took {}", duration_text(elapsed_s));
    s.what.clear();
  } else if (done > s.start_done) {
    line += fmt::format(" · ETA {}", duration_text(elapsed_s * (total - done) / (done - s.start_done)));
  }
  s.leave_progress_line();
  s.on_progress_line = s.terminal && !finished;
  put(s.on_progress_line ? line : line + "\n");
}

void Log::plain(std::string_view line) const {
  if (state_->rank != 0) return;
  const std::lock_guard lock(state_->mutex);
  state_->leave_progress_line();
  put(fmt::format("{}\n", line));
  copy(fmt::format("{}\n", line));
}

void Log::flush() const { state_->logger.flush(); }

}  // namespace argosy
