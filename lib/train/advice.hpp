#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "decode/repetition.hpp"

/// Advice that follows from what a run has seen. Values only, no messages of its own.
namespace argosy::train {

/// One validation, and what the run did before it.
struct ValidationFacts {
  std::string set{};
  double loss = 0, best_loss = 0;
  std::int64_t best_step = 0;
  double nll = 0;        // of the training steps since the last validation, unsmoothed; NaN: there were none
  std::string corpus{};  // the one that has been read most often, and how often
  double passes = 0;
  bool ends_early = false;  // the run has validation.early_stop
};

/// What follows from validations of the first set. Each sentence is given once by a run, and only when what it says has
/// held for several in a row. Checkpoints store the counts: starts may be shorter than the time that advice takes.
class ValidationAdvice {
 public:
  /// By sentence: for how many validations in a row it still has to hold; 0: it was given.
  using Left = std::array<std::int64_t, 5>;

  explicit ValidationAdvice(const Left& left = {for_long, for_long, twice, twice, twice});
  [[nodiscard]] Left left() const;
  /// Sentences about losses: training loss far below that of the set for long, while a corpus is read again and again;
  /// the set's loss worse than its best for long.
  [[nodiscard]] std::vector<std::string> on_losses(const ValidationFacts& facts);
  /// Sentences about the translations of a set, unless its references look alike: mostly the same line, mostly one
  /// piece, repetitions.
  [[nodiscard]] std::vector<std::string> on_translations(const std::string& set, const decode::Repetition& translations,
                                                         const decode::Repetition& references);

 private:
  /// Says once that something has held `times` times in a row.
  class Once {
   public:
    Once(std::int64_t times, std::int64_t left) : left_(left), times_(times) {}
    bool operator()(bool holds) {
      if (left_ == 0) return false;
      left_ = holds ? left_ - 1 : times_;
      return left_ == 0;
    }
    [[nodiscard]] std::int64_t left() const { return left_; }

   private:
    std::int64_t left_, times_;
  };
  static constexpr std::int64_t for_long = 5, twice = 2;  // the first translations of any run are poor
  Once learns_by_heart_, worse_, alike_, one_piece_, repeats_;
};

/// The sentence for a run in bf16 on a CPU whose products are slower in it than in fp32; else empty. By the rates of
/// both.
[[nodiscard]] std::string precision_advice(double fp32_per_s, double bf16_per_s);

/// What becomes of examples that transforms would make longer than planned (data::Pipeline::finish). Of this rank's, in
/// this start.
class NoiseAdvice {
 public:
  /// The sentence, when more than 1 % of at least 1,000 examples were trained without noise; else empty.
  [[nodiscard]] std::string on_batches(const std::vector<data::Batch>& batches);
  [[nodiscard]] double share_without() const noexcept {
    return examples_ > 0 ? static_cast<double>(without_) / static_cast<double>(examples_) : 0;
  }

 private:
  std::int64_t examples_ = 0, without_ = 0;
  bool given_ = false;
};

}  // namespace argosy::train
