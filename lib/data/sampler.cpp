#include "data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t step_shuffle = 0x53544550;  // names the stream of random numbers
constexpr std::int64_t pool_steps = 64;             // a pool holds at least the examples of so many steps

/// Draw k comes from the corpus that lags most behind its share: |drawn - share·k| stays below 1.2 without a random
/// number.
class Mixer {
 public:
  explicit Mixer(const std::vector<double>& shares) : shares_(shares), drawn_(shares.size(), 0) {}
  std::size_t next() {
    ++draws_;
    std::size_t best = 0;
    double best_lag = -1e300;
    for (std::size_t c = 0; c < shares_.size(); ++c) {
      const double lag = shares_[c] * static_cast<double>(draws_) - static_cast<double>(drawn_[c]);
      if (lag > best_lag) {
        best_lag = lag;
        best = c;
      }
    }
    ++drawn_[best];
    return best;
  }
  [[nodiscard]] const std::vector<std::int64_t>& drawn() const { return drawn_; }

 private:
  const std::vector<double>& shares_;
  std::vector<std::int64_t> drawn_;
  std::int64_t draws_ = 0;
};

}  // namespace

int EpochPlan::micro_batches(std::int64_t step) const {
  return static_cast<int>(steps_.at(static_cast<std::size_t>(step)).pieces);
}

MicroBatch EpochPlan::micro_batch(std::int64_t step, int j) const {
  const Step& at = steps_.at(static_cast<std::size_t>(step));
  return j < static_cast<int>(at.pieces) ? pieces_[at.first_piece + static_cast<std::uint32_t>(j)] : MicroBatch{};
}

double EpochPlan::fill() const {
  double used = 0;
  for (const MicroBatch& piece : pieces_) {
    const bool by_rows = settings_.unit == BatchUnit::examples;
    used += static_cast<double>(by_rows ? std::ssize(piece.examples) : piece.padded_tokens());
  }
  return used / (static_cast<double>(settings_.micro_size) * static_cast<double>(pieces_.size()));
}

double EpochPlan::target_efficiency() const {
  double real = 0, padded = 0;
  for (const MicroBatch& piece : pieces_) {
    real += static_cast<double>(piece.tgt_tokens);
    padded += static_cast<double>(piece.examples.size()) * static_cast<double>(piece.target_width);
  }
  return real / padded;
}

Sampler::Sampler(SamplerSettings settings, std::vector<CorpusLengths> corpora)
    : settings_(settings), corpora_(std::move(corpora)), first_(1, 0) {
  std::vector<double> mean_target;
  double sum = 0;
  for (const CorpusLengths& corpus : corpora_) {
    const auto size = static_cast<double>(corpus.lengths.size());
    const double tgt_tokens = std::accumulate(corpus.lengths.begin(), corpus.lengths.end(), 0.0,
                                              [](double total, const Lengths& l) { return total + l.target; });
    first_.push_back(first_.back() + corpus.lengths.size());
    // Token share p ∝ weight·n^(1/T); a corpus is drawn in examples, so by p over their mean length.
    const double share =
        size > 0 ? corpus.weight * std::pow(tgt_tokens, 1.0 / settings_.temperature) * size / tgt_tokens : 0;
    shares_.push_back(share);
    sum += share;
  }
  if (first_.back() == 0)
    throw_error(Fault::data, "data.shards", "examples to train on", "none", "check the corpora and data.split");
  if (!std::isfinite(sum) || sum <= 0)
    throw_error(Fault::config, "data", "weights and a temperature that give each corpus a share",
                fmt::format("temperature {} and shares beyond the range of numbers", settings_.temperature),
                "correct data.temperature or the corpora's weights");
  for (double& share : shares_) share /= sum;
  const bool any_fits = std::ranges::any_of(corpora_, [&](const CorpusLengths& corpus) {
    return std::ranges::any_of(corpus.lengths, [&](const Lengths& lengths) { return fits(lengths); });
  });
  if (!any_fits)
    throw_error(Fault::data, "batch.micro_size",
                fmt::format("examples that fit into {} padded_tokens", settings_.micro_size), "only longer ones",
                "raise batch.micro_size");
}

std::int64_t Sampler::width(std::uint32_t length) const {
  const std::int64_t multiple = settings_.width_multiple;
  return (length + multiple - 1) / multiple * multiple;
}

bool Sampler::fits(const Lengths& lengths) const {
  return settings_.unit == BatchUnit::examples || width(lengths.source) + width(lengths.target) <= settings_.micro_size;
}

const Lengths& Sampler::lengths_of(std::uint64_t example) const {
  std::size_t c = 0;
  while (example >= first_[c + 1]) ++c;
  return corpora_[c].lengths[example - first_[c]];
}

std::vector<std::int64_t> Sampler::drawn_before(std::int64_t epoch) const {
  // Every epoch draws alike: count one and multiply.
  std::vector<std::int64_t> drawn{static_cast<std::int64_t>(first_.back())};
  if (corpora_.size() > 1) {
    Mixer mixer{shares_};
    for (std::uint64_t k = 0; k < first_.back(); ++k) mixer.next();
    drawn = mixer.drawn();
  }
  for (std::int64_t& count : drawn) count *= epoch;
  return drawn;
}

