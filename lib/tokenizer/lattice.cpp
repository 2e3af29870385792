#include "tokenizer/lattice.hpp"

#include <algorithm>
#include <cmath>

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

double Lattice::log_sum(std::int32_t first) const {
  const auto edge = [&](std::int32_t at) -> const Edge& { return edges_[static_cast<std::size_t>(at)]; };
  if (edge(first).next < 0) return edge(first).weight;
  double greatest = edge(first).weight, sum = 0;
  for (std::int32_t at = first; at >= 0; at = edge(at).next) greatest = std::max(greatest, edge(at).weight);
  for (std::int32_t at = first; at >= 0; at = edge(at).next) sum += std::exp(edge(at).weight - greatest);
  return greatest + std::log(sum);
}

// Forward sums, then a draw from the end backwards: a piece that ends here with its share of the sum.
std::vector<Lattice::Step> Lattice::sample_of_all(std::string_view text, double alpha, RandomStream& random) {
  edges_.clear();
  std::vector<std::int32_t> last(text.size() + 1, -1);  // edges that end at a place
  std::vector<double> sums(text.size() + 1, 0);
  for (std::size_t begin = 0, after = 0; begin < text.size(); begin = after) {
    static_cast<void>(next_character(text, after));
    if (begin > 0) sums[begin] = log_sum(last[begin]);
    each_piece(text, begin, after, [&](std::size_t end, double score, std::int32_t id) {
      edges_.push_back({sums[begin] + alpha * score, narrow<std::uint32_t>(begin), id, last[end]});
      last[end] = narrow<std::int32_t>(edges_.size()) - 1;
    });
  }
  std::vector<Step> steps;
  if (text.empty()) return steps;
  sums.back() = log_sum(last.back());
  for (std::size_t end = text.size(); end > 0; end = steps.back().begin) {
    std::int32_t at = last[end];
    const auto edge = [&] { return edges_[static_cast<std::size_t>(at)]; };
    if (edge().next >= 0) {
      double left = random.uniform();
      while ((left -= std::exp(edge().weight - sums[end])) >= 0 && edge().next >= 0) at = edge().next;
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
  std::vector<std::vector<Path>> paths(text.size() + 1);
  const auto keep_best = [&](std::vector<Path>& of) {
    std::ranges::stable_sort(of, std::ranges::greater{}, &Path::score);
    if (std::ssize(of) > how.best) of.resize(static_cast<std::size_t>(how.best));
    of.shrink_to_fit();
  };
  paths.front().emplace_back();
  for (std::size_t begin = 0, after = 0; begin < text.size(); begin = after) {
    static_cast<void>(next_character(text, after));
    if (begin > 0) keep_best(paths[begin]);
    each_piece(text, begin, after, [&](std::size_t end, double score, std::int32_t id) {
      for (std::size_t rank = 0; rank < paths[begin].size(); ++rank)
        paths[end].push_back({paths[begin][rank].score + score, begin, rank, id});
    });
  }
  std::vector<Step> steps;
  if (text.empty()) return steps;
  keep_best(paths.back());
  double sum = 0;
  const auto weight = [&](const Path& path) { return std::exp(how.alpha * (path.score - paths.back().front().score)); };
  for (const Path& path : paths.back()) sum += weight(path);
  std::size_t rank = 0;
  for (double left = random.uniform() * sum; rank + 1 < paths.back().size(); ++rank)
    if ((left -= weight(paths.back()[rank])) < 0) break;
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
