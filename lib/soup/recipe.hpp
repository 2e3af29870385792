#pragma once

#include <boost/describe/enum.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// How much of each checkpoint goes into a soup: pure arithmetic on steps and metrics, no I/O and no MPI.
namespace argosy::soup {

enum class RecipeType { uniform, weighted, last_k, decay, greedy };
BOOST_DESCRIBE_ENUM(RecipeType, uniform, weighted, last_k, decay, greedy)

/// The end of a learning-rate schedule that `decay` stands in for.
enum class Decay { linear, cosine, one_minus_sqrt };
BOOST_DESCRIBE_ENUM(Decay, linear, cosine, one_minus_sqrt)

/// What becomes of the optimizer's moments: dropped (weights only), or kept so that training can go on from the soup:
/// as zeros, as the first ingredient's, or averaged like the weights.
enum class Moments { drop, zero, first, avg };
BOOST_DESCRIBE_ENUM(Moments, drop, zero, first, avg)

struct Recipe {
  RecipeType type = RecipeType::uniform;
  std::vector<double> weights{};          // weighted: one for each input
  std::string by{};                       // weighted: a metric of the manifests instead, such as dev.en.loss
  bool normalize = true;                  // weighted: divide by the sum of the weights
  std::optional<std::int64_t> last{};     // last_k: so many
  std::optional<std::int64_t> spacing{};  // last_k: at least so many steps apart
  std::optional<Decay> decay{};           // decay; linear unless given
  std::optional<double> min_delta{};      // greedy: the validation loss must fall by more than this; 0 unless given
  std::optional<double> bootstrap{};      // greedy: or in this share of resamplings of the validation batches
};

/// What a recipe looks at.
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

/// Applies the recipe; greedy begins as uniform. weighted by a metric: in proportion to exp(-loss), 1/perplexity, BLEU
/// or chrF. last_k: the newest, then each newest that is old enough, after LAWA (Kaddour, arXiv:2209.14981). decay:
/// member j of K, by step, weighs f(j/K) - f((j+1)/K), so that the sum is where a learning rate falling with f would
/// have led (Warmup-Stable-Merge, arXiv:2507.17634); linear is the uniform mean. Throws Error{usage}: options of
/// another recipe, a wrong number of weights, a sum that is zero or not finite, a metric that is missing, fewer than
/// two members.
[[nodiscard]] Mixture mixture_of(const Recipe& recipe, std::span<const Candidate> candidates);

}  // namespace argosy::soup
