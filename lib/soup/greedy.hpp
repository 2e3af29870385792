#pragma once

#include <functional>
#include <span>
#include <vector>

/// The greedy recipe (Wortsman et al., arXiv:2203.05482, recipe 1), apart from cooking and evaluation.
namespace argosy::soup {

struct Decision {
  std::size_t candidate;  // index into the losses
  double loss;            // of the members so far with it
  bool accepted;
};

struct GreedyChoice {
  std::vector<std::size_t> members{};  // ascending
  double loss = 0;                     // of their mean
  std::vector<Decision> decisions{};   // in the order taken, the best checkpoint first
};

/// Starts with the checkpoint of the least loss, then takes each next best whose uniform mean with the members so far
/// lowers the loss by more than `min_delta`. losses: of each checkpoint alone; loss_of: of the mean of ascending
/// members. A loss that is NaN is never chosen. Throws Error{numeric} when all are NaN.
[[nodiscard]] GreedyChoice choose_greedily(std::span<const double> losses, double min_delta,
                                           const std::function<double(const std::vector<std::size_t>&)>& loss_of);

}  // namespace argosy::soup
