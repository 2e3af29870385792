#pragma once

#include <fmt/format.h>

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.hpp"

/// The `telemetry` section of a configuration.
namespace argosy::telemetry {

/// off: nothing is written; offline: into a folder that `wandb sync` uploads; online: the same, and the job script
/// (jobs/lib.sh) calls `wandb sync`.
enum class WandbMode { off, offline, online };
BOOST_DESCRIBE_ENUM(WandbMode, off, offline, online)

/// Where Weights & Biases shows the run. Its key is none of this: only `wandb sync` needs it.
struct WandbConfig {
  WandbMode mode = WandbMode::off;
  std::optional<std::string> entity{}, project{}, group{}, name{};
};
BOOST_DESCRIBE_STRUCT(WandbConfig, (), (mode, entity, project, group, name))

struct TelemetryConfig {
  config::Period log_interval{.count = 10};
  std::int64_t log_offset = 0;  // in the unit of log_interval
  bool tensorboard = false;
  WandbConfig wandb{};
  bool log_file = true;
};
BOOST_DESCRIBE_STRUCT(TelemetryConfig, (), (log_interval, log_offset, tensorboard, wandb, log_file))

inline std::span<const config::KeyText> key_texts(const WandbConfig&) {
  static constexpr config::KeyText texts[] = {
      {"mode",
       "offline: write run_dir/wandb, which `wandb sync run_dir/wandb/offline-run-*` uploads; online: the job script "
       "also uploads it at the end of each start, with the key in WANDB_API_KEY or in the file WANDB_API_KEY_PATH; "
       "off: do not"},
      {"entity", "user or team that owns the run; default: that of the key"},
      {"project", "project that lists the run; default: that of the uploading program"},
      {"group", "runs of one group are shown together"},
      {"name", "name of the run; default: that of run_dir"}};
  return texts;
}

inline void validate(const WandbConfig& config, config::Problems& problems) {
  const auto check = [&](const std::optional<std::string>& text, std::string_view pointer) {
    constexpr std::size_t most = 128;
    problems.require(!text || (!text->empty() && text->size() <= most && text->find('\0') == std::string::npos),
                     pointer, "1 to 128 bytes of text, without zero bytes",
                     text && text->empty() ? "none" : "another text");
  };
  check(config.entity, "/entity");
  check(config.project, "/project");
  check(config.group, "/group");
  check(config.name, "/name");
}

inline std::span<const config::KeyText> key_texts(const TelemetryConfig&) {
  static constexpr config::KeyText texts[] = {
      {"log_interval", "period between log lines, and between lines of metrics.jsonl; rates in them are means over it"},
      {"log_offset", "shifts the log lines by this many steps, tgt_tokens or epochs (the unit of log_interval)"},
      {"tensorboard", "also write TensorBoard event files to run_dir/tensorboard"},
      {"wandb", "Weights & Biases"},
      {"log_file", "append what rank 0 logs to run_dir/rank0.log as well"}};
  return texts;
}

inline void validate(const TelemetryConfig& config, config::Problems& problems) {
  problems.require(config.log_interval.count > 0, "/log_interval", "a period above 0", config.log_interval.text());
  problems.require(config.log_offset >= 0, "/log_offset", "0 or more", fmt::format("{}", config.log_offset));
}

}  // namespace argosy::telemetry
