// usage: mpiexec.mpich -n P bench_collectives [MEGABYTES] [ROUNDS] [CHUNK_KIB]
// Times reduce-scatter (fp32 and bf16 wire) and all-gather of one unit over all ranks; the result line gives
// milliseconds and bus bandwidth, (p-1)/p of the unit over the time, beside the time to sum as much from memory on one
// rank; and, for a reduction beside a computation as long as it is, the time of both over the time of one after the
// other, and what a computation takes beside a reduction that waits for the other ranks over what it takes alone.
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

/// Computes in the cache, about as long as `seconds` would be enough for.
class Computation {
 public:
  Computation(const argosy::Clock& clock, double seconds) {
    const double start_s = clock.monotonic_s();
    constexpr int trial = 200;
    run(trial);
    rounds_ = static_cast<int>(trial * seconds / (clock.monotonic_s() - start_s));
  }
  void run() { run(rounds_); }

 private:
  void run(int rounds) {
    const std::vector<const std::byte*> terms(3, reinterpret_cast<const std::byte*>(values_.data()));
    for (int i = 0; i < rounds; ++i) argosy::comm::ordered_sum(DType::f32, terms, sums_.data(), std::ssize(sums_));
  }
  std::vector<float> values_ = std::vector<float>(4096, 1.0F), sums_ = values_;
  int rounds_ = 0;
};

boost::json::object overlap(const argosy::comm::Context& context, const argosy::partition::FlatSpace& space,
                            BufferView flat, BufferView shard, int rounds) {
  const auto collectives = argosy::comm::make_mpi_collectives(context.topology);
  const auto reduce = [&] { return collectives->reduce_scatter(space, flat, shard, {}); };
  const double reduce_s = time_of(context, rounds, [&] { reduce().wait(); }).median_s;
  Computation work{context.clock, reduce_s};
  const double work_s = time_of(context, rounds, [&] { work.run(); }).median_s;
  const double both_s = time_of(context, rounds, [&] {
                          const argosy::comm::Event reduced = reduce();
                          work.run();
                          reduced.wait();
                        }).median_s;
  const bool waits = context.world.rank() == 0;  // the others compute first
  double beside_s = 0, alone_s = 0;
  for (double* const sum : {&alone_s, &beside_s}) {
    for (int i = 0; i < rounds; ++i) {
      context.world.barrier("round");
      argosy::comm::Event reduced;
      if (waits && sum == &beside_s) reduced = reduce();
      const double start_s = context.clock.monotonic_s();
      work.run();
      *sum += context.clock.monotonic_s() - start_s;
      if (!waits) work.run();
      if (!waits && sum == &beside_s) reduced = reduce();
      reduced.wait();
    }
  }
  return {{"both_over_one_after_the_other", both_s / (reduce_s + work_s)},
          {"computing_beside_a_waiting_reduction", beside_s / alone_s}};
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
  figures["overlap"] = overlap(context, space, view(flat), view(shard), rounds);
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
