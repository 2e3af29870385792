#include "checkpoint/run_lock.hpp"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <sstream>

#include "checkpoint/staging.hpp"
#include "comm/launcher.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

namespace argosy::checkpoint {
namespace {

constexpr std::string_view prefix = "run.lock.";

/// Content of a file under /proc, whose size is not known before; "" when it is not there.
std::string read_proc(const Files& files, const std::string& path) {
  std::array<char, 4096> buffer{};
  try {
    const File file = files.open(path);
    std::int64_t size = 0;
    do size = files.os().pread(file.fd(), buffer.data(), buffer.size(), 0);
    while (size < 0 && errno == EINTR);
    if (size < 0 && errno != ESRCH)  // which says that the process has ended meanwhile
      throw Error{Fault::io, {.wanted = "to read it", .got = strerrordesc_np(errno), .where = path}};
    return {buffer.data(), static_cast<std::size_t>(std::max<std::int64_t>(size, 0))};
  } catch (const Error& error) {
    if (error.fault() == Fault::data) return "";  // there is no such process
    throw;
  }
}

/// Start time of a process that is alive; "" when it is gone or only waits to be reaped.
std::string start_time_of(const Files& files, std::int64_t pid) {
  const std::string stat = read_proc(files, fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return "";
  std::istringstream fields{stat.substr(name_end + 1)};
  std::string field, state;
  constexpr int state_field = 3, start_time_field = 22;
  for (int i = state_field; i <= start_time_field && fields >> field; ++i) {
    if (i == state_field) state = field;
  }
  return state == "Z" || state == "X" ? "" : field;
}

/// nullopt when the file is gone: another job took over and removed it.
std::optional<std::string> read_unless_gone(const Files& files, const Path& path) {
  try {
    return files.read_text(path);
  } catch (const Error&) {
    if (files.exists(path)) throw;
    return std::nullopt;
  }
}

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : 0;
}

}  // namespace

LockOwner LockOwner::of_this_process(const Files& files, const Clock& clock) {
  LockOwner owner{.host = host_name(), .pid = ::getpid()};
  owner.start_time = start_time_of(files, owner.pid);
  owner.boot_id = read_proc(files, "/proc/sys/kernel/random/boot_id");
  owner.boot_id.resize(std::min(owner.boot_id.size(), owner.boot_id.find('\n')));
  // Without them nobody could tell that this process is alive.
  if (owner.start_time.empty() || owner.boot_id.empty())
    throw Error{Fault::io, {.wanted = "this process's start time and boot id", .got = "nothing", .where = "/proc"}};
  owner.slurm_job = comm::environment_variable("SLURM_JOB_ID").value_or("");
  owner.slurm_restart = number_of(comm::environment_variable("SLURM_RESTART_COUNT").value_or(""));
  owner.heartbeat_s = clock.wall_s();
  owner.nonce = random_hex(16);
  return owner;
}

std::string LockOwner::text() const {
  return boost::json::serialize(boost::json::object{{"host", host},
                                                    {"pid", pid},
                                                    {"start_time", start_time},
                                                    {"boot_id", boot_id},
                                                    {"slurm_job", slurm_job},
                                                    {"slurm_restart", slurm_restart},
                                                    {"heartbeat", heartbeat_s},
                                                    {"heartbeat_text", timestamp_text(heartbeat_s)},
                                                    {"beats", beats},
                                                    {"nonce", nonce},
                                                    {"released", released}}) +
         "\n";
}

std::optional<LockOwner> LockOwner::parse(const std::string& text) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  const boost::json::object& o = value.get_object();
  const auto text_at = [&](const char* key, std::string& out) {
    const auto* at = o.if_contains(key);
    if (at != nullptr && at->is_string()) out = std::string(at->get_string());
    return at != nullptr && at->is_string();
  };
  const auto number_at = [&](const char* key, auto& out) {
    const auto* at = o.if_contains(key);
    if (at == nullptr || !at->is_number()) return false;
    out = at->to_number<std::remove_reference_t<decltype(out)>>(error);
    return !error;
  };
  LockOwner owner;
  const auto* released_at = o.if_contains("released");
  if (!text_at("host", owner.host) || !number_at("pid", owner.pid) || !text_at("start_time", owner.start_time) ||
      !text_at("boot_id", owner.boot_id) || !text_at("slurm_job", owner.slurm_job) ||
      !number_at("slurm_restart", owner.slurm_restart) || !number_at("heartbeat", owner.heartbeat_s) ||
      released_at == nullptr || !released_at->is_bool())
    return std::nullopt;
  owner.released = released_at->get_bool();
  static_cast<void>(number_at("beats", owner.beats));
  return owner;
}

