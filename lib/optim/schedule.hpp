#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.hpp"

/// The learning rate as a pure function of the position in the run (first update: s = 1). `lr` is the peak. Computed in
/// fp64 and cast once. Torch-free.
namespace argosy::optim {

enum class ScheduleStyle {
  linear_warmup,
  cosine,
  constant,
  inv_sqrt,
  wsd,
  exponential,
  noam,
  rsqrt,
  exponential_decay,
};
BOOST_DESCRIBE_ENUM(ScheduleStyle, linear_warmup, cosine, constant, inv_sqrt, wsd, exponential, noam, rsqrt,
                    exponential_decay)
enum class CooldownShape { one_minus_sqrt, linear, cosine };
BOOST_DESCRIBE_ENUM(CooldownShape, one_minus_sqrt, linear, cosine)

struct ScheduleConfig {
  std::optional<ScheduleStyle> style;       // language model cosine, translation linear_warmup
  double lr = 0;                            // required, except where the style or the optimizer decides it
  double min_lr = 0;                        // linear_warmup, cosine, inv_sqrt, wsd, exponential
  std::optional<config::Period> warmup;     // language model 1000, translation 4000; not exponential_decay
  config::Period length{.count = 0};        // required for training
  std::optional<config::Period> decay_end;  // = length; linear_warmup, cosine, wsd
  double cooldown = 0.2;                    // wsd
  CooldownShape cooldown_shape = CooldownShape::one_minus_sqrt;  // wsd
  double gamma = 0;                                              // exponential, exponential_decay
  std::optional<config::Period> decay_period;                    // exponential
  double noam_scale = 0;                                         // noam
  double rsqrt_scale = 0;                                        // rsqrt
  std::optional<config::Period> start, period;                   // exponential_decay
};
BOOST_DESCRIBE_STRUCT(ScheduleConfig, (),
                      (style, lr, min_lr, warmup, length, decay_end, cooldown, cooldown_shape, gamma, decay_period,
                       noam_scale, rsqrt_scale, start, period))

std::span<const config::KeyText> key_texts(const ScheduleConfig&);
void validate(const ScheduleConfig&, config::Problems&);

/// Whether `schedule.lr` is a number that the user chooses: noam and rsqrt have a scale instead.
[[nodiscard]] bool has_lr(const ScheduleConfig& config);

/// A schedule whose numbers are all decided, in one unit: steps, tgt_tokens or epochs.
struct Schedule {
  ScheduleStyle style = ScheduleStyle::linear_warmup;
  config::Period::Unit unit = config::Period::Unit::step;
  double lr = 0;  // the peak
  double min_lr = 0, warmup = 0, decay_end = 0, length = 0, cooldown = 0.2;
  CooldownShape cooldown_shape = CooldownShape::one_minus_sqrt;
  double gamma = 1, decay_period = 1;
  double start = 0, period = 1;
  /// Whether the rate rises from near 0 to its peak.
  [[nodiscard]] bool rises() const {
    return warmup > 0 && style != ScheduleStyle::rsqrt && style != ScheduleStyle::exponential_decay;
  }
};

/// Fills in the defaults for the kind of model. width: of the model, for noam.
[[nodiscard]] Schedule resolve(const ScheduleConfig& config, bool language_model, std::int64_t width);

/// The relative step of Adafactor (arXiv:1804.04235) at update s: min(10^-2, s^-½); with warmup_init
/// min(10^-6·s, s^-½). length: of the run.
[[nodiscard]] Schedule relative_steps(bool warmup_init, double length);

/// A usual peak for AdamW and a model whose blocks have so many parameters: those of GPT-3 (arXiv:2005.14165, table
/// 2.1) lie near 6·10^-4·(85·10^6/parameters)^0.36; at most 2·10^-3.
[[nodiscard]] double usual_lr(double parameters);

/// Learning rate at position `s` in the schedule's unit, including the current update. With W = min(1, s/w),
/// x = (s-w)/(D-w) in [0, 1], C = D·(1 - cooldown), u = (s-C)/(D-C):
/// constant lr·W · linear_warmup m + (lr-m)(1-x) · cosine m + (lr-m)(1 + cos πx)/2 · inv_sqrt max(m, lr·√(w/s)) ·
/// exponential max(m, lr·γ^((s-w)/decay_period)) · wsd lr until C, then m + (lr-m)·f with f = 1 - √u
/// (arXiv:2405.18392), 1 - u or (1 + cos πu)/2; all lr·W up to w. noam is inv_sqrt with lr = K·(d·w)^-½. rsqrt is
/// K/√max(s, w). exponential_decay is lr·γ^⌊max(0, s - start + period)/period⌋. The last two do not rise.
[[nodiscard]] double learning_rate(const Schedule& schedule, double s);

}  // namespace argosy::optim
