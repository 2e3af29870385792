#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_config.hpp"
#include "comm/reduction.hpp"
#include "config/config.hpp"
#include "data/data_config.hpp"
#include "optim/optim_config.hpp"
#include "optim/schedule.hpp"
#include "spec/model_config.hpp"
#include "telemetry/telemetry_config.hpp"

/// The one configuration of the whole chain: count and preprocess read `data`, train everything. Plain values without
/// torch or MPI, so that a login node can check and plan it.
namespace argosy::comm {
// comm stands beside config and cannot describe its keys itself.
std::span<const config::KeyText> key_texts(const CommConfig&);
void validate(const CommConfig&, config::Problems&);
}  // namespace argosy::comm

namespace argosy::plan {

enum class PrecisionMode { fp32, bf16, bf16_pure };
BOOST_DESCRIBE_ENUM(PrecisionMode, fp32, bf16, bf16_pure)
using comm::Reduction;
enum class Metric { loss, perplexity, bleu, chrf };
BOOST_DESCRIBE_ENUM(Metric, loss, perplexity, bleu, chrf)

enum class ShardingScope { world, hybrid };
BOOST_DESCRIBE_ENUM(ShardingScope, world, hybrid)
using spec::Recompute;
enum class AccumulationOrder { depth_first, breadth_first };
BOOST_DESCRIBE_ENUM(AccumulationOrder, depth_first, breadth_first)
enum class WireType { fp32, bf16 };
BOOST_DESCRIBE_ENUM(WireType, fp32, bf16)

struct LossConfig {
  std::optional<double> label_smoothing;  // language model 0, translation 0.1
  double z = 0;
  std::int64_t chunk_bytes = 256LL << 20;
};
BOOST_DESCRIBE_STRUCT(LossConfig, (), (label_smoothing, z, chunk_bytes))

/// Element type of gradients on their way: one, "bf16", or one a level, {"inner": "fp32", "outer": "bf16"}.
struct GradientWire {
  WireType inner = WireType::fp32, outer = WireType::fp32;
  /// A type's name or the JSON of both. Throws Error{config} on anything else.
  [[nodiscard]] static GradientWire parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static boost::json::value schema();
  bool operator==(const GradientWire&) const = default;
};

struct PrecisionConfig {
  PrecisionMode mode = PrecisionMode::bf16;
  GradientWire gradient_wire;
};
BOOST_DESCRIBE_STRUCT(PrecisionConfig, (), (mode, gradient_wire))

struct ShardingConfig {
  std::int64_t zero_stage = 1;
  ShardingScope scope = ShardingScope::world;
  Reduction reduction = Reduction::exact;
  Recompute recompute = Recompute::none;
  AccumulationOrder accumulation_order = AccumulationOrder::depth_first;
};
BOOST_DESCRIBE_STRUCT(ShardingConfig, (), (zero_stage, scope, reduction, recompute, accumulation_order))

/// Who holds what. replicated and hsdp (all state sharded inside a node, copied across nodes) are what others do.
enum class Scheme { replicated, stage_1, stage_2, stage_3, hybrid, hsdp };
BOOST_DESCRIBE_ENUM(Scheme, replicated, stage_1, stage_2, stage_3, hybrid, hsdp)
[[nodiscard]] Scheme scheme_of(const ShardingConfig& sharding);

enum class OnBusy { wait, skip };
BOOST_DESCRIBE_ENUM(OnBusy, wait, skip)
enum class ExportState { full, weights };
BOOST_DESCRIBE_ENUM(ExportState, full, weights)
enum class Verify { touched, full, none };
BOOST_DESCRIBE_ENUM(Verify, touched, full, none)

struct CheckpointConfig {
  config::Period interval{.count = 500};
  std::int64_t max_checkpoints = 5;
  config::Period export_interval{.count = 0};  // 0: one at the end
  ExportState export_state = ExportState::full;
  OnBusy on_busy = OnBusy::wait;
  std::int64_t max_failed_saves = 3;  // in a row
  Verify verify = Verify::touched;
};
BOOST_DESCRIBE_STRUCT(CheckpointConfig, (),
                      (interval, max_checkpoints, export_interval, export_state, on_busy, max_failed_saves, verify))

struct ValidationSet {
  std::string source;
  std::optional<std::string> target;  // absent: text for a language model
};
BOOST_DESCRIBE_STRUCT(ValidationSet, (), (source, target))

struct EarlyStopConfig {
  Metric metric = Metric::loss;
  std::int64_t patience = 10;
  double min_delta = 0;
};
BOOST_DESCRIBE_STRUCT(EarlyStopConfig, (), (metric, patience, min_delta))

struct ValidationConfig {
  config::Period interval{.count = 1000};
  std::optional<std::int64_t> steps;  // language model 25, translation all
  std::vector<ValidationSet> sets;
  std::vector<Metric> metrics{Metric::loss, Metric::perplexity};
  std::optional<EarlyStopConfig> early_stop;
  std::vector<Metric> keep_best{};
};
BOOST_DESCRIBE_STRUCT(ValidationConfig, (), (interval, steps, sets, metrics, early_stop, keep_best))

struct StopConfig {
  std::optional<double> before_end_s;
  std::optional<std::string> file;
};
BOOST_DESCRIBE_STRUCT(StopConfig, (), (before_end_s, file))

struct RunConfig {
  std::string run_dir;
  std::uint64_t seed = 1;
  std::string device = "auto";  // cpu, cuda; auto: cuda where a GPU is found
  data::DataConfig data;
  spec::ModelConfig model;
  LossConfig loss;
  optim::OptimizerConfig optimizer;
  optim::ScheduleConfig schedule;
  data::BatchConfig batch;
  PrecisionConfig precision;
  ShardingConfig sharding;
  CheckpointConfig checkpoint;
  ValidationConfig validation;
  telemetry::TelemetryConfig telemetry;
  comm::CommConfig comm;
  StopConfig stop;
};
BOOST_DESCRIBE_STRUCT(RunConfig, (),
                      (run_dir, seed, device, data, model, loss, optimizer, schedule, batch, precision, sharding,
                       checkpoint, validation, telemetry, comm, stop))

std::span<const config::KeyText> key_texts(const LossConfig&);
std::span<const config::KeyText> key_texts(const PrecisionConfig&);
std::span<const config::KeyText> key_texts(const ShardingConfig&);
std::span<const config::KeyText> key_texts(const CheckpointConfig&);
std::span<const config::KeyText> key_texts(const ValidationSet&);
std::span<const config::KeyText> key_texts(const EarlyStopConfig&);
std::span<const config::KeyText> key_texts(const ValidationConfig&);
std::span<const config::KeyText> key_texts(const StopConfig&);
std::span<const config::KeyText> key_texts(const RunConfig&);
void validate(const LossConfig&, config::Problems&);
void validate(const ShardingConfig&, config::Problems&);
void validate(const CheckpointConfig&, config::Problems&);
void validate(const ValidationSet&, config::Problems&);
void validate(const EarlyStopConfig&, config::Problems&);
void validate(const StopConfig&, config::Problems&);
void validate(const ValidationConfig&, config::Problems&);
void validate(const RunConfig&, config::Problems&);

/// What training needs beyond what count and preprocess read: run_dir, schedule.lr, schedule.length.
/// Throws Error{config} naming all that is missing.
void require_trainable(const RunConfig& config);

[[nodiscard]] inline bool is_language_model(const RunConfig& config) {
  return config.model.type == spec::ModelType::decoder;
}
/// Whether weights have a master in fp32, which they may be themselves.
[[nodiscard]] inline bool has_wide_master(const RunConfig& config) {
  return config.precision.mode != PrecisionMode::bf16_pure;
}
/// Default by the kind of model.
[[nodiscard]] double label_smoothing_of(const RunConfig& config);

}  // namespace argosy::plan