bool LockOwner::is_gone(const Files& files, const LockOwner& self) const {
  if (released) return true;
  if (!slurm_job.empty() && slurm_job == self.slurm_job && slurm_restart < self.slurm_restart) return true;
  if (host != self.host) return false;
  return boot_id != self.boot_id || start_time_of(files, pid) != start_time;
}

RunLock::RunLock(const Files& files, const Clock& clock, Path run_dir)
    : files_(files), clock_(clock), run_dir_(std::move(run_dir)), self_(LockOwner::of_this_process(files, clock)) {
  // Ranks outlive a killed mpiexec by milliseconds; a line that cannot be read is damaged, or a network file system
  // shows it soon. Two minutes are eight heartbeats, and longer than those show an old line.
  constexpr double patience_for_owner_s = 1, patience_for_text_s = 10, lease_s = 600, watch_s = 120;
  constexpr double short_pause_s = 0.05, long_pause_s = 1;
  const double begin_s = clock_.monotonic_s();
  double same_since_s = begin_s;
  std::optional<std::string> seen;
  bool renewed = false;  // before our eyes
  while (true) {
    const std::int64_t held = highest();
    if (held > 0) {
      const auto text = read_unless_gone(files_, path_of(held));
      if (!text) continue;
      const double now_s = clock_.monotonic_s(), waited_s = now_s - begin_s;
      if (text != seen) {
        renewed = seen.has_value();
        seen = text;
        same_since_s = now_s;
      }
      const auto owner = LockOwner::parse(*text);
      const bool expired = owner && !renewed && std::abs(clock_.wall_s() - owner->heartbeat_s) > lease_s;
      const bool gone = owner ? owner->is_gone(files_, self_) || (expired && now_s - same_since_s > watch_s)
                              : waited_s > patience_for_text_s;
      if (!gone) {
        if (owner && !expired && waited_s > patience_for_owner_s)
          refuse(fmt::format("a job on {} (process {}{}, last heartbeat {})", owner->host, owner->pid,
                             owner->slurm_job.empty() ? "" : ", Slurm job " + owner->slurm_job,
                             timestamp_text(owner->heartbeat_s)),
                 held);
        clock_.sleep_s(waited_s > patience_for_owner_s ? long_pause_s : short_pause_s);
        continue;
      }
    }
    if (try_take(held + 1)) break;
  }
}

RunLock::~RunLock() {
  try {
    self_.released = true;
    beat();
  } catch (const Error&) {  // the next owner finds this process gone
  }
}

Path RunLock::path_of(std::int64_t generation) const { return run_dir_ / fmt::format("{}{}", prefix, generation); }

std::int64_t RunLock::highest() const {
  std::int64_t highest = 0;
  for (const std::string& name : files_.list(run_dir_)) {
    if (name.starts_with(prefix)) highest = std::max(highest, number_of(std::string_view{name}.substr(prefix.size())));
  }
  return highest;
}

bool RunLock::try_take(std::int64_t generation) {
  // A lock appears with its line: nobody can take its owner for dead because it is slow to write it.
  try {
    if (!files_.write_if_absent(path_of(generation), self_.text())) return false;
  } catch (const Error&) {
    if (highest() < generation || read_unless_gone(files_, path_of(generation)) == self_.text()) throw;
    return false;  // another has become the owner and swept the unfinished file away
  }
  if (highest() > generation) return false;  // made anew where the owner of a later one has swept it away
  generation_ = generation;
  for (const std::string& name : files_.list(run_dir_)) {
    const bool lock = name.starts_with(prefix);
    const std::int64_t other = lock ? number_of(std::string_view{name}.substr(prefix.size())) : 0;
    const bool half_written = lock && other == 0;  // of a heartbeat that was cut off
    if (half_written || (other > 0 && other < generation)) files_.remove(run_dir_ / name);
  }
  return true;
}

void RunLock::refuse(const std::string& owner, std::int64_t generation) const {
  throw Error{Fault::usage,
              {.wanted = "a run directory that no other job uses",
               .got = owner,
               .where = run_dir_.string(),
               .remedy = fmt::format("wait for it, or choose another directory; if that job is surely dead, remove {}",
                                     path_of(generation).string())}};
}

void RunLock::check() const {
  if (highest() > generation_) refuse("a job that has taken over", highest());
}

void RunLock::beat() {
  const std::lock_guard lock(mutex_);
  if (highest() > generation_) return;  // check() says so
  self_.heartbeat_s = clock_.wall_s();
  ++self_.beats;
  files_.write_atomically(path_of(generation_), self_.text());
}

Heartbeat::Heartbeat(RunLock& lock, std::chrono::duration<double> interval)
    : thread_([this, &lock, interval] {
        std::unique_lock waiting(mutex_);
        while (!wake_.wait_for(waiting, interval, [this] { return over_; })) {
          try {
            lock.beat();
          } catch (const Error&) {  // the next one may succeed
          }
        }
      }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace argosy::checkpoint
