#include "data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

/// Deals `count` draws by shares and by what corpora lack of earlier ones: whole draws first, then the largest rests.
/// What each lacks afterwards is below one draw, whatever the number of pools.
std::vector<std::int64_t> deal(std::int64_t count, const std::vector<double>& shares, std::vector<double>& owed) {
  std::vector<std::int64_t> dealt(shares.size(), 0);
  std::int64_t left = count;
  for (std::size_t c = 0; c < shares.size(); ++c) {
    owed[c] += shares[c] * static_cast<double>(count);
    if (shares[c] == 0) continue;
    dealt[c] = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(owed[c])), 0, left);
    left -= dealt[c];
  }
  for (; left > 0; --left) {
    std::size_t best = shares.size();
    const auto lacks = [&](std::size_t c) { return owed[c] - static_cast<double>(dealt[c]); };
    for (std::size_t c = 0; c < shares.size(); ++c) {
      if (shares[c] > 0 && (best == shares.size() || lacks(c) > lacks(best))) best = c;
    }
    ++dealt[best];
  }
  for (std::size_t c = 0; c < shares.size(); ++c) owed[c] -= static_cast<double>(dealt[c]);
  return dealt;
}

/// Spreads the draws of each corpus evenly over a pool.
class Mixer {
 public:
  explicit Mixer(const std::vector<std::int64_t>& counts)
      : counts_(counts), drawn_(counts.size(), 0), total_(std::accumulate(counts.begin(), counts.end(), 0.0)) {}
  std::size_t next() {
    ++draws_;
    std::size_t best = 0;
    double best_lag = -1e300;
    for (std::size_t c = 0; c < counts_.size(); ++c) {
      if (drawn_[c] == counts_[c]) continue;
      const double lag = static_cast<double>(counts_[c]) / total_ * draws_ - static_cast<double>(drawn_[c]);
      if (lag > best_lag) {
        best_lag = lag;
        best = c;
      }
    }
    ++drawn_[best];
    return best;
  }

 private:
  const std::vector<std::int64_t>& counts_;
  std::vector<std::int64_t> drawn_;
  double total_, draws_ = 0;
};

/// Whether the period has passed when a pool begins.
bool has_passed(const config::Period& period, const PoolBegin& at, std::int64_t pools) {
  switch (period.unit) {
    case config::Period::Unit::step:
      return static_cast<double>(at.steps) >= period.count;
    case config::Period::Unit::tgt_token:
      return static_cast<double>(at.tgt_tokens) >= period.count;
    case config::Period::Unit::epoch:
      return static_cast<double>(at.epoch) + static_cast<double>(at.pool) / static_cast<double>(pools) >= period.count;
  }
  return true;
}

void normalize(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

}  // namespace

std::vector<double> shares_of_draws(std::span<const DrawnCorpus> corpora, double temperature) {
  std::vector<double> shares;
  // Token share p ∝ weight·n^(1/T); a corpus is drawn in examples, so by p over their mean length.
  for (const DrawnCorpus& corpus : corpora)
    shares.push_back(corpus.size > 0 ? corpus.weight * std::pow(corpus.tgt_tokens, 1.0 / temperature) *
                                           static_cast<double>(corpus.size) / corpus.tgt_tokens
                                     : 0);
  if (std::ranges::all_of(corpora, [](const DrawnCorpus& corpus) { return corpus.size == 0; }))
    throw_error(Fault::data, "data.shards", "examples to train on", "none", "check the corpora and data.split");
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!std::isfinite(sum) || sum <= 0)
    throw_error(Fault::config, "data", "weights and a temperature that give each corpus a share",
                fmt::format("temperature {} and shares beyond the range of numbers", temperature),
                "correct data.temperature or the corpora's weights");
  normalize(shares);
  return shares;
}

