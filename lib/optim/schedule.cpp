#include "optim/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

namespace argosy::optim {

namespace {

using Style = ScheduleStyle;

/// A key that only some styles have. `given`: it is not its default.
struct StyleKey {
  const char* key;
  bool given;
  std::vector<Style> styles;
};

std::vector<StyleKey> style_keys(const ScheduleConfig& config) {
  const ScheduleConfig none;
  return {{"lr",
           config.lr != none.lr,
           {Style::linear_warmup, Style::cosine, Style::constant, Style::inv_sqrt, Style::wsd, Style::exponential,
            Style::exponential_decay}},
          {"min_lr",
           config.min_lr != none.min_lr,
           {Style::linear_warmup, Style::cosine, Style::inv_sqrt, Style::wsd, Style::exponential}},
          {"warmup",
           config.warmup.has_value(),
           {Style::linear_warmup, Style::cosine, Style::constant, Style::inv_sqrt, Style::wsd, Style::exponential,
            Style::noam, Style::rsqrt}},
          {"decay_end", config.decay_end.has_value(), {Style::linear_warmup, Style::cosine, Style::wsd}},
          {"cooldown", config.cooldown != none.cooldown, {Style::wsd}},
          {"cooldown_shape", config.cooldown_shape != none.cooldown_shape, {Style::wsd}},
          {"gamma", config.gamma != none.gamma, {Style::exponential, Style::exponential_decay}},
          {"decay_period", config.decay_period.has_value(), {Style::exponential}},
          {"noam_scale", config.noam_scale != none.noam_scale, {Style::noam}},
          {"rsqrt_scale", config.rsqrt_scale != none.rsqrt_scale, {Style::rsqrt}},
          {"start", config.start.has_value(), {Style::exponential_decay}},
          {"period", config.period.has_value(), {Style::exponential_decay}}};
}

bool contains(const std::vector<Style>& styles, Style style) {
  return std::find(styles.begin(), styles.end(), style) != styles.end();
}

std::string name_of(Style style) { return boost::describe::enum_to_string(style, ""); }

/// Keys of other styles, and missing ones of this style. Without a style it is linear_warmup or cosine, whose keys are
/// the same.
void require_keys_of_style(const ScheduleConfig& config, config::Problems& problems) {
  const Style style = config.style.value_or(Style::linear_warmup);
  for (const auto& [key, given, styles] : style_keys(config)) {
    std::vector<std::string> names;
    names.reserve(styles.size());
    for (const Style each : styles) names.push_back(name_of(each));
    const std::string pointer = fmt::format("/{}", key);
    problems.require(!given || contains(styles, style), pointer,
                     fmt::format("absent unless schedule.style is {}", fmt::join(names, " or ")), "a value");
    const bool is_optional = contains(styles, Style::linear_warmup) || std::string_view(key).starts_with("cooldown");
    problems.require(given || is_optional || !contains(styles, style), pointer,
                     fmt::format("given with schedule.style {}", name_of(style)), "none");
  }
}

void require_one_unit(const ScheduleConfig& config, config::Problems& problems) {
  constexpr std::array units{"steps", "tgt_tokens", "epochs"};  // by Period::Unit
  const std::string unit = fmt::format("in {}, like schedule.length ({})",
                                       units.at(static_cast<std::size_t>(config.length.unit)), config.length.text());
  for (const auto& [pointer, period] : {std::pair{"/warmup", config.warmup},
                                        {"/decay_end", config.decay_end},
                                        {"/decay_period", config.decay_period},
                                        {"/start", config.start},
                                        {"/period", config.period}})
    problems.require(!period || period->unit == config.length.unit || period->count == 0, pointer, unit,
                     period.value_or(config::Period{}).text());
}

}  // namespace

std::span<const config::KeyText> key_texts(const ScheduleConfig&) {
  static constexpr config::KeyText texts[] = {
      {"style",
       "linear_warmup (default of encoder_decoder), cosine (default of decoder), constant, inv_sqrt, wsd, exponential "
       "or noam, which rise linearly during the warm-up; rsqrt or exponential_decay, which begin at their peak"},
      {"lr", "peak learning rate; required, except with style noam or rsqrt and with optimizer.relative_step"},
      {"min_lr", "learning rate from decay_end on; with inv_sqrt and exponential the smallest"},
      {"warmup",
       "period of the linear rise, with rsqrt of the constant rate before the decay; default: 1000 steps for a "
       "decoder, "
       "4000 for an encoder_decoder"},
      {"length", "when training ends: steps, or a period in tgt_tokens (\"2Gt\") or epochs (\"3e\"); required"},
      {"decay_end", "when the decay reaches min_lr, counted from the start; default: length"},
      {"cooldown", "wsd: share of the schedule, at its end, in which the rate decays"},
      {"cooldown_shape", "wsd: one_minus_sqrt (1 - √progress), linear or cosine"},
      {"gamma", "exponential, exponential_decay: factor of the rate for each decay_period or period"},
      {"decay_period", "exponential: period in which the rate falls to gamma times what it was"},
      {"noam_scale", "noam: the rate is this times width^-½ · min(s^-½, s·warmup^-1.5) at step s"},
      {"rsqrt_scale", "rsqrt: the rate is this divided by the root of the step, at least of warmup"},
      {"start", "exponential_decay: when the rate falls for the first time"},
      {"period", "exponential_decay: between two falls of the rate"}};
  return texts;
}

void validate(const ScheduleConfig& config, config::Problems& problems) {
  require_keys_of_style(config, problems);
  require_one_unit(config, problems);
  const Style style = config.style.value_or(Style::linear_warmup);
  const config::Period warmup = config.warmup.value_or(config::Period{.count = 0, .unit = config.length.unit});
  const config::Period decay_end = config.decay_end.value_or(config.length);
  problems.require(config.lr >= 0, "/lr", "a number above 0", config.lr);
  problems.require(config.min_lr >= 0 && (config.min_lr <= config.lr || config.lr <= 0), "/min_lr",
                   "a number from 0 to schedule.lr", config.min_lr);
  const std::string above_warmup = fmt::format("greater than schedule.warmup ({})", warmup.text());
  const bool has_end = style == Style::linear_warmup || style == Style::cosine || style == Style::wsd;
  problems.require(config.length.count == 0 || config.length.unit != warmup.unit ||
                       config.length.count > warmup.count || (!has_end && config.length.count == warmup.count),
                   "/length", has_end ? above_warmup : fmt::format("at least schedule.warmup ({})", warmup.text()),
                   config.length.text());
  problems.require(!config.decay_end || decay_end.unit != warmup.unit || decay_end.count > warmup.count, "/decay_end",
                   above_warmup, decay_end.text());
  const bool has_warmup = config.warmup ? warmup.count > 0 : config.length.unit == config::Period::Unit::step;
  const bool falls_from_warmup = style == Style::inv_sqrt || style == Style::noam || style == Style::rsqrt;
  problems.require(!falls_from_warmup || has_warmup, "/warmup",
                   fmt::format("above 0 with {}, whose rate falls from the end of the warm-up", name_of(style)),
                   warmup.text());
  problems.require(config.cooldown > 0 && config.cooldown <= 1, "/cooldown", "a share above 0, at most 1",
                   config.cooldown);
  const double plateau = decay_end.count - config.cooldown * decay_end.count;
  problems.require(style != Style::wsd || !config.warmup || decay_end.count == 0 || decay_end.unit != warmup.unit ||
                       warmup.count <= plateau,
                   "/warmup", fmt::format("at most {:g}, where the cool-down of wsd begins", plateau), warmup.text(),
                   "lower it, or lower schedule.cooldown");
  problems.require(config.gamma >= 0 && config.gamma <= 1, "/gamma", "a factor above 0, at most 1", config.gamma);
  problems.require(config.noam_scale >= 0, "/noam_scale", "a number above 0", config.noam_scale);
  problems.require(config.rsqrt_scale >= 0, "/rsqrt_scale", "a number above 0", config.rsqrt_scale);
  for (const auto& [pointer, period] : {std::pair{"/decay_period", config.decay_period}, {"/period", config.period}})
    problems.require(!period || period->count > 0, pointer, "a period above 0",
                     period.value_or(config::Period{}).text());
}

bool has_lr(const ScheduleConfig& config) { return config.style != Style::noam && config.style != Style::rsqrt; }

Schedule resolve(const ScheduleConfig& config, bool language_model, std::int64_t width) {
  Schedule schedule;
  schedule.style = config.style.value_or(language_model ? Style::cosine : Style::linear_warmup);
  schedule.unit = config.length.unit;
  schedule.lr = config.lr;
  schedule.min_lr = config.min_lr;
  schedule.length = config.length.count;
  schedule.decay_end = config.decay_end.value_or(config.length).count;
  // A default in steps says nothing about tgt_tokens or epochs: there a run has no warm-up unless it asks for one.
  const double usual = schedule.unit == config::Period::Unit::step ? (language_model ? 1000 : 4000) : 0;
  schedule.cooldown = config.cooldown;
  const double cooldown = schedule.style == Style::wsd ? config.cooldown * schedule.decay_end : 0;
  schedule.warmup =
      config.warmup ? config.warmup->count : std::min({usual, schedule.decay_end / 2, schedule.decay_end - cooldown});
  schedule.cooldown_shape = config.cooldown_shape;
  schedule.gamma = config.gamma;
  if (config.decay_period) schedule.decay_period = config.decay_period->count;
  if (config.start) schedule.start = config.start->count;
  if (config.period) schedule.period = config.period->count;
  if (schedule.style == Style::exponential_decay) schedule.warmup = 0;
  if (schedule.style == Style::noam)
    schedule.lr = config.noam_scale / std::sqrt(static_cast<double>(width) * schedule.warmup);
  if (schedule.style == Style::rsqrt) schedule.lr = config.rsqrt_scale / std::sqrt(schedule.warmup);
  return schedule;
}

Schedule relative_steps(bool warmup_init, double length) {
  constexpr double meeting = 10000;  // where both terms of the minimum are 10^-2
  return {.style = warmup_init ? Style::inv_sqrt : Style::rsqrt,
          .lr = 1e-2,
          .warmup = meeting,
          .decay_end = length,
          .length = length};
}

double usual_lr(double parameters) { return std::min(2e-3, 6e-4 * std::pow(85e6 / parameters, 0.36)); }

double learning_rate(const Schedule& schedule, double s) {
  const double lr = schedule.lr, min_lr = schedule.min_lr, w = schedule.warmup, d = schedule.decay_end;
  if (s <= w) return schedule.rises() ? lr * s / w : lr;
  const double x = d > w ? std::clamp((s - w) / (d - w), 0.0, 1.0) : 1.0;
  const auto between = [&](double share) { return min_lr + (lr - min_lr) * share; };
  switch (schedule.style) {
    case Style::constant:
      return lr;
    case Style::linear_warmup:
      return between(1 - x);
    case Style::cosine:
      return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case Style::inv_sqrt:
    case Style::noam:
    case Style::rsqrt:
      return std::max(min_lr, lr * std::sqrt(w / s));
    case Style::exponential:
      return std::max(min_lr, lr * std::pow(schedule.gamma, (s - w) / schedule.decay_period));
    case Style::exponential_decay:
      return lr * std::pow(schedule.gamma,
                           std::floor(std::max(0.0, s - schedule.start + schedule.period) / schedule.period));
    case Style::wsd: {
      const double c = d - schedule.cooldown * d;
      const double u = std::clamp((s - c) / (d - c), 0.0, 1.0);
      switch (schedule.cooldown_shape) {
        case CooldownShape::one_minus_sqrt:
          return between(1 - std::sqrt(u));
        case CooldownShape::linear:
          return between(1 - u);
        case CooldownShape::cosine:
          return between((1 + std::cos(std::numbers::pi * u)) / 2);
      }
    }
  }
  return lr;
}

}  // namespace argosy::optim
