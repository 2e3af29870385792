// How well batches are filled: Argosy's plan and the rules of MAMMOTH and Marian, on the same lengths in the same
// order. Prints one JSON object. scripts/bench/batching runs it.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "data/batch_plan.hpp"
#include "data/sampler.hpp"
#include "support/lognormal_lengths.hpp"

namespace argosy::data {
namespace {

namespace json = boost::json;

/// What a list of batches comes to. size: what its rule compares with the budget.
class Figures {
 public:
  explicit Figures(double budget) : budget_(budget) {}

  void add(std::int64_t rows, std::int64_t source_width, std::int64_t target_width, std::int64_t src_tokens,
           std::int64_t tgt_tokens, std::int64_t size) {
    const auto count = static_cast<double>(rows);
    source_real_ += static_cast<double>(src_tokens);
    target_real_ += static_cast<double>(tgt_tokens);
    source_padded_ += count * static_cast<double>(source_width);
    target_padded_ += count * static_cast<double>(target_width);
    sizes_.push_back(static_cast<double>(size));
  }
  /// The same of the examples themselves.
  void add(std::span<const Lengths> batch, bool one_side_counts) {
    std::int64_t source = 0, target = 0, src_tokens = 0, tgt_tokens = 0;
    for (const Lengths& each : batch) {
      source = std::max<std::int64_t>(source, each.source);
      target = std::max<std::int64_t>(target, each.target);
      src_tokens += each.source;
      tgt_tokens += each.target;
    }
    const std::int64_t rows = std::ssize(batch);
    add(rows, source, target, src_tokens, tgt_tokens, rows * (one_side_counts ? std::max(source, target) : source));
  }
  void add_spread(double spread) { spreads_.push_back(spread); }

  [[nodiscard]] json::object object() {
    double sum = 0;
    for (const double size : sizes_) sum += size;
    std::ranges::sort(spreads_);
    json::object found{{"batches", sizes_.size()},
                       {"fill", sum / budget_ / static_cast<double>(sizes_.size())},
                       {"largest", *std::ranges::max_element(sizes_) / budget_},
                       {"source_efficiency", source_real_ / source_padded_},
                       {"target_efficiency", target_real_ / target_padded_}};
    if (!spreads_.empty()) found["spread_p95"] = spreads_[spreads_.size() * 95 / 100];
    return found;
  }

