#include "soup/greedy.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::soup {

double bootstrap_wins(const Judgement& now, const Judgement& with) {
  constexpr int rounds = 1000;
  constexpr std::uint64_t seed = 1;
  const std::size_t count = now.parts.size();
  if (count == 0 || with.parts.size() != count) {
    throw Error{Fault::numeric,
                {.wanted = "losses of the same batches, to resample",
                 .got = fmt::format("{} and {} of them", count, with.parts.size()),
                 .remedy = "decide by --min-delta"}};
  }
  RandomStream random{seed, count};
  int wins = 0;
  for (int round = 0; round < rounds; ++round) {
    double gain = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t drawn = random.below(count);
      gain += now.parts[drawn] - with.parts[drawn];
    }
    wins += gain > 0 ? 1 : 0;
  }
  return static_cast<double>(wins) / rounds;
}

GreedyChoice choose_greedily(std::span<const Judgement> alone, const Accepts& accepts,
                             const std::function<Judgement(const std::vector<std::size_t>&)>& judge) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < alone.size(); ++i)
    if (!std::isnan(alone[i].loss)) order.push_back(i);
  if (order.empty()) {
    throw Error{Fault::numeric,
                {.wanted = "a checkpoint with a validation loss",
                 .got = "NaN for each",
                 .remedy = "check the validation sets"}};
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return alone[i].loss; });
  GreedyChoice choice{.members = {order.front()}, .judgement = alone[order.front()]};
  choice.decisions.push_back({order.front(), choice.judgement.loss, true});
  for (std::size_t next = 1; next < order.size(); ++next) {
    std::vector<std::size_t> members = choice.members;
    members.insert(std::ranges::upper_bound(members, order[next]), order[next]);
    Judgement with = judge(members);
    const bool accepted = !std::isnan(with.loss) && accepts(choice.judgement, with);
    choice.decisions.push_back({order[next], with.loss, accepted});
    if (!accepted) continue;
    choice.members = std::move(members);
    choice.judgement = std::move(with);
  }
  return choice;
}

}  // namespace argosy::soup
