#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.hpp"

/// Learning rate as a pure function of the step (first update s = 1). `lr` is the peak reached. translation.md §6 of the
/// specification gives every formula; fp64, cast once.
namespace argosy::optim {

enum class ScheduleStyle { linear_warmup, cosine, constant, inv_sqrt, wsd };
BOOST_DESCRIBE_ENUM(ScheduleStyle, linear_warmup, cosine, constant, inv_sqrt, wsd)

struct ScheduleConfig {
  ScheduleStyle style = ScheduleStyle::linear_warmup;
  double lr = 0;                            // no default: must be given
  double min_lr = 0;
  config::Period warmup{.count = 4000};
  config::Period length{.count = 0};        // no default: must be given
  std::optional<config::Period> decay_end;  // = length
  double cooldown = 0.2;                    // wsd
};
BOOST_DESCRIBE_STRUCT(ScheduleConfig, (), (style, lr, min_lr, warmup, length, decay_end, cooldown))

std::span<const config::KeyText> key_texts(const ScheduleConfig&);
void validate(const ScheduleConfig&, config::Problems&);

/// lr at position `s` (steps; or tgt_tokens, epochs when the config counts those).
[[nodiscard]] double learning_rate(const ScheduleConfig& config, double s);

}  // namespace argosy::optim
