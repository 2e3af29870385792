#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// Corpus scores of translations, equal to sacreBLEU's defaults: BLEU over 13a tokens with exponential smoothing, and
/// chrF2 over characters without white space. Counts are integers: ranks add them with an all-reduce over counts()
/// before score() divides.
namespace argosy::decode {

/// BLEU (Papineni et al. 2002; Post 2018 for the tokens and signature
/// BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp).
class BleuCounts {
 public:
  void add(std::string_view hypothesis, std::string_view reference);
  /// 0..100; 0 when nothing matches.
  [[nodiscard]] double score() const;
  [[nodiscard]] std::span<std::int64_t> counts() noexcept { return counts_; }

 private:
  std::array<std::int64_t, 10>
      counts_{};  // matches of 1..4-grams, totals of 1..4-grams, hypothesis and reference tokens
};

/// chrF2 (Popović 2015): orders 1..6, β = 2, signature chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no.
class ChrfCounts {
 public:
  void add(std::string_view hypothesis, std::string_view reference);
  [[nodiscard]] double score() const;  // 0..100
  [[nodiscard]] std::span<std::int64_t> counts() noexcept { return counts_; }

 private:
  std::array<std::int64_t, 18> counts_{};  // per order: in hypothesis, in reference, in both
};

}  // namespace argosy::decode
