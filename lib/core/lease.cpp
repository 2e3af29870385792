#include "core/lease.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/signal.hpp"

namespace argosy {
namespace {

constexpr std::string_view prefix = "run.lock.";
constexpr std::int64_t last_generation = 999'999'999'999'999;  // of fifteen digits; the next one still fits 64 bits

/// nullopt if the file is gone: another job took over and removed it.
std::optional<std::string> read_unless_gone(const Files& files, const Path& path) {
  constexpr std::uint64_t limit_bytes = 64 << 10;
  constexpr int tries = 3;  // a network file system may lose a file that is replaced while it is read
  for (int tried = 1;; ++tried) {
    try {
      return files.read_text(path, limit_bytes);
    } catch (const Error&) {
      if (!files.exists(path)) return std::nullopt;
      if (tried == tries) throw;
    }
  }
}

/// 0: not the name of a lock. Accepts only the spelling of path_of(), so that no two names mean one generation.
std::int64_t generation_in(std::string_view name) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  const std::int64_t number = number_in<std::int64_t>(name).value_or(0);
  return number > 0 && number <= last_generation && name.front() != '0' ? number : 0;
}

}  // namespace

bool is_lease_name(std::string_view name) { return generation_in(name) > 0; }

Lease::Lease(const Files& files, const Clock& clock, Path folder, std::string what)
    : files_(files),
      clock_(clock),
      folder_(std::move(folder)),
      what_(std::move(what)),
      self_(Owner::of_this_process(files, clock)) {
  // Ranks outlive a killed mpiexec by milliseconds. A line that cannot be read is damaged, or readable again soon on a
  // network file system. Two minutes are eight heartbeats, and longer than a network file system shows an old line.
  constexpr double patience_for_owner_s = 1, patience_for_text_s = 10, lease_s = 600, watch_s = 120, patience_s = 300;
  constexpr double short_pause_s = 0.05, long_pause_s = 1;
  const double begin_s = clock_.monotonic_s();
  double same_since_s = begin_s;
  std::optional<std::string> seen;
  bool renewed = false;  // before our eyes
  while (true) {
    const double waited_s = clock_.monotonic_s() - begin_s;
    const auto pause = [&] { clock_.sleep_s(waited_s > patience_for_owner_s ? long_pause_s : short_pause_s); };
    if (const auto signal = StopSignals::received())
      throw_claim(Fault::usage,
                  fmt::format("signal {} arrived while this job waited for the {} {}, which another job uses", *signal,
                              what_, folder_.string()),
                  folder_.string(), fmt::format("a {} that no other job uses", what_),
                  fmt::format("signal {}", *signal), "rerun after that job has ended");
    const std::int64_t held = highest();
    if (held == last_generation || waited_s > patience_s) {
      const std::string why = held == last_generation
                                  ? fmt::format("{}{} has the largest number that a lock can have", prefix, held)
                                  : "its lock files disappear before they can be read";
      throw_claim(Fault::io, fmt::format("the {} {} cannot be locked: {}", what_, folder_.string(), why),
                  folder_.string(), fmt::format("a lock of the {}", what_), why,
                  fmt::format("check that no job uses it, then remove {}/{}*", folder_.string(), prefix));
    }
    if (held > 0) {
      const auto text = read_unless_gone(files_, path_of(held));
      if (!text) {
        pause();
        continue;
      }
      const double now_s = clock_.monotonic_s();
      if (text != seen) {
        renewed = seen.has_value();
        seen = text;
        same_since_s = now_s;
      }
      const auto owner = Owner::parse(*text);
      const bool expired = owner && !renewed &&
                           (std::abs(clock_.wall_s() - owner->heartbeat_s) > lease_s ||
                            owner->may_have_ended_with_an_earlier_boot(files_, clock_, self_));
      const bool gone = owner ? owner->is_gone(files_, self_) || (expired && now_s - same_since_s > watch_s)
                              : now_s - same_since_s > patience_for_text_s;
      if (!gone) {
        if (owner && !expired && waited_s > patience_for_owner_s)
          refuse(fmt::format("a job on {} (process {}{}, last heartbeat {})", owner->host, owner->pid,
                             owner->slurm_job.empty() ? "" : ", Slurm job " + owner->slurm_job,
                             timestamp_text(owner->heartbeat_s)),
                 held);
        pause();
        continue;
      }
    }
    if (try_take(held + 1)) break;
    clock_.sleep_s(short_pause_s);
  }
}

Lease::~Lease() {
  try {
    self_.released = true;
    beat();
  } catch (const Error&) {  // the next owner finds this process gone
  }
}

Path Lease::path_of(std::int64_t generation) const { return folder_ / fmt::format("{}{}", prefix, generation); }

std::int64_t Lease::highest() const {
  std::int64_t highest = 0;
  for (const std::string& name : files_.list(folder_)) highest = std::max(highest, generation_in(name));
  return highest;
}

bool Lease::try_take(std::int64_t generation) {
  // A lock appears complete: its owner is never taken for dead because it is slow to write its line.
  try {
    if (!files_.write_if_absent(path_of(generation), self_.text())) return false;
  } catch (const Error&) {
    if (highest() < generation || read_unless_gone(files_, path_of(generation)) == self_.text()) throw;
    return false;  // another job has become the owner and removed the unfinished file
  }
  if (highest() > generation) return false;  // the owner of a later one has removed it, and this created it again
  generation_ = generation;
  for (const std::string& name : files_.list(folder_)) {
    const std::optional<std::string> partial_of = name_of_partial(name);
    const bool half_written = partial_of && is_lease_name(*partial_of);  // of a heartbeat that was cut off
    const std::int64_t other = generation_in(name);
    if (half_written || (other > 0 && other < generation)) files_.remove(folder_ / name);
  }
  return true;
}

void Lease::refuse(const std::string& owner, std::int64_t generation) const {
  const std::string remedy =
      fmt::format("wait for that job, or choose another directory; if that job has certainly ended, remove {}",
                  path_of(generation).string());
  throw_claim(Fault::usage, fmt::format("the {} {} is in use by {}", what_, folder_.string(), owner), folder_.string(),
              fmt::format("a {} that no other job uses", what_), owner, remedy);
}

void Lease::check() const {
  if (highest() > generation_) refuse("another job, which has taken it over from this one", highest());
}

void Lease::beat() {
  const std::lock_guard lock(mutex_);
  if (highest() > generation_) return;  // check() says so
  self_.heartbeat_s = clock_.wall_s();
  ++self_.beats;
  files_.write_atomically(path_of(generation_), self_.text());
}

std::jthread heartbeat(Lease& lease, std::chrono::duration<double> interval) {
  return std::jthread([&lease, interval](const std::stop_token& stop) {
    while (!stopped_within(stop, interval)) {
      try {
        lease.beat();
      } catch (const Error&) {  // the next one may succeed
      }
    }
  });
}

}  // namespace argosy
