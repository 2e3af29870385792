// usage: mpiexec -n P bench_collectives [MEGABYTES] [ROUNDS] [CHUNK_KIB]
// Times reduce-scatter (exact with both types on the wire, fast, elastic) and all-gather of one unit over all ranks.
// The result line gives milliseconds, bus bandwidth, (p-1)/p of the unit over the time, and the time over that of the
// raw work, in turn with it: copying as many bytes as a rank sends, and adding up as many terms from memory, on each
// rank; and, for a reduction during a computation as long as it is, the time of both over the time of one after the
// other, and what a computation takes during a reduction that waits for the other ranks over what it takes alone.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "comm/collectives.hpp"
#include "comm/ordered_sum.hpp"
#include "comm/run_main.hpp"

namespace {

using argosy::DType, argosy::Exit;
using argosy::comm::BufferView;
using argosy::partition::FlatSpace;

struct Times {
  double median_s = 0, best_s = 0;
};

/// Seconds of each of `ways`, the slowest rank's, in turn in every round, after two rounds of warming up.
/// **Collective.**
std::vector<Times> times_of(const argosy::comm::Context& context, int rounds,
                            const std::vector<std::function<void()>>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  for (int i = 0; i < rounds + 2; ++i) {
    for (std::size_t way = 0; way < ways.size(); ++way) {
      context.world.barrier("round");
      const double start_s = context.clock.monotonic_s();
      ways[way]();
      std::array<double, 1> took{context.clock.monotonic_s() - start_s};
      context.world.all_reduce(std::span<double>{took}, argosy::comm::Reduce::max);
      if (i >= 2) times[way].push_back(took[0]);
    }
  }
  std::vector<Times> of_ways;
  for (std::vector<double>& of : times) {
    std::sort(of.begin(), of.end());
    of_ways.push_back({.median_s = of[of.size() / 2], .best_s = of.front()});
  }
  return of_ways;
}
template <class Round>
Times time_of(const argosy::comm::Context& context, int rounds, Round round) {
  return times_of(context, rounds, {round}).front();
}

/// What no reduction or gather does without: bytes copied from memory to memory, and terms that lie in memory added up.
class RawWork {
 public:
  explicit RawWork(const FlatSpace& space)
      : from_(static_cast<std::size_t>(space.padded_size()), 1.0F), to_(from_.size()), terms_(from_.size()) {}

  void copy(std::int64_t size_bytes) {
    const std::int64_t all = std::ssize(from_) * 4;
    for (std::int64_t done = 0; done < size_bytes; done += all)
      std::memcpy(to_.data(), from_.data(), static_cast<std::size_t>(std::min(all, size_bytes - done)));
  }
  void round() {
    argosy::comm::round_to_bf16(from_.data(), reinterpret_cast<std::uint16_t*>(to_.data()), std::ssize(from_));
  }
  /// `count` terms of `dtype`, together as many elements as a flat buffer, to `sum`.
  void add_up(DType dtype, int count, std::vector<float>& sum) {
    std::vector<const std::byte*> at;
    const std::int64_t room = std::ssize(terms_) - std::ssize(sum);
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = count > 1 ? room * i / (count - 1) : 0;
      at.push_back(reinterpret_cast<const std::byte*>(terms_.data()) +
                   begin * static_cast<std::int64_t>(size_of(dtype)));
    }
    argosy::comm::ordered_sum(dtype, at, sum.data(), std::ssize(sum));
  }

 private:
  std::vector<float> from_, to_, terms_;
};

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

boost::json::object overlap(const argosy::comm::Context& context, const FlatSpace& space, BufferView flat,
                            BufferView shard, int rounds) {
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
  const FlatSpace space{{{"unit", {static_cast<std::int64_t>(megabytes * 1e6 / 4)}}}, context.topology.layout()};
  const int rank = context.topology.canonical_rank(), ranks = context.world.size();
  std::vector<float> flat(static_cast<std::size_t>(space.padded_size()), 1.0F);
  std::vector<float> shard(static_cast<std::size_t>(space.owned_size(rank)));
  const auto view = [](std::vector<float>& values) {
    return BufferView{reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::f32};
  };
  const double p = ranks, bytes = static_cast<double>(view(flat).size_bytes());
  boost::json::object figures{{"ranks", ranks}, {"unit_bytes", bytes}};
  RawWork raw(space);
  const auto report = [&](const std::string& name, const std::function<void()>& operation,
                          const std::function<void()>& bound) {
    const std::vector<Times> times = times_of(context, rounds, {operation, bound});
    figures[name] = boost::json::object{{"median_ms", times[0].median_s * 1e3},
                                        {"best_ms", times[0].best_s * 1e3},
                                        {"best_bus_gb_per_s", (p - 1) / p * bytes / times[0].best_s / 1e9},
                                        {"raw_median_ms", times[1].median_s * 1e3},
                                        {"over_raw", times[0].median_s / times[1].median_s}};
  };
  const auto payload = [](const argosy::comm::Traffic::Bytes& sent) { return sent.inner + sent.outer; };
  using argosy::comm::Reduction;
  const auto reduce = [&](const std::string& name, Reduction reduction, DType wire) {
    const argosy::comm::CollectivesOptions options{
        .reduction = reduction, .wire_inner = wire, .wire_outer = wire, .chunk_bytes = chunk_kib << 10};
    const auto collectives = argosy::comm::make_mpi_collectives(context.topology, options);
    const std::int64_t received = payload(argosy::comm::reduce_scatter_bytes(space, rank, DType::f32, options));
    report(
        name, [&] { collectives->reduce_scatter(space, view(flat), view(shard), {}).wait(); },
        [&] {
          if (wire == DType::bf16 && ranks > 1) raw.round();
          raw.copy(received);
          raw.add_up(wire, ranks, shard);
        });
  };
  reduce("reduce_scatter", Reduction::exact, DType::f32);
  reduce("reduce_scatter_bf16", Reduction::exact, DType::bf16);
  reduce("reduce_scatter_fast", Reduction::fast, DType::f32);
  reduce("reduce_scatter_elastic", Reduction::elastic, DType::f32);
  const auto collectives = argosy::comm::make_mpi_collectives(context.topology);
  const std::int64_t gathered = payload(argosy::comm::all_gather_bytes(space, rank, 4));
  report(
      "all_gather", [&] { collectives->all_gather(space, view(flat), {}).wait(); }, [&] { raw.copy(gathered); });
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
