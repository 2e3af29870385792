#pragma once

#include <boost/describe/enum.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Which checkpoints go into a soup, and with which weights. Pure arithmetic on steps, metrics and losses: no I/O, no
/// MPI.
namespace argosy::soup {

enum class RecipeType { uniform, weighted, last_k, decay, greedy };
BOOST_DESCRIBE_ENUM(RecipeType, uniform, weighted, last_k, decay, greedy)

/// The learning-rate decay whose effect the recipe `decay` imitates.
enum class Decay { linear, cosine, one_minus_sqrt };
BOOST_DESCRIBE_ENUM(Decay, linear, cosine, one_minus_sqrt)

/// The optimizer's moments in the soup: none (weights only), zeros, those of the first input, or their mean with the
/// same factors as the weights. Training can resume from a soup that has moments.
enum class Moments { drop, zero, first, avg };
BOOST_DESCRIBE_ENUM(Moments, drop, zero, first, avg)

struct Recipe {
  RecipeType type = RecipeType::uniform;
  std::vector<double> weights{};          // weighted: one for each input
  std::string by{};                       // weighted: or by a metric of the manifests, as in dev.en.loss
  bool normalize = true;                  // weighted: divide by the sum of the weights
  std::optional<std::int64_t> last{};     // last_k: how many
  std::optional<std::int64_t> spacing{};  // last_k: at least this many steps apart
  std::optional<Decay> decay{};           // decay: linear unless given
  std::optional<double> min_delta{};      // greedy: a member must lower the loss by more; 0 unless given
  std::optional<double> bootstrap{};      // greedy: or lower it in this share of resamplings
};

/// What a recipe uses of a checkpoint.
struct Candidate {
  std::string name{};  // for errors
  std::int64_t step = 0;
  std::map<std::string, double> metrics{};  // by set and name: "dev.en.loss"
};

/// Σ weights[i] · candidate[members[i]] / divisor.
struct Mixture {
  std::vector<std::size_t> members{};  // ascending: sums run in the order given
  std::vector<double> weights{};       // by member
  double divisor = 1;
};

[[nodiscard]] std::string name_of(RecipeType type);
[[nodiscard]] std::string name_of(Moments moments);

/// The mean of `count` checkpoints.
[[nodiscard]] Mixture uniform_mixture(std::size_t count);

/// Applies the recipe; greedy starts as uniform. weighted by a metric: in proportion to exp(-loss), 1/perplexity,
/// exp(-bits_per_byte), BLEU, chrF or exp(-TER/100). last_k: the newest, then repeatedly the newest that is at least
/// `spacing` steps older, after LAWA (Kaddour, arXiv:2209.14981). decay: member j of K, by step, has the weight f(j/K)
/// - f((j+1)/K), which imitates a learning rate that decays with f (Warmup-Stable-Merge, arXiv:2507.17634); linear is
/// the uniform mean. Throws Error{usage} for options of another recipe, a wrong number of weights, a sum that is zero
/// or not finite, a missing metric, and fewer than two members.
[[nodiscard]] Mixture mixture_of(const Recipe& recipe, std::span<const Candidate> candidates);

/// The loss of some weights on the validation sets.
struct ValidationLoss {
  double loss = 0;                 // smaller is better
  std::vector<double> by_batch{};  // Σ nll of each batch, in an order that does not depend on the weights
};

/// The share of 1000 resamplings of the batches in which `with` is better than `now`: a paired bootstrap (Koehn 2004,
/// W04-3250) with a fixed seed. Throws Error{numeric} unless both have the same number of batches, one or more.
[[nodiscard]] double bootstrap_wins(const ValidationLoss& now, const ValidationLoss& with);

struct Decision {
  std::size_t candidate;  // index into the losses
  double loss;            // of the mean of the members so far and this one
  bool accepted;
};

struct GreedyChoice {
  std::vector<std::size_t> members{};  // ascending
  ValidationLoss loss{};               // of their mean
  std::vector<Decision> decisions{};   // in the order in which they were made, the best checkpoint first
};

/// Whether `with` improves enough on `now`.
using Accepts = std::function<bool(const ValidationLoss& now, const ValidationLoss& with)>;

/// Starts with the checkpoint of the smallest loss. Then tries the others in the order of their losses: one becomes a
/// member if `accepts` the loss of the uniform mean of the members and it. alone: the loss of each checkpoint. loss_of:
/// the loss of the mean of some checkpoints, given by ascending index. Never takes a checkpoint whose loss is NaN.
/// Throws Error{numeric} when all are NaN. Recipe 1 of Wortsman et al., arXiv:2203.05482.
[[nodiscard]] GreedyChoice choose_greedily(
    std::span<const ValidationLoss> alone, const Accepts& accepts,
    const std::function<ValidationLoss(const std::vector<std::size_t>&)>& loss_of);

}  // namespace argosy::soup
