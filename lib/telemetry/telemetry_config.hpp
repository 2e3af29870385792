#pragma once

#include <fmt/format.h>

#include <boost/describe.hpp>
#include <cstdint>
#include <span>

#include "config/config.hpp"

/// The `telemetry` section of a configuration.
namespace argosy::telemetry {

struct TelemetryConfig {
  config::Period log_interval{.count = 10};
  std::int64_t log_offset = 0;  // in the unit of log_interval
  bool tensorboard = false;
};
BOOST_DESCRIBE_STRUCT(TelemetryConfig, (), (log_interval, log_offset, tensorboard))

inline std::span<const config::KeyText> key_texts(const TelemetryConfig&) {
  static constexpr config::KeyText texts[] = {
      {"log_interval", "period between log lines, and between lines of metrics.jsonl; rates in them are means over it"},
      {"log_offset", "shifts the log lines by this many steps, tgt_tokens or epochs (the unit of log_interval)"},
      {"tensorboard", "also write TensorBoard event files to run_dir/tensorboard"}};
  return texts;
}

inline void validate(const TelemetryConfig& config, config::Problems& problems) {
  problems.require(config.log_interval.count > 0, "/log_interval", "a period above 0", config.log_interval.text());
  problems.require(config.log_offset >= 0, "/log_offset", "0 or more", fmt::format("{}", config.log_offset));
}

}  // namespace argosy::telemetry
