#pragma once

#include <functional>
#include <span>
#include <vector>

/// The greedy recipe (Wortsman et al., arXiv:2203.05482, recipe 1), apart from cooking and evaluation.
namespace argosy::soup {

/// What an evaluator says of some weights.
struct Judgement {
  double loss = 0;              // validation loss; smaller is better
  std::vector<double> parts{};  // Σ nll of each batch of the sets, in an order that does not depend on the weights
};

/// In how large a share of 1000 resamplings of the parts the second is better than the first: a paired bootstrap (Koehn
/// 2004, W04-3250). Drawn from a fixed seed. Throws Error{numeric} unless both have as many parts, one or more.
[[nodiscard]] double bootstrap_wins(const Judgement& now, const Judgement& with);

struct Decision {
  std::size_t candidate;  // index into the judgements
  double loss;            // of the members so far with it
  bool accepted;
};

struct GreedyChoice {
  std::vector<std::size_t> members{};  // ascending
  Judgement judgement{};               // of their mean
  std::vector<Decision> decisions{};   // in the order taken, the best checkpoint first
};

/// Whether the second is enough of an improvement on the first.
using Accepts = std::function<bool(const Judgement& now, const Judgement& with)>;

/// Starts with the checkpoint of the least loss, then takes each next best whose uniform mean with the members so far
/// `accepts`. alone: of each checkpoint; judge: of the mean of ascending members. A loss that is NaN is never chosen.
/// Throws Error{numeric} when all are NaN.
[[nodiscard]] GreedyChoice choose_greedily(std::span<const Judgement> alone, const Accepts& accepts,
                                           const std::function<Judgement(const std::vector<std::size_t>&)>& judge);

}  // namespace argosy::soup
