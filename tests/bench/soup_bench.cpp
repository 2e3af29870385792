#include <string>
#include <vector>

#include "synthetic_state.hpp"

/// What scripts/bench/soup compares with: checkpoints of any size out of our own writer, and plain reading.
///   soup make RUN COUNT MEGABYTES    commits COUNT weights-only checkpoints of that size under RUN/export
///   soup read FILE…                  reads the files with pread, each rank its share of each
namespace {

using argosy::bench::number_of;
using argosy::comm::Context;

void make(Context& context, const std::string& run, std::uint64_t count, std::uint64_t megabytes) {
  constexpr std::int64_t units = 10;
  constexpr std::size_t weights_alone = 1;
  argosy::bench::State state{megabytes, context.topology.layout(), context.topology.canonical_rank(), units,
                             weights_alone};
  argosy::checkpoint::Store store{context, run, {}};
  for (std::uint64_t step = 1; step <= count; ++step) {
    state.fill(step);
    argosy::bench::require_committed(store.save(argosy::checkpoint::Kind::export_, static_cast<std::int64_t>(step),
                                                state.units(), argosy::bench::sections(), {}));
  }
}

void read(Context& context, const std::vector<std::string>& paths) {
  constexpr std::uint64_t piece_bytes = 1 << 20;
  std::vector<std::byte> buffer(piece_bytes);
  context.world.barrier("begin");
  const double begin_s = context.clock.monotonic_s();
  std::int64_t bytes[] = {0};
  const auto in_buffer = [&](std::uint64_t size) { return argosy::MutableBytes{buffer}.first(size); };
  for (const std::string& path : paths)
    bytes[0] += static_cast<std::int64_t>(argosy::bench::read_share(context, path, piece_bytes, in_buffer));
  context.world.all_reduce(bytes);
  const double seconds = context.clock.monotonic_s() - begin_s;
  context.print_result("read", {{"bytes_read", bytes[0]},
                                {"seconds", seconds},
                                {"input_gb_per_s", static_cast<double>(bytes[0]) / 1e9 / seconds}});
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 4 && words[0] == "make") {
      make(context, words[1], number_of(words[2]), number_of(words[3]));
    } else if (words.size() > 1 && words[0] == "read") {
      read(context, {words.begin() + 1, words.end()});
    } else {
      throw argosy::Error{argosy::Fault::usage,
                          {.wanted = "make RUN COUNT MEGABYTES, or read FILE…", .where = "the command line"}};
    }
    return argosy::Exit::ok;
  });
}
