#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "synthetic_state.hpp"

/// What scripts/bench/checkpoint runs: our saves and loads next to plain writing and reading of as many bytes by the
/// same ranks, in turns in one process.
///   checkpoint write FOLDER MEGABYTES ROUNDS   plain, plain with the space reserved first, Store::save (the last one
///   is
///                                              kept), and a save during steps that only sleep
///   checkpoint read FOLDER MEGABYTES ROUNDS    of the kept one, warm: plain, and the state of this world
///   checkpoint read-cold FOLDER MEGABYTES ROUNDS   and dropped from the page cache before, too
namespace {

using argosy::Bytes, argosy::MutableBytes, argosy::Path;
using argosy::bench::number_of, argosy::bench::State;
using argosy::comm::Context;

constexpr std::uint64_t piece_bytes = 4 << 20;

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Frees memory that is there: the host of a virtual machine may have taken what was free, and the first touch of it
/// then costs several times what writing to it does. Linux tells the host of free pages two seconds after some became
/// free (free page reporting): once that has happened to all that others freed, these are left alone for two seconds.
void warm_free_memory(const Context& context, std::int64_t size_bytes) {
  constexpr double until_reported_s = 2.2;
  const std::int64_t free_bytes = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
  context.world.barrier("all have asked");
  const auto size = static_cast<std::size_t>(std::min(3 * size_bytes, free_bytes / 2 / context.world.size()));
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  madvise(at, size, MADV_HUGEPAGE);  // the pages that large writes and reads take
  madvise(at, size, MADV_POPULATE_WRITE);
  context.clock.sleep_s(until_reported_s);
  munmap(at, size);
}

/// Times of one way, a value a round: until the last rank is done, and processor time of all ranks.
struct Series {
  boost::json::array seconds, cpu;

