#include "data/transforms/subword.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/subword_sampler.hpp"
#include "data/tokenizer.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Subword&) {
  static constexpr config::KeyText texts[] = {
      {"alpha",
       "subword: 0: the best segmentation; above 0, training draws one: of a unigram tokenizer with p proportional to "
       "exp(alpha x score), of BPE by passing over each merge with this probability"},
      {"nbest", "subword: number of best segmentations that a unigram tokenizer draws from; -1: all"},
      {"growth",
       "subword: how much longer than the best segmentation a drawn one may be; 0.25: by a quarter; null: as long as "
       "hardly any is, by mean and deviation of what each piece becomes"},
  };
  return texts;
}

void validate(const Subword& config, config::Problems& problems) {
  constexpr double most_alpha = 100;
  constexpr std::int64_t most_best = 64;
  require_in(problems, "/alpha", config.alpha, 0., most_alpha);
  problems.require(config.nbest == -1 || (config.nbest >= 2 && config.nbest <= most_best), "/nbest",
                   fmt::format("-1 (all), or 2 to {}", most_best), fmt::format("{}", config.nbest));
  if (config.growth) require_in(problems, "/growth", *config.growth, 0., most_growth);
}

namespace {

class Segmentation final : public Transform {
 public:
  Segmentation(const Subword& config, const Tokenizer& tokenizer) : config_(config), tokenizer_(tokenizer) {
    if (config.alpha == 0) return;
    for (const Side side : {Side::source, Side::target}) {
      if (side == Side::target && !tokenizer.is_by_side()) continue;
      const SubwordSampler& sampler = samplers_.emplace_back(
          tokenizer.side(side), tokenizer::Sampling{.alpha = config.alpha, .best = config.nbest});
      if (sampler.is_bpe()) require_for_bpe(config);
    }
  }

  static void require_for_bpe(const Subword& config) {
    const auto refuse = [](std::string wanted, std::string got, std::string fix) {
      throw_error(Fault::config, "the transform subword", std::move(wanted), std::move(got), std::move(fix));
    };
    if (config.alpha > 1)
      refuse("alpha of 0 to 1, since the tokenizer is BPE", fmt::format("{}", config.alpha), "0.1 is usual");
    if (config.nbest != -1)
      refuse("nbest -1, since BPE does not rank segmentations", fmt::format("{}", config.nbest), "remove nbest");
  }

  [[nodiscard]] std::string_view type() const override { return Subword::type; }
  [[nodiscard]] std::string recipe() const override {
    if (!is_random()) return "";  // what every corpus has
    return fmt::format("subword {} {} {}", config_.alpha, config_.nbest, text_of_growth(config_.growth));
  }
  [[nodiscard]] Stage stage() const override { return Subword::stage; }
  [[nodiscard]] bool is_random() const override { return !samplers_.empty(); }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example& plain) const override {
    if (!is_random()) return lengths;
    if (config_.growth) return grown(lengths, *config_.growth);
    lengths = grown(lengths, growth_of(plain.source, Side::source), Sides::source);
    return grown(lengths, growth_of(plain.target, Side::target), Sides::target);
  }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    if (!example.source_text.empty()) example.source = encode(example.source_text, Side::source, random);
    if (example.loss.empty())
      example.target = encode(example.target_text, Side::target, random);
    else
      tokenize_runs(example, random);
    return true;
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side side, RandomStream* random) const {
    if (samplers_.empty() || random == nullptr) return tokenizer_.encode(text, side);
    return sampler_of(side).encode(text, *random);
  }

  [[nodiscard]] const SubwordSampler& sampler_of(Side side) const {
    return side == Side::source ? samplers_.front() : samplers_.back();
  }

  /// How much longer than the best segmentation hardly any drawn one is: by what the texts of its pieces become.
  [[nodiscard]] double growth_of(const std::vector<std::int32_t>& best, Side side) const {
    constexpr double deviations = 3;
    double mean = 0, variance = 0;
    if (best.empty()) return 0;
    // The best of a whole line differ at few places, each of which doubles their number and adds a piece or two.
    if (config_.nbest > 0)
      return 2 * std::ceil(std::log2(static_cast<double>(config_.nbest))) / static_cast<double>(best.size());
    for (const std::int32_t id : best) {
      const SubwordSampler::Spread spread = sampler_of(side).spread(id);
      mean += spread.mean;
      variance += spread.variance;
    }
    const double most = std::ceil(mean + deviations * std::sqrt(variance));
    return std::max(0., most / static_cast<double>(best.size()) - 1);
  }

  /// Each run of text that bears loss, or bears none, is tokenized alone, so that no piece does both.
  void tokenize_runs(Example& example, RandomStream* random) const {
    const std::string_view text = example.target_text;
    const std::vector<bool> bears = std::exchange(example.loss, {});
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      while (end < text.size() && bears[end] == bears[begin]) ++end;
      const std::vector<std::int32_t> ids = encode(text.substr(begin, end - begin), Side::target, random);
      example.target.insert(example.target.end(), ids.begin(), ids.end());
      example.loss.insert(example.loss.end(), ids.size(), bears[begin]);
    }
  }

  Subword config_;
  const Tokenizer& tokenizer_;
  std::vector<SubwordSampler> samplers_;  // none; one; or one for each side
};

}  // namespace

std::unique_ptr<const Transform> Subword::make(const Materials& materials) const {
  return std::make_unique<Segmentation>(*this, materials.tokenizer);
}

}  // namespace argosy::data
