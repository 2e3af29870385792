#include "tokenizer/lattice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {

template <class OnEdge>
void Lattice::each_piece(std::string_view text, std::size_t begin, std::size_t after, OnEdge&& edge) const {
  bool known = false;
  pieces_.prefixes(text.substr(begin), [&](std::size_t length, std::int32_t id) {
    edge(begin + length, scores_[static_cast<std::size_t>(id)], id);
    known = known || begin + length == after;
  });
  if (!known) edge(after, unknown_, -1);
}

std::vector<Lattice::Step> Lattice::sample(std::string_view text, const Sampling& how, RandomStream& random) {
  return how.best < 0 ? sample_of_all(text, how.alpha, random) : sample_of_best(text, how, random);
}

Lattice::Weight Lattice::weight_of(double logarithm) {
  const double binary = logarithm * std::numbers::log2e, whole = std::floor(binary);
  return {std::exp2(binary - whole), static_cast<std::int64_t>(whole)};
}

std::vector<Lattice::Weight> Lattice::weights_of(std::span<const double> scores, double alpha) {
  std::vector<Weight> weights;
  for (const double score : scores) weights.push_back(weight_of(alpha * score));
  return weights;
}

namespace {

/// The weight over 2^exponent, which is not below its own.
double relative(const Lattice::Weight& weight, std::int64_t exponent) {
  constexpr std::int64_t bias = 1023, least = -1000;
  const std::int64_t shift = weight.exponent - exponent;
  if (shift < least) return 0;
  return weight.part * std::bit_cast<double>(static_cast<std::uint64_t>(shift + bias) << 52U);
}

Lattice::Weight product(const Lattice::Weight& a, const Lattice::Weight& b) {
  const double part = a.part * b.part;
  const bool carries = part >= 2;
  return {carries ? part / 2 : part, a.exponent + b.exponent + (carries ? 1 : 0)};
}

}  // namespace

Lattice::Weight Lattice::sum(std::int32_t first) const {
  const auto edge = [&](std::int32_t at) -> const Edge& { return edges_[static_cast<std::size_t>(at)]; };
  if (edge(first).next < 0) return edge(first).weight;
  std::int64_t greatest = edge(first).weight.exponent;
  for (std::int32_t at = first; at >= 0; at = edge(at).next) greatest = std::max(greatest, edge(at).weight.exponent);
  double part = 0;
  for (std::int32_t at = first; at >= 0; at = edge(at).next) part += relative(edge(at).weight, greatest);
  for (; part >= 2; part /= 2) ++greatest;
  return {part, greatest};
}

// Forward sums, then a draw from the end backwards: a piece that ends here with its share of the sum.
std::vector<Lattice::Step> Lattice::sample_of_all(std::string_view text, double alpha, RandomStream& random) {
  edges_.clear();
  std::vector<std::int32_t> last(text.size() + 1, -1);  // edges that end at a place
  std::vector<Weight> sums(text.size() + 1);
  const Weight unknown = weight_of(alpha * unknown_);
  for (std::size_t begin = 0, after = 0; begin < text.size(); begin = after) {
    static_cast<void>(next_character(text, after));
    if (begin > 0) sums[begin] = sum(last[begin]);
    each_piece(text, begin, after, [&](std::size_t end, double score, std::int32_t id) {
      const Weight weight = id < 0             ? unknown
                            : weights_.empty() ? weight_of(alpha * score)
                                               : weights_[static_cast<std::size_t>(id)];
      edges_.push_back({product(sums[begin], weight), narrow<std::uint32_t>(begin), id, last[end]});
      last[end] = narrow<std::int32_t>(edges_.size()) - 1;
    });
  }
  std::vector<Step> steps;
  if (text.empty()) return steps;
  sums.back() = sum(last.back());
  for (std::size_t end = text.size(); end > 0; end = steps.back().begin) {
    std::int32_t at = last[end];
    const auto edge = [&]() -> const Edge& { return edges_[static_cast<std::size_t>(at)]; };
    if (edge().next >= 0) {
      double left = random.uniform() * sums[end].part;
      while ((left -= relative(edge().weight, sums[end].exponent)) >= 0 && edge().next >= 0) at = edge().next;
    }
    steps.push_back({edge().begin, end, edge().id});
  }
  std::ranges::reverse(steps);
  return steps;
}

std::vector<Lattice::Step> Lattice::sample_of_best(std::string_view text, const Sampling& how, RandomStream& random) {
  /// One of the best paths up to a place: its last piece, and which of the paths up to that piece it goes on from.
  struct Path {
    double score = 0;
    std::size_t begin = 0, rank = 0;
    std::int32_t id = -1;
  };
  struct Piece {
    std::size_t begin = 0, taken = 0;  // of the paths up to it
    double score = 0;
    std::int32_t id = -1;
  };
  std::vector<std::vector<Path>> paths(text.size() + 1);  // the best first
  std::vector<std::vector<Piece>> pieces(text.size() + 1);
  const auto keep_best = [&](std::size_t end) {  // paths up to each piece are sorted, so the best are merged
    while (std::ssize(paths[end]) < how.best) {
      Piece* best = nullptr;
      double score = 0;
      for (Piece& piece : pieces[end]) {
        if (piece.taken == paths[piece.begin].size()) continue;
        const double own = paths[piece.begin][piece.taken].score + piece.score;
        if (best != nullptr && own <= score) continue;
        best = &piece;
        score = own;
      }
      if (best == nullptr) break;
      paths[end].push_back({score, best->begin, best->taken++, best->id});
    }
  };
  paths.front().emplace_back();
  for (std::size_t begin = 0, after = 0; begin < text.size(); begin = after) {
    static_cast<void>(next_character(text, after));
    if (begin > 0) keep_best(begin);
    each_piece(text, begin, after, [&](std::size_t end, double score, std::int32_t id) {
      pieces[end].push_back({.begin = begin, .score = score, .id = id});
    });
  }
  std::vector<Step> steps;
  if (text.empty()) return steps;
  keep_best(text.size());
  double sum = 0;
  const auto weight = [&](const Path& path) { return std::exp(how.alpha * (path.score - paths.back().front().score)); };
  for (const Path& path : paths.back()) sum += weight(path);
  std::size_t rank = 0;
  double left = random.uniform() * sum - weight(paths.back().front());
  while (left >= 0 && rank + 1 < paths.back().size()) left -= weight(paths.back()[++rank]);
  for (std::size_t end = text.size(); end > 0;) {
    const Path& path = paths[end][rank];
    steps.push_back({path.begin, end, path.id});
    rank = path.rank;
    end = path.begin;
  }
  std::ranges::reverse(steps);
  return steps;
}

}  // namespace argosy::tokenizer