  void measure(const Context& context, const std::function<void()>& body) {
    context.world.barrier("begin");
    const double begin_s = context.clock.monotonic_s(), cpu_before_s = cpu_s();
    argosy::comm::agree(context.world, body);
    const double took_s = context.clock.monotonic_s() - begin_s;
    double cpu_all_s[] = {cpu_s() - cpu_before_s};
    context.world.all_reduce(cpu_all_s);
    seconds.emplace_back(took_s);
    cpu.emplace_back(cpu_all_s[0]);
  }
  [[nodiscard]] boost::json::object json() const { return {{"seconds", seconds}, {"cpu_seconds", cpu}}; }
};

std::int64_t sum_over_ranks(const Context& context, std::int64_t value) {
  std::int64_t values[] = {value};
  context.world.all_reduce(values);
  return values[0];
}

/// Saves `copy`, brought in from `state` by the writing thread, while steps go on. Adds to `held_up_s` for how long
/// they were held up on this rank.
argosy::checkpoint::SaveReport save_beside_steps(const Context& context, argosy::checkpoint::Store& store,
                                                 const State& state, State& copy, std::int64_t step,
                                                 const argosy::checkpoint::Sections& sections, double& held_up_s) {
  constexpr double forward_and_backward_s = 0.5;
  std::optional<argosy::checkpoint::SaveReport> report;
  const auto count = [&](const std::function<void()>& body) {
    context.world.barrier("as after the collectives of a step");
    const double begin_s = context.clock.monotonic_s();
    body();
    held_up_s += context.clock.monotonic_s() - begin_s;
  };
  count([&] {
    store.begin_save(argosy::checkpoint::Kind::temp, step, copy.units(), sections, {}, [&] { copy.copy(state); });
  });
  while (!report) {
    context.clock.sleep_s(forward_and_backward_s);
    count([&] { store.wait_for_units(); });
    count([&] { report = store.poll_save(); });
  }
  return *report;
}

void write_plainly(const argosy::Files& files, const Path& path, std::span<const Bytes> payload,
                   std::uint64_t reserved) {
  argosy::File file = files.create(path);
  file.reserve(reserved);
  std::uint64_t offset = 0;
  for (const Bytes bytes : payload)
    for (std::uint64_t at = 0; at < bytes.size(); at += piece_bytes) {
      const Bytes piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
      file.write_at(piece, offset);
      offset += piece.size();
    }
  file.sync();
  file.close();
}

void measure_writing(Context& context, const Path& folder, std::uint64_t megabytes, std::uint64_t rounds) {
  State state{megabytes, context.topology.layout(), context.topology.canonical_rank()};
  state.fill(static_cast<std::uint64_t>(context.world.rank()));
  const std::vector<Bytes> payload = state.payload();
  const auto own_bytes = static_cast<std::uint64_t>(state.size_bytes());
  const Path plain = folder / fmt::format("plain-{}", context.world.rank());
  argosy::checkpoint::Store store{context, folder / "run", {.max_checkpoints = 1000}};
  const argosy::checkpoint::Sections sections = argosy::bench::sections();
  State copy = state;
  std::array<Series, 4> series;  // plain, reserved, save, background
  boost::json::array held_up;    // seconds of the slowest rank
  const auto run = [&](std::size_t way, std::uint64_t round) {
    if (way < 2) {
      series[way].measure(context, [&] { write_plainly(context.files, plain, payload, way == 0 ? 0 : own_bytes); });
      context.files.remove(plain);
      return;
    }
    argosy::checkpoint::SaveReport report;
    double held_up_s[] = {0};
    const auto step = static_cast<std::int64_t>(2 * round + way);
    series[way].measure(context, [&] {
      report = way == 2 ? store.save(argosy::checkpoint::Kind::temp, step, state.units(), sections, {})
                        : save_beside_steps(context, store, state, copy, step, sections, held_up_s[0]);
    });
    context.world.all_reduce(held_up_s, argosy::comm::Reduce::max);
    if (way == 3) held_up.emplace_back(held_up_s[0]);
    argosy::bench::require_committed(report);
    if ((round < rounds || way == 3) && context.is_root()) context.files.remove_tree(report.directory);
  };
  constexpr std::size_t in_turns = 3;
  for (std::uint64_t round = 0; round <= rounds; ++round) {  // round 0 warms up and does not count
    warm_free_memory(context, state.size_bytes());
    for (std::size_t i = 0; i < in_turns; ++i) run((i + round) % in_turns, round);
    if (round == 0) series = {};
  }
  for (std::uint64_t round = 1; round <= rounds; ++round) {  // not in turns: they sleep, and all free memory goes
    warm_free_memory(context, state.size_bytes());
    run(3, round);
  }
  context.print_result("write", {{"bytes", sum_over_ranks(context, state.size_bytes())},
                                 {"plain", series[0].json()},
                                 {"reserved", series[1].json()},
                                 {"save", series[2].json()},
                                 {"background", series[3].json()},
                                 {"held_up_seconds", held_up}});
}

std::vector<Path> files_of(const argosy::Files& files, const Path& folder) {
  std::vector<Path> paths;
  for (const std::string& name : files.list(folder))
    if (name.ends_with(".h5")) paths.push_back(folder / name);
  return paths;
}

/// This rank's share of all files into as much memory as its state takes.
void read_plainly(const Context& context, std::span<const Path> paths, std::vector<std::byte>& memory) {
  std::size_t used = 0;
  const auto next = [&](std::uint64_t size) {
    if (memory.size() < used + size) memory.resize(used + size);
    return MutableBytes{memory}.subspan(std::exchange(used, used + size), size);
  };
  for (const Path& path : paths) argosy::bench::read_share(context, path, piece_bytes, next);
}

void drop_from_cache(std::span<const Path> paths) {
  for (const Path& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

void measure_reading(Context& context, const Path& folder, std::uint64_t megabytes, std::uint64_t rounds, bool cold) {
  const Path checkpoints = folder / "run/checkpoints";
  const Path newest = checkpoints / context.files.list(checkpoints).back();
  const std::vector<Path> paths = files_of(context.files, newest);
  const int rank = context.topology.canonical_rank();
  State state{megabytes, context.topology.layout(), rank};
  std::vector<std::byte> memory;
  const auto load = [&] {
    const argosy::checkpoint::Reader reader{context.files, newest};
    reader.read_state(state.units(), rank);
  };
  std::array<Series, 4> series;  // plain warm, load warm, plain cold, load cold
  const auto run = [&](std::size_t way) {
    context.world.barrier("all have read");
    if (way >= 2 && context.is_root()) drop_from_cache(paths);
    series[way].measure(context, [&] { way % 2 == 0 ? read_plainly(context, paths, memory) : load(); });
  };
  read_plainly(context, paths, memory);  // the memory is there from here on
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < (cold ? series.size() : 2U); ++i) {
      if (i == 2) warm_free_memory(context, state.size_bytes());
      run(i ^ (round & 1U));  // who is first alternates
    }
  context.print_result("read", {{"bytes", sum_over_ranks(context, state.size_bytes())},
                                {"plain_warm", series[0].json()},
                                {"load_warm", series[1].json()},
                                {"plain_cold", series[2].json()},
                                {"load_cold", series[3].json()}});
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const bool cold = words.size() == 4 && words[0] == "read-cold";
    if (words.size() != 4 || (words[0] != "write" && words[0] != "read" && !cold)) {
      throw argosy::Error{
          argosy::Fault::usage,
          {.wanted = "write, read or read-cold, FOLDER, MEGABYTES, ROUNDS", .where = "the command line"}};
    }
    const std::uint64_t megabytes = number_of(words[2]), rounds = number_of(words[3]);
    if (words[0] == "write") {
      measure_writing(context, words[1], megabytes, rounds);
    } else {
      measure_reading(context, words[1], megabytes, rounds, cold);
    }
    return argosy::Exit::ok;
  });
}
