#include "data/dealing.hpp"

#include <algorithm>
#include <deque>
#include <optional>

#include "core/error.hpp"

namespace argosy::data {
namespace {

using Ranks = std::vector<int>;

Dealt deal_everywhere(std::size_t count, std::size_t world) {
  Dealt dealt((count + world - 1) / world, std::vector<int>(world, -1));
  for (std::size_t j = 0; j < count; ++j) dealt[j / world][j % world] = narrow<int>(j);
  return dealt;
}

Dealt deal_in_order(std::span<const int> routes, const DealSettings& settings) {
  Dealt dealt;
  for (int last = settings.world, j = 0; const int route : routes) {
    const int number = j++;
    if (route < 0) continue;
    const Ranks& ranks = settings.ranks[static_cast<std::size_t>(route)];
    auto next = std::ranges::upper_bound(ranks, last);
    if (dealt.empty() || next == ranks.end()) {
      dealt.emplace_back(static_cast<std::size_t>(settings.world), -1);
      next = ranks.begin();
    }
    last = *next;
    dealt.back()[static_cast<std::size_t>(last)] = number;
  }
  return dealt;
}

/// Deals each micro-batch to a rank of its route that has fewest, those with fewest ranks first. Then it moves
/// micro-batches from the ranks that have most, along paths over other ranks, until no path makes the most less.
class EvenDeal {
 public:
  EvenDeal(std::span<const int> routes, const DealSettings& settings)
      : routes_(routes), settings_(settings), own_(static_cast<std::size_t>(settings.world)) {
    std::vector<int> order;
    for (int j = 0; j < std::ssize(routes); ++j)
      if (routes[static_cast<std::size_t>(j)] >= 0) order.push_back(j);
    std::ranges::stable_sort(order, {}, [&](int j) { return ranks_of(j).size(); });
    for (const int j : order)
      own_[static_cast<std::size_t>(*std::ranges::min_element(ranks_of(j), {}, [&](int r) { return load(r); }))]
          .push_back(j);
    while (improve()) {
    }
  }

  [[nodiscard]] Dealt take() {
    Dealt dealt(most(), std::vector<int>(own_.size(), -1));
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      std::ranges::sort(own_[rank]);
      for (std::size_t slot = 0; slot < own_[rank].size(); ++slot) dealt[slot][rank] = own_[rank][slot];
    }
    return dealt;
  }

 private:
  [[nodiscard]] const Ranks& ranks_of(int j) const {
    return settings_.ranks[static_cast<std::size_t>(routes_[static_cast<std::size_t>(j)])];
  }
  [[nodiscard]] std::size_t load(int rank) const { return own_[static_cast<std::size_t>(rank)].size(); }
  [[nodiscard]] std::size_t most() const { return std::ranges::max(own_, {}, &std::vector<int>::size).size(); }

  /// Moves one micro-batch away from each rank of a path that begins at a rank with most of them.
  bool improve() {
    struct Step {
      int from = -1, micro_batch = -1;
    };
    const std::size_t highest = most();
    std::vector<std::optional<Step>> reached(own_.size());
    std::deque<int> queue;
    for (int rank = 0; rank < settings_.world; ++rank) {
      if (load(rank) < highest) continue;
      reached[static_cast<std::size_t>(rank)].emplace();
      queue.push_back(rank);
    }
    for (; !queue.empty(); queue.pop_front()) {
      const int from = queue.front();
      for (const int j : own_[static_cast<std::size_t>(from)]) {
        for (const int to : ranks_of(j)) {
          auto& known = reached[static_cast<std::size_t>(to)];
          if (known) continue;
          known = Step{from, j};
          queue.push_back(to);
          if (load(to) + 1 >= highest) continue;
          for (int at = to; reached[static_cast<std::size_t>(at)]->from >= 0;) {
            const auto [before, moved] = *reached[static_cast<std::size_t>(at)];
            std::erase(own_[static_cast<std::size_t>(before)], moved);
            own_[static_cast<std::size_t>(at)].push_back(moved);
            at = before;
          }
          return true;
        }
      }
    }
    return false;
  }

  std::span<const int> routes_;
  const DealSettings& settings_;
  std::vector<std::vector<int>> own_;  // by rank
};

}  // namespace

Dealt deal(std::span<const int> routes, const DealSettings& settings) {
  if (settings.ranks.empty()) return deal_everywhere(routes.size(), static_cast<std::size_t>(settings.world));
  return settings.in_order ? deal_in_order(routes, settings) : EvenDeal(routes, settings).take();
}

}  // namespace argosy::data
