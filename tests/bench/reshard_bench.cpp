#include <benchmark/benchmark.h>

#include "partition/reshard.hpp"

// Mistral-7B's state from one number of ranks to another, eight ranks a node: the whole plan of all ranks, and what one
// rank of the new layout plans for itself when it reads its state. One thread.

namespace {

using namespace argosy::partition;

constexpr int ranks_a_node = 8;

Layout layout_of(std::int64_t ranks) {
  return Layout{std::vector<int>(static_cast<std::size_t>(ranks / ranks_a_node), ranks_a_node)};
}

/// The units of Mistral-7B: 7,241,732,096 parameters.
std::vector<std::vector<ParamSpec>> mistral_units() {
  constexpr std::int64_t width = 4096, inner = 14336, vocabulary = 32000, key = 1024;
  std::vector<std::vector<ParamSpec>> units{{{"embedding", {vocabulary, width}}}};
  for (int layer = 0; layer < 32; ++layer) {
    units.push_back({{"norm_1", {width}, false},
                     {"query", {width, width}},
                     {"key", {key, width}},
                     {"value", {key, width}},
                     {"output", {width, width}},
                     {"norm_2", {width}, false},
                     {"gate", {inner, width}},
                     {"up", {inner, width}},
                     {"down", {width, inner}}});
  }
  units.push_back({{"norm", {width}, false}, {"head", {vocabulary, width}}});
  return units;
}

/// Intervals of all ranks, or of one, parameters numbered over all units.
std::vector<Interval> intervals_of(const std::vector<FlatSpace>& spaces, int rank) {
  std::vector<Interval> all;
  std::size_t first = 0;
  for (const FlatSpace& space : spaces) {
    for (Interval interval : argosy::partition::intervals_of(space, rank)) {
      interval.param += first;
      all.push_back(interval);
    }
    first += space.params().size();
  }
  return all;
}

std::vector<FlatSpace> spaces_of(std::int64_t ranks) {
  std::vector<FlatSpace> spaces;
  for (const auto& unit : mistral_units()) spaces.emplace_back(unit, layout_of(ranks));
  return spaces;
}

void plan(benchmark::State& state, int rank) {
  const std::vector<FlatSpace> from = spaces_of(state.range(0)), to = spaces_of(state.range(1));
  std::size_t moves = 0;
  for (auto _ : state) {
    const std::vector<Move> planned = plan_reshard(intervals_of(from, -1), intervals_of(to, rank));
    benchmark::DoNotOptimize(reads_of(planned));
    moves = planned.size();
  }
  state.counters["moves"] = static_cast<double>(moves);
}

void plan_of_all_ranks(benchmark::State& state) { plan(state, -1); }
void plan_of_one_rank(benchmark::State& state) { plan(state, static_cast<int>(state.range(1)) / 2); }

BENCHMARK(plan_of_all_ranks)->Args({128, 96})->Args({4096, 3072})->Unit(benchmark::kMillisecond);
BENCHMARK(plan_of_one_rank)->Args({128, 96})->Args({4096, 3072})->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
