#include "core/owner.hpp"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/random.hpp"

namespace argosy {
namespace {

/// Content of a file under /proc, whose size is not known before; "" when it is not there.
std::string read_proc(const Files& files, const std::string& path) {
  std::array<char, 4096> buffer{};
  try {
    const File file = files.open(path);
    std::int64_t size = 0;
    do size = files.os().pread(file.fd(), buffer.data(), buffer.size(), 0);
    while (size < 0 && errno == EINTR);
    if (size < 0 && errno != ESRCH)  // which says that the process has ended meanwhile
      throw_error(Fault::io, path, "a readable file", strerrordesc_np(errno));
    return {buffer.data(), static_cast<std::size_t>(std::max<std::int64_t>(size, 0))};
  } catch (const Error& error) {
    if (error.fault() == Fault::data) return "";  // there is no such process
    throw;
  }
}

/// What /proc/<pid>/stat says of a process; nothing where the file is missing.
struct ProcessFacts {
  std::string pid{}, state{}, start_time{};
  [[nodiscard]] bool only_waits_to_be_reaped() const { return state == "Z" || state == "X"; }
};

std::optional<ProcessFacts> process_facts(const Files& files, const std::string& process) {
  const std::string stat = read_proc(files, fmt::format("/proc/{}/stat", process));
  const std::size_t name_begin = stat.find(" ("), name_end = stat.rfind(')');  // the name may hold anything
  if (name_begin == std::string::npos || name_end == std::string::npos) return std::nullopt;
  ProcessFacts facts{.pid = stat.substr(0, name_begin)};
  std::istringstream fields{stat.substr(name_end + 1)};
  constexpr int state_field = 3, start_time_field = 22;
  for (int i = state_field; i <= start_time_field && fields >> facts.start_time; ++i) {
    if (i == state_field) facts.state = facts.start_time;
  }
  return facts;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

Owner Owner::of_this_process(const Files& files, const Clock& clock) {
  Owner owner{.host = host_name(), .pid = ::getpid()};
  const std::optional<ProcessFacts> self = process_facts(files, "self");
  if (self) owner.start_time = self->start_time;
  owner.boot_id = read_proc(files, "/proc/sys/kernel/random/boot_id");
  owner.boot_id.resize(std::min(owner.boot_id.size(), owner.boot_id.find('\n')));
  // Without them no other process could tell that this one is alive.
  if (owner.start_time.empty() || owner.boot_id.empty())
    throw_error(Fault::io, "/proc", "this process's start time and boot id", "neither", "mount /proc");
  // A /proc of another namespace, as in some containers, shows other processes under the same numbers.
  if (self->pid == std::to_string(owner.pid)) {
    if (const auto space = files.stat("/proc/self/ns/pid")) owner.pid_namespace = space->inode;
  }
  owner.slurm_job = variable("SLURM_JOB_ID");
  owner.slurm_restart = number_in<std::int64_t>(variable("SLURM_RESTART_COUNT")).value_or(0);
  owner.heartbeat_s = clock.wall_s();
  owner.nonce = random_hex(16);
  return owner;
}

std::string Owner::text() const {
  return boost::json::serialize(boost::json::object{{"host", host},
                                                    {"pid", pid},
                                                    {"start_time", start_time},
                                                    {"pid_namespace", pid_namespace},
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

std::optional<Owner> Owner::parse(const std::string& text) {
  constexpr double last_second = 1e11;  // of a heartbeat: in the year 5138
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  const boost::json::object& o = value.get_object();
  const auto read = [&o]<class T>(const char* key, T& out) {
    const boost::json::value* const at = o.if_contains(key);
    if (at == nullptr) return false;
    const auto got = boost::json::try_value_to<T>(*at);
    if (got) out = *got;
    return got.has_value();
  };
  Owner owner;
  if (!read("host", owner.host) || !read("pid", owner.pid) || !read("start_time", owner.start_time) ||
      !read("boot_id", owner.boot_id) || !read("slurm_job", owner.slurm_job) ||
      !read("slurm_restart", owner.slurm_restart) || !read("heartbeat", owner.heartbeat_s) ||
      !read("released", owner.released))
    return std::nullopt;
  if (owner.pid < 1 || owner.pid > std::numeric_limits<pid_t>::max()) return std::nullopt;
  if (!(std::abs(owner.heartbeat_s) <= last_second)) return std::nullopt;
  static_cast<void>(read("beats", owner.beats));
  static_cast<void>(read("pid_namespace", owner.pid_namespace));  // earlier versions wrote none
  return owner;
}

bool Owner::is_gone(const Files& files, const Owner& self) const {
  if (released) return true;
  if (!slurm_job.empty() && slurm_job == self.slurm_job && slurm_restart < self.slurm_restart) return true;
  if (host != self.host || boot_id != self.boot_id) return false;
  if (pid_namespace == 0 || pid_namespace != self.pid_namespace) return false;
  // /proc may hide the processes of other users; this call does not.
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  const std::optional<ProcessFacts> facts = process_facts(files, std::to_string(pid));
  return facts && (facts->only_waits_to_be_reaped() || facts->start_time != start_time);
}

bool Owner::may_have_ended_with_an_earlier_boot(const Files& files, const Clock& clock, const Owner& self) const {
  if (host != self.host || boot_id == self.boot_id) return false;
  std::istringstream uptime{read_proc(files, "/proc/uptime")};
  double up_s = 0;
  return uptime >> up_s && heartbeat_s < clock.wall_s() - up_s;
}

}  // namespace argosy
