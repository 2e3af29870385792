// usage: mpiexec.mpich -n P bench_collectives [MEGABYTES] [ROUNDS] [CHUNK_KIB]
// Times reduce-scatter (fp32 and bf16 wire) and all-gather of one unit over all ranks; the result line gives
// milliseconds and bus bandwidth, (p-1)/p of the unit over the time, beside the time to sum as much from memory on one
// rank.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/ordered_sum.hpp"
#include "comm/run_main.hpp"

namespace {

using argosy::DType;
using argosy::Exit;
using argosy::comm::BufferView;

struct Times {
  double median_s = 0, best_s = 0;
};

/// Seconds of a round, the slowest rank's, after two rounds of warming up. **Collective.**
template <class Round>
Times time_of(const argosy::comm::Context& context, int rounds, Round round) {
  std::vector<double> times;
  for (int i = 0; i < rounds + 2; ++i) {
    context.world.barrier("round");
    const double start_s = context.clock.monotonic_s();
    round();
    std::array<double, 1> took{context.clock.monotonic_s() - start_s};
    context.world.all_reduce(std::span<double>{took}, argosy::comm::Reduce::max);
    if (i >= 2) times.push_back(took[0]);
  }
  std::sort(times.begin(), times.end());
  return {.median_s = times[times.size() / 2], .best_s = times.front()};
}

Exit bench(argosy::comm::Context& context, double megabytes, int rounds, std::int64_t chunk_kib) {
  const argosy::partition::FlatSpace space{{{"unit", {static_cast<std::int64_t>(megabytes * 1e6 / 4)}}},
                                           context.topology.layout()};
  std::vector<float> flat(static_cast<std::size_t>(space.padded_size()), 1.0F);
  std::vector<float> shard(static_cast<std::size_t>(space.owned_size(context.topology.canonical_rank())));
  const auto view = [](std::vector<float>& values) {
    return BufferView{reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::f32};
  };
  const double p = context.world.size(), bytes = static_cast<double>(view(flat).size_bytes());
  boost::json::object figures{{"ranks", context.world.size()}, {"unit_bytes", bytes}};
  const auto report = [&](const char* name, Times took) {
    figures[name] = boost::json::object{{"median_ms", took.median_s * 1e3},
                                        {"best_ms", took.best_s * 1e3},
                                        {"best_bus_gb_per_s", (p - 1) / p * bytes / took.best_s / 1e9}};
  };
  for (const DType wire : {DType::f32, DType::bf16}) {
    const auto collectives = argosy::comm::make_mpi_collectives(
        context.topology, {.wire_inner = wire, .wire_outer = wire, .chunk_bytes = chunk_kib << 10});
    report(wire == DType::f32 ? "reduce_scatter" : "reduce_scatter_bf16",
           time_of(context, rounds, [&] { collectives->reduce_scatter(space, view(flat), view(shard), {}).wait(); }));
    if (wire == DType::bf16) continue;
    report("all_gather", time_of(context, rounds, [&] { collectives->all_gather(space, view(flat), {}).wait(); }));
  }
  const std::byte* const at = view(flat).at;
  const std::vector<const std::byte*> terms(static_cast<std::size_t>(p), at);
  report("sum_from_memory", time_of(context, rounds, [&] {
           argosy::comm::ordered_sum(DType::f32, terms, shard.data(), std::ssize(shard));
         }));
  context.print_result("bench_collectives", figures);
  return Exit::ok;
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](argosy::comm::Context& context) {
    return bench(context, argc > 1 ? std::atof(argv[1]) : 19, argc > 2 ? std::atoi(argv[2]) : 50,
                 argc > 3 ? std::atoi(argv[3]) : argosy::comm::CollectivesOptions{}.chunk_bytes >> 10);
  });
}