std::vector<std::uint64_t> Sampler::draws(std::int64_t epoch) const {
  struct Pass {  // through one corpus
    std::int64_t drawn = 0, number = -1;
    Permutation order{1, 0, 0};
  };
  std::vector<Pass> passes(corpora_.size());
  const std::vector<std::int64_t> before = drawn_before(epoch);
  for (std::size_t c = 0; c < passes.size(); ++c) passes[c].drawn = before[c];

  Mixer mixer{shares_};
  std::vector<std::uint64_t> draws(first_.back());
  for (std::uint64_t& draw : draws) {
    const std::size_t c = corpora_.size() == 1 ? 0 : mixer.next();
    Pass& pass = passes[c];
    const std::uint64_t size = corpora_[c].lengths.size();
    const std::int64_t number = pass.drawn / static_cast<std::int64_t>(size);
    if (number != pass.number) {
      pass.number = number;
      pass.order = Permutation{size, settings_.seed, static_cast<std::uint64_t>(number) << 16 | c};
    }
    draw = first_[c] + pass.order(static_cast<std::uint64_t>(pass.drawn % static_cast<std::int64_t>(size)));
    ++pass.drawn;
  }
  return draws;
}

EpochPlan Sampler::plan(std::int64_t epoch) const {
  EpochPlan plan{settings_};
  plan.drawn_ = static_cast<std::int64_t>(first_.back());

  struct Keyed {
    Lengths lengths;
    std::uint64_t example;
  };
  std::vector<Keyed> sorted;
  sorted.reserve(first_.back());
  double padded_tokens = 0;
  for (const std::uint64_t example : draws(epoch)) {
    const Lengths lengths = lengths_of(example);
    if (!fits(lengths)) {
      ++plan.dropped_oversized_;
      continue;
    }
    padded_tokens += static_cast<double>(lengths.source) + lengths.target;
    sorted.push_back({lengths, example});
  }

  // Pools of equal size, each of at least `pool` examples and pool_steps steps, at most the epoch.
  const std::size_t count = sorted.size();
  if (count == 0) return plan;
  const bool by_rows = settings_.unit == BatchUnit::examples;
  const double step_size = static_cast<double>(settings_.micro_size) * settings_.micro_batches;
  const double step_examples = by_rows ? step_size : step_size * static_cast<double>(count) / padded_tokens;
  const double pool = std::max(static_cast<double>(settings_.pool), std::ceil(pool_steps * step_examples));
  const std::size_t pools = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(count) / pool));

  plan.examples_.reserve(count);
  for (std::size_t p = 0; p < pools; ++p) {
    const std::size_t pool_begin = count * p / pools, pool_end = count * (p + 1) / pools;
    std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(pool_begin),
              sorted.begin() + static_cast<std::ptrdiff_t>(pool_end), [](const Keyed& a, const Keyed& b) {
                const auto key = [](const Keyed& k) {
                  return std::tuple{std::max(k.lengths.source, k.lengths.target), k.lengths.target, k.example};
                };
                return key(a) < key(b);
              });
    const std::size_t first_piece = plan.pieces_.size();
    for (std::size_t i = pool_begin; i < pool_end; ++i) {
      const Keyed& next = sorted[i];
      const std::int64_t source = width(next.lengths.source), target = width(next.lengths.target);
      MicroBatch* piece = plan.pieces_.size() > first_piece ? &plan.pieces_.back() : nullptr;
      if (piece != nullptr) {
        const std::int64_t rows = std::ssize(piece->examples) + 1;
        const std::int64_t size =
            by_rows ? rows : rows * (std::max(piece->source_width, source) + std::max(piece->target_width, target));
        if (size > settings_.micro_size) piece = nullptr;
      }
      if (piece == nullptr) piece = &plan.pieces_.emplace_back();
      plan.examples_.push_back(next.example);  // within what is reserved: spans stay valid
      piece->examples = std::span{plan.examples_}.last(piece->examples.size() + 1);
      piece->source_width = std::max(piece->source_width, source);
      piece->target_width = std::max(piece->target_width, target);
      piece->src_tokens += next.lengths.source;
      piece->tgt_tokens += next.lengths.target;
    }

    const std::size_t first_step = plan.steps_.size();
    for (std::size_t i = first_piece; i < plan.pieces_.size(); i += static_cast<std::size_t>(settings_.micro_batches)) {
      const std::size_t pieces = std::min(plan.pieces_.size() - i, static_cast<std::size_t>(settings_.micro_batches));
      plan.steps_.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(pieces)});
    }
    RandomStream random{settings_.seed, step_shuffle, static_cast<std::uint64_t>(epoch), p};
    for (std::size_t i = plan.steps_.size() - 1; i > first_step; --i) {
      std::swap(plan.steps_[i], plan.steps_[first_step + random.below(i - first_step + 1)]);
    }
  }
  return plan;
}

}  // namespace argosy::data
