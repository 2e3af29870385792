#include "optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace argosy::optim {

std::span<const config::KeyText> key_texts(const ScheduleConfig&) {
  static constexpr config::KeyText texts[] = {
      {"style",
       "linear_warmup (default of encoder_decoder), cosine (default of decoder), constant, inv_sqrt or wsd; all rise "
       "linearly during the warm-up"},
      {"lr", "peak learning rate; required"},
      {"min_lr", "learning rate from decay_end on"},
      {"warmup", "period of the linear rise; default: 1000 steps for a decoder, 4000 for an encoder_decoder"},
      {"length", "when training ends: steps, or a period in tgt_tokens (\"2Gt\") or epochs (\"3e\"); required"},
      {"decay_end", "when the decay reaches min_lr, counted from the start; default: length"},
      {"cooldown", "wsd: share of the schedule, at its end, in which the rate decays as 1 - √progress"}};
  return texts;
}

void validate(const ScheduleConfig& config, config::Problems& problems) {
  const config::Period warmup = config.warmup.value_or(config::Period{.count = 0, .unit = config.length.unit});
  const config::Period decay_end = config.decay_end.value_or(config.length);
  problems.require(config.lr >= 0, "/lr", "a number above 0", config.lr);
  problems.require(config.min_lr >= 0 && (config.min_lr <= config.lr || config.lr <= 0), "/min_lr",
                   "a number from 0 to schedule.lr", config.min_lr);
  const bool same_unit = warmup.unit == config.length.unit || warmup.count == 0;
  constexpr std::array units{"steps", "tgt_tokens", "epochs"};  // by Period::Unit
  const std::string unit = fmt::format("in {}, like schedule.length ({})",
                                       units.at(static_cast<std::size_t>(config.length.unit)), config.length.text());
  problems.require(same_unit, "/warmup", unit, warmup.text());
  problems.require(decay_end.unit == config.length.unit, "/decay_end", unit, decay_end.text());
  problems.require(!same_unit || decay_end.unit != config.length.unit || config.style == ScheduleStyle::constant ||
                       config.style == ScheduleStyle::inv_sqrt || decay_end.count > warmup.count ||
                       config.length.count == 0,
                   config.decay_end ? "/decay_end" : "/length",
                   fmt::format("greater than schedule.warmup ({})", warmup.text()), decay_end.text());
  const bool has_warmup = config.warmup ? warmup.count > 0 : config.length.unit == config::Period::Unit::step;
  problems.require(config.style != ScheduleStyle::inv_sqrt || has_warmup, "/warmup",
                   "above 0 with inv_sqrt, whose rate falls from the end of the warm-up", warmup.text());
  problems.require(config.cooldown > 0 && config.cooldown <= 1, "/cooldown", "a share above 0, at most 1",
                   config.cooldown);
}

Schedule resolve(const ScheduleConfig& config, bool language_model) {
  Schedule schedule;
  schedule.style = config.style.value_or(language_model ? ScheduleStyle::cosine : ScheduleStyle::linear_warmup);
  schedule.unit = config.length.unit;
  schedule.lr = config.lr;
  schedule.min_lr = config.min_lr;
  schedule.length = config.length.count;
  schedule.decay_end = config.decay_end.value_or(config.length).count;
  // A default in steps says nothing about tgt_tokens or epochs: there a run has no warm-up unless it asks for one.
  const double usual = schedule.unit == config::Period::Unit::step ? (language_model ? 1000 : 4000) : 0;
  schedule.warmup = config.warmup ? config.warmup->count : std::min(usual, schedule.decay_end / 2);
  schedule.cooldown = config.cooldown;
  return schedule;
}

double learning_rate(const Schedule& schedule, double s) {
  const double lr = schedule.lr, min_lr = schedule.min_lr, w = schedule.warmup, d = schedule.decay_end;
  if (s <= w) return lr * s / w;
  const double x = d > w ? std::clamp((s - w) / (d - w), 0.0, 1.0) : 1.0;
  switch (schedule.style) {
    case ScheduleStyle::constant:
      return lr;
    case ScheduleStyle::linear_warmup:
      return min_lr + (lr - min_lr) * (1 - x);
    case ScheduleStyle::cosine:
      return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case ScheduleStyle::inv_sqrt:
      return std::max(min_lr, lr * std::sqrt(w / s));
    case ScheduleStyle::wsd: {
      const double c = d - schedule.cooldown * d;
      const double u = std::clamp((s - c) / (d - c), 0.0, 1.0);
      return min_lr + (lr - min_lr) * (1 - std::sqrt(u));
    }
  }
  return lr;
}

}  // namespace argosy::optim
