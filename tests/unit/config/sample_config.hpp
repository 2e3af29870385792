#pragma once

#include <map>

#include "config/describe.hpp"

/// A small configuration that uses every kind of member a described struct may have.
namespace argosy::test {

enum class Style { cosine, linear_warmup, constant };
BOOST_DESCRIBE_ENUM(Style, cosine, linear_warmup, constant)

struct ScheduleConfig {
  Style style = Style::cosine;
  double lr = 1e-3;
  config::Period warmup{.count = 4000};
  std::optional<config::Period> length;
};
BOOST_DESCRIBE_STRUCT(ScheduleConfig, (), (style, lr, warmup, length))

inline std::span<const config::KeyText> key_texts(const ScheduleConfig&) {
  static constexpr config::KeyText texts[] = {{"style", "shape of the curve after the warm-up"},
                                              {"lr", "peak learning rate"},
                                              {"warmup", "period until the peak"}};  // length has none on purpose
  return texts;
}

inline void validate(const ScheduleConfig& schedule, config::Problems& problems) {
  problems.require(schedule.lr > 0, "/lr", "a learning rate above 0", fmt::format("{}", schedule.lr));
}

struct CorpusConfig {
  std::string name;
  std::vector<std::string> languages;
  float weight = 1;
  config::StringOrList source{};
};
BOOST_DESCRIBE_STRUCT(CorpusConfig, (), (name, languages, weight, source))

inline void validate(const CorpusConfig& corpus, config::Problems& problems) {
  problems.require(!corpus.name.empty(), "/name", "a name", "none");
}

struct OptimizerConfig {
  std::optional<double> max_grad_norm;
  double beta1 = 0.9;
  config::OrAuto<std::int64_t> steps;
};
BOOST_DESCRIBE_STRUCT(OptimizerConfig, (), (max_grad_norm, beta1, steps))

struct SampleConfig {
  Path run_dir = "runs/x";
  bool dry = false;
  std::uint16_t workers = 2;
  std::int64_t seed = 1;
  ScheduleConfig schedule;
  OptimizerConfig optimizer;
  std::vector<CorpusConfig> corpora;
  std::map<std::string, double> shares;
};
BOOST_DESCRIBE_STRUCT(SampleConfig, (), (run_dir, dry, workers, seed, schedule, optimizer, corpora, shares))

}  // namespace argosy::test
