#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <span>

#include "config/config.hpp"

/// The `telemetry` section.
namespace argosy::telemetry {

struct TelemetryConfig {
  config::Period log_interval{.count = 10};
  std::int64_t log_offset = 0;  // in the unit of log_interval
  bool tensorboard = false;
};
BOOST_DESCRIBE_STRUCT(TelemetryConfig, (), (log_interval, log_offset, tensorboard))

std::span<const config::KeyText> key_texts(const TelemetryConfig&);
void validate(const TelemetryConfig&, config::Problems&);

}  // namespace argosy::telemetry
