#include "optim/adamw.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "kernels/optimizer.hpp"

namespace argosy::optim {

std::vector<Stretch> stretches_of(const partition::FlatSpace& space, int canonical_rank, const ShardState& shard) {
  ARGOSY_CHECK(shard.master.numel() == space.owned_size(canonical_rank), "a shard of {} elements, {} owned",
               shard.master.numel(), space.owned_size(canonical_rank));
  std::vector<Stretch> stretches;
  std::int64_t local = 0;
  for (const int slice : space.owned_slices(canonical_rank)) {
    const std::int64_t begin = space.slice_begin(slice), end = begin + space.slice_size();
    const std::int64_t cut = std::clamp(space.decay_begin(), begin, end);
    for (const auto& [from, to] : {std::pair{begin, cut}, std::pair{cut, end}}) {
      if (from == to) continue;
      const auto part = [&](const at::Tensor& of) { return of.narrow(0, local + from - begin, to - from); };
      Stretch& stretch = stretches.emplace_back();
      stretch.master = part(shard.master);
      stretch.exp_avg = part(shard.exp_avg);
      stretch.exp_avg_sq = part(shard.exp_avg_sq);
      stretch.gradient = part(shard.gradient);
      if (shard.weights.defined()) stretch.weights = shard.weights.narrow(0, from - shard.weights_begin, to - from);
      stretch.decays = from >= space.decay_begin();
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

void adamw(std::span<const Stretch> stretches, const AdamwNumbers& numbers, double lr, std::int64_t t,
           const at::Tensor& coefficient) {
  for (const Stretch& stretch : stretches) {
    const bool rounds = stretch.weights && stretch.weights->scalar_type() == at::kBFloat16;
    kernels::adamw_(stretch.master, stretch.exp_avg, stretch.exp_avg_sq, stretch.gradient,
                    rounds ? stretch.weights : std::nullopt, coefficient,
                    {.lr = lr,
                     .beta1 = numbers.beta1,
                     .beta2 = numbers.beta2,
                     .epsilon = numbers.epsilon,
                     .weight_decay = stretch.decays ? numbers.weight_decay : 0.0,
                     .step = t});
    if (stretch.weights && !rounds) stretch.weights->copy_(stretch.master);
  }
}

}  // namespace argosy::optim
