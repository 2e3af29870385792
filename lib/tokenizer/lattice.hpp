#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "tokenizer/sampling.hpp"
#include "tokenizer/trie.hpp"

/// All segmentations of a text into pieces of a unigram model, and one of them drawn at random. Borrows the pieces;
/// for one thread.
namespace argosy::tokenizer {

class Lattice {
 public:
  /// A piece of a segmentation; id -1: a character that is no piece.
  struct Step {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
  };

  /// exp of a sum of scores, which no double holds if a text is long: part · 2^exponent, with 1 <= part < 2.
  struct Weight {
    double part = 1;
    std::int64_t exponent = 0;
  };
  [[nodiscard]] static Weight weight_of(double logarithm);
  /// weight_of(alpha · score) of each score.
  [[nodiscard]] static std::vector<Weight> weights_of(std::span<const double> scores, double alpha);

  /// Numbers of `pieces` are ids, of which `scores` has the log-probabilities. A character that is no piece has the
  /// score `unknown`. weights: weights_of(scores, alpha), or empty: they are computed when they are needed.
  Lattice(const Trie& pieces, std::span<const double> scores, double unknown, std::span<const Weight> weights = {})
      : pieces_(pieces), scores_(scores), unknown_(unknown), weights_(weights) {}

  /// The steps from left to right. text: UTF-8.
  [[nodiscard]] std::vector<Step> sample(std::string_view text, const Sampling& how, RandomStream& random);

 private:
  /// A piece on paths from the beginning; those that end at one place are linked.
  struct Edge {
    Weight weight;  // its own, times the sum of all paths up to its beginning
    std::uint32_t begin;
    std::int32_t id, next;
  };
  [[nodiscard]] std::vector<Step> sample_of_all(std::string_view text, double alpha, RandomStream& random);
  [[nodiscard]] std::vector<Step> sample_of_best(std::string_view text, const Sampling& how, RandomStream& random);
  [[nodiscard]] Weight sum(std::int32_t first) const;
  /// Calls edge(end, score, id) for each piece that begins at `begin`, whose character ends at `after`.
  template <class OnEdge>
  void each_piece(std::string_view text, std::size_t begin, std::size_t after, OnEdge&& edge) const;

  const Trie& pieces_;
  std::span<const double> scores_;
  double unknown_;
  std::span<const Weight> weights_;
  std::vector<Edge> edges_;
};

}  // namespace argosy::tokenizer
