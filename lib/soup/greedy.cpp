#include "soup/greedy.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace argosy::soup {

GreedyChoice choose_greedily(std::span<const double> losses, double min_delta,
                             const std::function<double(const std::vector<std::size_t>&)>& loss_of) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (!std::isnan(losses[i])) order.push_back(i);
  if (order.empty()) {
    throw Error{Fault::numeric,
                {.wanted = "a checkpoint with a validation loss",
                 .got = "NaN for each",
                 .remedy = "check the validation sets"}};
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return losses[i]; });
  GreedyChoice choice{.members = {order.front()}, .loss = losses[order.front()]};
  choice.decisions.push_back({order.front(), choice.loss, true});
  for (std::size_t next = 1; next < order.size(); ++next) {
    std::vector<std::size_t> members = choice.members;
    members.insert(std::ranges::upper_bound(members, order[next]), order[next]);
    const double loss = loss_of(members);
    const bool accepted = choice.loss - loss > min_delta;
    choice.decisions.push_back({order[next], loss, accepted});
    if (!accepted) continue;
    choice.members = std::move(members);
    choice.loss = loss;
  }
  return choice;
}

}  // namespace argosy::soup
