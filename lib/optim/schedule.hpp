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

enum class ScheduleStyle { linear_warmup, cosine, constant, inv_sqrt, wsd };
BOOST_DESCRIBE_ENUM(ScheduleStyle, linear_warmup, cosine, constant, inv_sqrt, wsd)

struct ScheduleConfig {
  std::optional<ScheduleStyle> style;  // language model cosine, translation linear_warmup
  double lr = 0;                       // required
  double min_lr = 0;
  std::optional<config::Period> warmup;     // language model 1000, translation 4000
  config::Period length{.count = 0};        // required for training
  std::optional<config::Period> decay_end;  // = length
  double cooldown = 0.2;                    // wsd
};
BOOST_DESCRIBE_STRUCT(ScheduleConfig, (), (style, lr, min_lr, warmup, length, decay_end, cooldown))

std::span<const config::KeyText> key_texts(const ScheduleConfig&);
void validate(const ScheduleConfig&, config::Problems&);

/// A schedule whose numbers are all decided, in one unit: steps, tgt_tokens or epochs.
struct Schedule {
  ScheduleStyle style = ScheduleStyle::linear_warmup;
  config::Period::Unit unit = config::Period::Unit::step;
  double lr = 0, min_lr = 0, warmup = 0, decay_end = 0, length = 0, cooldown = 0.2;
};

/// Fills in the defaults for the kind of model.
[[nodiscard]] Schedule resolve(const ScheduleConfig& config, bool language_model);

/// Learning rate at position `s` in the schedule's unit, including the current update. With W = min(1, s/w),
/// x = (s-w)/(D-w) in [0, 1], C = D·(1 - cooldown), u = (s-C)/(D-C):
/// constant lr·W · linear_warmup m + (lr-m)(1-x) · cosine m + (lr-m)(1 + cos πx)/2 · inv_sqrt max(m, lr·√(w/s)) ·
/// wsd lr until C, then m + (lr-m)(1 - √u) (arXiv:2405.18392); all lr·W up to w.
[[nodiscard]] double learning_rate(const Schedule& schedule, double s);

}  // namespace argosy::optim
