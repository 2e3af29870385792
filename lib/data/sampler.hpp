#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.hpp"

/// Which examples a run draws, pool after pool: a pure function of the seed and of where a pool begins, without I/O,
/// MPI or threads. What is drawn is a pair, or a document of a language model. A pool is what is sorted together into
/// batches (batch_plan.hpp).
namespace argosy::data {

/// What can be drawn from a corpus.
struct DrawnCorpus {
  std::uint64_t size = 0;
  double src_tokens = 0, tgt_tokens = 0;  // of all
  double weight = 1.0;
  config::Period start{};               // drawn from here on
  std::optional<config::Period> end{};  // and up to here
};

/// Share of the draws that each corpus gets while all are drawn from: p ∝ weight · tgt_tokens^(1/temperature) of
/// tgt_tokens. Throws Error{data} when there is nothing to draw, Error{config} for shares beyond the range of numbers.
[[nodiscard]] std::vector<double> shares_of_draws(std::span<const DrawnCorpus> corpora, double temperature);

/// Of what is drawn by shares, on average.
struct MeanDraw {
  double src_tokens = 0, tgt_tokens = 0;
};
[[nodiscard]] MeanDraw mean_draw(std::span<const DrawnCorpus> corpora, std::span<const double> shares);

/// Where a pool begins. A checkpoint stores it.
struct PoolBegin {
  std::int64_t epoch = 0, pool = 0;        // pool within the epoch
  std::int64_t steps = 0, tgt_tokens = 0;  // of all pools before it
  std::vector<std::int64_t> drawn{};       // from each corpus before; empty: as the shares say for whole epochs
  std::vector<double> owed{};              // draws before that each corpus lacks of its share; empty: none
  bool operator==(const PoolBegin&) const = default;
};

/// `example` is numbered through all corpora; `pass` counts how often its corpus had been drawn as a whole before.
struct Drawn {
  std::uint64_t example = 0;
  std::uint32_t pass = 0, corpus = 0;
};

struct SamplerSettings {
  std::uint64_t seed = 1;
  std::int64_t pool = 100000;  // draws of a pool at least, except where an epoch has fewer
  double temperature = 1.0;
};

class Sampler {
 public:
  /// Throws as shares_of_draws().
  Sampler(SamplerSettings settings, std::vector<DrawnCorpus> corpora);

  /// A pool: its draws in order, and where the one after it begins, its steps and tgt_tokens not counted. Corpora
  /// are drawn from by their shares, inside one by a keyed permutation, new for each pass through it. Throws
  /// Error{config} when no corpus is to be drawn from at that time.
  struct Pool {
    PoolBegin begin;  // as fitting() has it
    std::vector<Drawn> draws;
    PoolBegin next;
  };
  [[nodiscard]] Pool draw(const PoolBegin& at) const;

  /// `at`, or the begin of its epoch or the next where it does not fit these corpora and pools.
  [[nodiscard]] PoolBegin fitting(PoolBegin at) const;
  /// Draws of an epoch: as many as can be drawn.
  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back(); }
  [[nodiscard]] std::int64_t pools_in_epoch() const noexcept { return pools_; }
  /// As shares_of_draws().
  [[nodiscard]] const std::vector<double>& shares() const noexcept { return shares_; }

 private:
  [[nodiscard]] std::vector<double> shares_at(const PoolBegin& at) const;

  SamplerSettings settings_;
  std::vector<DrawnCorpus> corpora_;
  std::vector<std::uint64_t> first_;  // number of each corpus's first example, and the total
  std::vector<double> shares_;
  std::int64_t pools_ = 1;
};

}  // namespace argosy::data
