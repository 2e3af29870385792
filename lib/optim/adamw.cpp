#include "optim/adamw.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace argosy::optim {

namespace {

/// Elements of a unit that take one launch where they lie in one slice.
struct Run {
  std::int64_t begin, end;
  bool decays;
  kernels::Rounding rounding{};
};

std::vector<Run> runs_of(const partition::FlatSpace& space, const ShardState& shard) {
  const std::int64_t decay_begin = space.decay_begin(), padded = space.padded_size();
  if (shard.master.scalar_type() == at::kFloat) return {{0, decay_begin, false}, {decay_begin, padded, true}};
  std::vector<Run> runs;
  for (std::size_t p = 0; p < space.params().size(); ++p) {
    const bool is_last = p + 1 == space.params().size();
    runs.push_back({.begin = space.offset(p),
                    .end = is_last ? padded : space.offset(p + 1),
                    .decays = space.offset(p) >= decay_begin,
                    .rounding = {.seed = shard.rounding.seed,
                                 .parameter = shard.rounding.first_parameter + static_cast<std::int64_t>(p)}});
  }
  return runs;
}

}  // namespace

std::vector<Stretch> stretches_of(const partition::FlatSpace& space, int canonical_rank, const ShardState& shard) {
  ARGOSY_CHECK(shard.master.numel() == space.owned_size(canonical_rank), "a shard of {} elements, {} owned",
               shard.master.numel(), space.owned_size(canonical_rank));
  const std::vector<Run> runs = runs_of(space, shard);
  std::vector<Stretch> stretches;
  for (std::int64_t local = 0; const int slice : space.owned_slices(canonical_rank)) {
    const std::int64_t begin = space.slice_begin(slice), end = begin + space.slice_size();
    for (const Run& run : runs) {
      const std::int64_t from = std::max(begin, run.begin), to = std::min(end, run.end);
      if (from >= to) continue;
      const auto part = [&](const at::Tensor& of) { return of.narrow(0, local + from - begin, to - from); };
      Stretch& stretch = stretches.emplace_back();
      stretch.master = part(shard.master);
      stretch.exp_avg = part(shard.exp_avg);
      stretch.exp_avg_sq = part(shard.exp_avg_sq);
      stretch.gradient = part(shard.gradient);
      if (shard.ema.defined()) stretch.ema = part(shard.ema);
      if (shard.weights.defined()) stretch.weights = shard.weights.narrow(0, from - shard.weights_begin, to - from);
      stretch.decays = run.decays;
      stretch.rounding = run.rounding;
      stretch.rounding.begin = from - run.begin;
    }
    local += space.slice_size();
  }
  return stretches;
}

double sum_of_squares(std::span<const Stretch> stretches) {
  double sum = 0;
  for (const Stretch& stretch : stretches) sum += kernels::sum_of_squares(stretch.gradient).item<double>();
  return sum;
}

double ema_decay(const AdamwNumbers& numbers, std::int64_t t) {
  const auto updates = static_cast<double>(t);
  return std::min(numbers.ema, (updates + 1) / (updates + 10));
}

void adamw(std::span<const Stretch> stretches, const AdamwNumbers& numbers, double lr, std::int64_t t,
           const at::Tensor& coefficient) {
  for (const Stretch& stretch : stretches) {
    const kernels::AdamwOptions options{.lr = lr,
                                        .beta1 = numbers.beta1,
                                        .beta2 = numbers.beta2,
                                        .epsilon = numbers.epsilon,
                                        .weight_decay = stretch.decays ? numbers.weight_decay : 0.0,
                                        .step = t};
    const bool has_wide_master = stretch.master.scalar_type() == at::kFloat;
    const bool rounds = has_wide_master && stretch.weights && stretch.weights->scalar_type() == at::kBFloat16;
    if (has_wide_master) {
      kernels::adamw_(stretch.master, stretch.exp_avg, stretch.exp_avg_sq, stretch.gradient,
                      rounds ? stretch.weights : std::nullopt, coefficient, options);
    } else {
      kernels::adamw_stochastic_(stretch.master, stretch.exp_avg, stretch.exp_avg_sq, stretch.gradient, coefficient,
                                 options, stretch.rounding);
    }
    if (stretch.weights && !rounds) stretch.weights->copy_(stretch.master);
    if (stretch.ema) kernels::ema_(*stretch.ema, stretch.master, coefficient, ema_decay(numbers, t));
  }
}

}  // namespace argosy::optim
