#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Corpus scores of translations, equal to the last bit to sacreBLEU's defaults: BLEU over 13a tokens with exponential
/// smoothing, and chrF2 over characters without white space; ter.hpp has TER. Counts are integers: ranks add them with
/// an all-reduce over counts() before score() divides. `settings` is what sacreBLEU prints before a score, without its
/// version.
namespace argosy::decode {

/// The settings of a score as sacreBLEU's signature, which names the program that has computed it:
/// "BLEU|nrefs:1|…|version:argosy-0.1.0".
[[nodiscard]] std::string signature_of(std::string_view settings);

/// BLEU (Papineni et al. 2002; Post 2018 for the tokens and the settings).
class BleuCounts {
 public:
  static constexpr std::string_view settings = "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";

  void add(std::string_view hypothesis, std::string_view reference);
  /// 0..100; 0 when nothing matches.
  [[nodiscard]] double score() const;
  [[nodiscard]] std::span<std::int64_t> counts() noexcept { return counts_; }

 private:
  std::array<std::int64_t, 10>
      counts_{};  // matches of 1..4-grams, totals of 1..4-grams, hypothesis and reference tokens
};

/// chrF2 (Popović 2015): orders 1..6, β = 2.
class ChrfCounts {
 public:
  static constexpr std::string_view settings = "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no";

  void add(std::string_view hypothesis, std::string_view reference);
  [[nodiscard]] double score() const;  // 0..100
  [[nodiscard]] std::span<std::int64_t> counts() noexcept { return counts_; }

 private:
  std::array<std::int64_t, 18> counts_{};  // per order: in hypothesis, in reference, in both
};

}  // namespace argosy::decode