 private:
  double budget_, source_real_ = 0, source_padded_ = 0, target_real_ = 0, target_padded_ = 0;
  std::vector<double> sizes_, spreads_;
};

/// `routes`: pairs go so many routes through a model, in turn.
json::object of_argosy(const std::vector<Lengths>& lengths, std::int64_t micro_size, int micro_batches,
                       std::int64_t width_multiple, std::int64_t pool, std::uint64_t routes = 1) {
  const BatchPlanSettings settings{
      .micro_size = micro_size, .micro_batches = micro_batches, .width_multiple = width_multiple};
  const Sampler sampler{{.pool = pool}, {{.size = lengths.size(), .tgt_tokens = 1}}};
  Figures figures{static_cast<double>(micro_size)};
  for (PoolBegin at; at.epoch == 0;) {
    const Sampler::Pool drawn = sampler.draw(at);
    std::vector<Lengths> own;
    std::vector<std::uint32_t> own_routes;
    for (const Drawn& draw : drawn.draws) {
      own.push_back(lengths[draw.example]);
      own_routes.push_back(static_cast<std::uint32_t>(draw.example % routes));
    }
    const BatchPlan plan{settings, own, {}, own_routes};
    for (std::int64_t step = 0; step < plan.steps(); ++step) {
      std::int64_t least = micro_size, most = 0;
      for (int j = 0; j < plan.micro_batches(step); ++j) {
        const MicroBatch batch = plan.micro_batch(step, j);
        const std::int64_t size = batch.padded_tokens();
        least = std::min(least, size);
        most = std::max(most, size);
        figures.add(std::ssize(batch.examples), batch.source_width, batch.target_width, batch.src_tokens,
                    batch.tgt_tokens, size);
      }
      if (plan.micro_batches(step) == micro_batches)
        figures.add_spread(static_cast<double>(most - least) / static_cast<double>(most));
    }
    at = drawn.next;
  }
  return figures.object();
}

/// MAMMOTH: examples are taken while ceil((n + 1) / lookahead) · longest side < budget, sorted, and cut into
/// `lookahead` batches of equally many sentences.
json::object of_mammoth(const std::vector<Lengths>& lengths, std::int64_t budget, std::size_t lookahead) {
  Figures figures{static_cast<double>(budget)};
  std::vector<Lengths> taken;
  std::int64_t longest = 0;
  const auto size_of = [](const Lengths& each) { return std::max(each.source, each.target); };
  const auto flush = [&] {
    std::ranges::sort(taken, {}, size_of);
    for (std::size_t i = 0; i < lookahead; ++i) {
      const std::size_t begin = taken.size() * i / lookahead, end = taken.size() * (i + 1) / lookahead;
      if (begin < end) figures.add(std::span{taken}.subspan(begin, end - begin), true);
    }
    taken.clear();
    longest = 0;
  };
  for (const Lengths& each : lengths) {
    const std::int64_t most = std::max<std::int64_t>(longest, size_of(each));
    if (!taken.empty() && static_cast<std::int64_t>(taken.size() / lookahead + 1) * most >= budget) flush();
    longest = std::max<std::int64_t>(longest, size_of(each));
    taken.push_back(each);
  }
  if (!taken.empty()) flush();
  return figures.object();
}

/// Marian: `pool` sentences sorted by target, then by source; a batch closes when its real source words exceed the
/// budget.
json::object of_marian(std::vector<Lengths> lengths, std::int64_t budget, std::size_t pool) {
  Figures figures{static_cast<double>(budget)};
  for (std::size_t begin = 0; begin < lengths.size(); begin += pool) {
    const std::span own = std::span{lengths}.subspan(begin, std::min(pool, lengths.size() - begin));
    std::ranges::sort(own, {}, [](const Lengths& each) { return std::pair{each.target, each.source}; });
    std::size_t first = 0;
    std::int64_t words = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      words += own[i].source;
      if (words <= budget && i + 1 < own.size()) continue;
      figures.add(own.subspan(first, i + 1 - first), false);
      first = i + 1;
      words = 0;
    }
  }
  return figures.object();
}

std::vector<Lengths> lengths_from(const char* path) {
  std::ifstream file{path};
  std::vector<Lengths> lengths;
  for (Lengths each; file >> each.source >> each.target;) lengths.push_back(each);
  return lengths;
}

}  // namespace
}  // namespace argosy::data

/// batching [FILE]: a source and a target length a line; without it 400,000 pairs of lognormal lengths.
int main(int argc, char** argv) {
  using namespace argosy;
  const std::vector<data::Lengths> lengths = argc > 1 ? data::lengths_from(argv[1]) : test::lognormal_lengths(400000);
  if (lengths.empty()) {
    std::cerr << "batching: " << argv[1] << " holds no pairs of lengths\n";
    return 3;
  }
  constexpr std::int64_t small = 4096, large = 25000, pool = 100000;
  boost::json::object result{{"pairs", lengths.size()}};
  result["argosy 4096"] = data::of_argosy(lengths, small, 4, 1, pool);
  result["argosy 25000"] = data::of_argosy(lengths, large, 4, 1, pool);
  result["argosy 4096, widths by 8"] = data::of_argosy(lengths, small, 4, 8, pool);
  result["argosy 4096, 12 routes"] = data::of_argosy(lengths, small, 4, 1, pool, 12);
  result["mammoth 4096, lookahead 4"] = data::of_mammoth(lengths, small, 4);
  result["mammoth 4096, lookahead 10"] = data::of_mammoth(lengths, small, 10);
  result["marian 4096"] = data::of_marian(lengths, small, static_cast<std::size_t>(pool));
  std::cout << boost::json::serialize(result) << '\n';
  return 0;
}