MeanDraw mean_draw(std::span<const DrawnCorpus> corpora, std::span<const double> shares) {
  MeanDraw mean;
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    if (corpora[c].size == 0) continue;
    mean.src_tokens += shares[c] * corpora[c].src_tokens / static_cast<double>(corpora[c].size);
    mean.tgt_tokens += shares[c] * corpora[c].tgt_tokens / static_cast<double>(corpora[c].size);
  }
  return mean;
}

Sampler::Sampler(SamplerSettings settings, std::vector<DrawnCorpus> corpora)
    : settings_(settings),
      corpora_(std::move(corpora)),
      first_(1, 0),
      shares_(shares_of_draws(corpora_, settings.temperature)) {
  for (const DrawnCorpus& corpus : corpora_) first_.push_back(first_.back() + corpus.size);
  pools_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(size()) / std::max<std::int64_t>(1, settings_.pool));
}

std::vector<double> Sampler::shares_at(const PoolBegin& at) const {
  std::vector<double> shares = shares_;
  for (std::size_t c = 0; c < corpora_.size(); ++c) {
    const DrawnCorpus& corpus = corpora_[c];
    const bool is_drawn = has_passed(corpus.start, at, pools_) && !(corpus.end && has_passed(*corpus.end, at, pools_));
    if (!is_drawn) shares[c] = 0;
  }
  if (std::ranges::all_of(shares, [](double share) { return share == 0; }))
    throw_error(Fault::config, "data.corpora", "a corpus to train on at every time, by its start and end",
                fmt::format("none after {} steps, {} tgt_tokens and {} epochs", at.steps, at.tgt_tokens, at.epoch),
                "correct start and end of the corpora");
  normalize(shares);
  return shares;
}

PoolBegin Sampler::fitting(PoolBegin at) const {
  if (at.pool < 0 || at.pool >= pools_) {
    ++at.epoch;
    at.pool = 0;
  }
  if (at.drawn.size() != corpora_.size() || at.owed.size() != corpora_.size()) {
    at.drawn.clear();
    for (const double share : shares_) at.drawn.push_back(std::llround(share * static_cast<double>(size())) * at.epoch);
    at.owed.assign(corpora_.size(), 0);
  }
  return at;
}

Sampler::Pool Sampler::draw(const PoolBegin& begin) const {
  const PoolBegin at = fitting(begin);
  Pool pool{.begin = at, .draws = {}, .next = at};
  const auto border = [&](std::int64_t p) {
    return static_cast<std::int64_t>(static_cast<double>(size()) * static_cast<double>(p) /
                                     static_cast<double>(pools_));
  };
  const std::int64_t end = at.pool + 1 == pools_ ? static_cast<std::int64_t>(size()) : border(at.pool + 1);
  const std::vector<std::int64_t> counts = deal(end - border(at.pool), shares_at(at), pool.next.owed);

  struct Pass {  // through one corpus
    std::int64_t number = -1;
    Permutation order{1, 0, 0};
  };
  std::vector<Pass> passes(corpora_.size());
  Mixer mixer{counts};
  pool.draws.resize(static_cast<std::size_t>(end - border(at.pool)));
  for (Drawn& draw : pool.draws) {
    const std::size_t c = corpora_.size() == 1 ? 0 : mixer.next();
    const std::uint64_t corpus_size = corpora_[c].size;
    const auto drawn = static_cast<std::uint64_t>(pool.next.drawn[c]++);
    const auto number = static_cast<std::int64_t>(drawn / corpus_size);
    Pass& pass = passes[c];
    if (number != pass.number) {
      pass.number = number;
      pass.order = Permutation{corpus_size, settings_.seed, static_cast<std::uint64_t>(number) << 16U | c};
    }
    draw = {.example = first_[c] + pass.order(drawn % corpus_size),
            .pass = static_cast<std::uint32_t>(number),
            .corpus = static_cast<std::uint32_t>(c)};
  }
  ++pool.next.pool;
  if (pool.next.pool == pools_) {
    ++pool.next.epoch;
    pool.next.pool = 0;
  }
  return pool;
}

}  // namespace argosy::data
