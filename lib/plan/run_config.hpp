#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_config.hpp"
#include "config/config.hpp"
#include "data/data_config.hpp"
#include "optim/optim_config.hpp"
#include "optim/schedule.hpp"
#include "plan/init_from.hpp"
#include "plan/placement.hpp"
#include "plan/tasks.hpp"
#include "spec/fine_tuning.hpp"
#include "spec/model_config.hpp"
#include "telemetry/telemetry_config.hpp"

/// The configuration of the whole chain: count and preprocess read `data`, train reads everything. Plain values that
/// need neither LibTorch nor MPI, so that a login node can check and plan a run.
namespace argosy::comm {
// comm and config are on one level, so that comm cannot describe its keys itself.
std::span<const config::KeyText> key_texts(const CommConfig&);
void validate(const CommConfig&, config::Problems&);
}  // namespace argosy::comm

namespace argosy::plan {

enum class PrecisionMode { fp32, bf16, bf16_pure };
BOOST_DESCRIBE_ENUM(PrecisionMode, fp32, bf16, bf16_pure)
using comm::Reduction;
enum class Metric { loss, perplexity, bits_per_byte, bleu, chrf, ter };
BOOST_DESCRIBE_ENUM(Metric, loss, perplexity, bits_per_byte, bleu, chrf, ter)
/// Whether it compares translations with references.
[[nodiscard]] constexpr bool needs_translations(Metric metric) {
  return metric == Metric::bleu || metric == Metric::chrf || metric == Metric::ter;
}

enum class ShardingScope { world, hybrid };
BOOST_DESCRIBE_ENUM(ShardingScope, world, hybrid)
using spec::Recompute;
enum class AccumulationOrder { depth_first, breadth_first };
BOOST_DESCRIBE_ENUM(AccumulationOrder, depth_first, breadth_first)
enum class WireType { fp32, bf16 };
BOOST_DESCRIBE_ENUM(WireType, fp32, bf16)

enum class LossNormalisation { step, component };
BOOST_DESCRIBE_ENUM(LossNormalisation, step, component)

struct LossConfig {
  std::optional<double> label_smoothing;  // language model 0, translation 0.1
  double z = 0;
  double error_norm_truncation = 0;
  std::int64_t error_norm_truncation_after = 0;  // steps
  std::int64_t chunk_bytes = 256LL << 20;
  LossNormalisation normalise = LossNormalisation::step;
};
BOOST_DESCRIBE_STRUCT(LossConfig, (),
                      (label_smoothing, z, error_norm_truncation, error_norm_truncation_after, chunk_bytes, normalise))

/// Element type in which gradients are sent: one, "bf16", or one per level, {"inner": "fp32", "outer": "bf16"}.
struct GradientWire {
  WireType inner = WireType::fp32, outer = WireType::fp32;
  /// The name of a type, or the JSON of both levels. Throws Error{config} on anything else.
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

/// Which rank holds what: the stages of ZeRO over all ranks, or weights and gradients sharded inside a node.
enum class Scheme { stage_1, stage_2, stage_3, hybrid };
BOOST_DESCRIBE_ENUM(Scheme, stage_1, stage_2, stage_3, hybrid)
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
  config::StringOrList source{};
  std::optional<config::StringOrList> target{};  // of pairs in two files
  std::optional<data::TextFormat> format{};
  data::FieldsConfig fields{};
  std::optional<data::DocumentUnit> documents{};  // that of the first corpus, if the formats are alike
  std::optional<std::string> corpus{};            // of pairs: its prefixes; absent: those that all corpora have
};
BOOST_DESCRIBE_STRUCT(ValidationSet, (), (source, target, format, fields, documents, corpus))

struct EarlyStopConfig {
  Metric metric = Metric::loss;
  std::int64_t patience = 10;
  double min_delta = 0;
};
BOOST_DESCRIBE_STRUCT(EarlyStopConfig, (), (metric, patience, min_delta))

struct CommandConfig {
  std::string run;
  double limit_s = 3600;
};
BOOST_DESCRIBE_STRUCT(CommandConfig, (), (run, limit_s))

struct ValidationConfig {
  config::Period interval{.count = 1000};
  std::optional<std::int64_t> steps;  // language model 25, translation all
  std::vector<ValidationSet> sets;
  std::vector<Metric> metrics{Metric::loss, Metric::perplexity};
  std::optional<EarlyStopConfig> early_stop;
  std::vector<Metric> keep_best{};
  std::optional<std::int64_t> samples{};  // 3 where a metric needs translations, else 0
  std::optional<bool> collapse{};         // true where a metric needs translations
  std::optional<CommandConfig> command{};
};
BOOST_DESCRIBE_STRUCT(ValidationConfig, (),
                      (interval, steps, sets, metrics, early_stop, keep_best, samples, collapse, command))

/// How much of each set of pairs a validation translates, and what for.
struct TranslatedLines {
  bool all = false;          // a metric needs them
  std::int64_t samples = 0;  // that are written to the sinks: the first ones
  bool collapse = false;     // whether the translations are searched for signs of a collapse
  [[nodiscard]] bool any() const { return all || samples > 0 || collapse; }
};
[[nodiscard]] TranslatedLines translated_lines_of(const ValidationConfig& config);

struct StopConfig {
  std::optional<double> before_end_s;
  std::optional<std::string> file;
};
BOOST_DESCRIBE_STRUCT(StopConfig, (), (before_end_s, file))

/// Defaults for a kind of run.
enum class Preset { none, fine_tuning };
BOOST_DESCRIBE_ENUM(Preset, none, fine_tuning)

struct RunConfig {
  Preset preset = Preset::none;
  std::string run_dir;
  std::uint64_t seed = 1;
  std::string device = "auto";  // cpu, cuda; auto: cuda where a GPU is found
  data::DataConfig data;
  std::optional<TasksConfig> tasks;                        // absent once they are corpora
  std::map<std::string, std::vector<std::string>> groups;  // of languages, for stacks that these share
  PlacementConfig placement{};                             // of the tasks of such a model
  spec::ModelConfig model;
  std::optional<InitFrom> init_from;     // absent: random weights
  std::optional<spec::LoraConfig> lora;  // absent: no adapters
  std::vector<std::string> freeze{};     // patterns of parameters that are not trained
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
                      (preset, run_dir, seed, device, data, tasks, groups, placement, model, init_from, lora, freeze,
                       loss, optimizer, schedule, batch, precision, sharding, checkpoint, validation, telemetry, comm,
                       stop))

std::span<const config::KeyText> key_texts(const LossConfig&);
std::span<const config::KeyText> key_texts(const PrecisionConfig&);
std::span<const config::KeyText> key_texts(const ShardingConfig&);
std::span<const config::KeyText> key_texts(const CheckpointConfig&);
std::span<const config::KeyText> key_texts(const ValidationSet&);
std::span<const config::KeyText> key_texts(const EarlyStopConfig&);
std::span<const config::KeyText> key_texts(const CommandConfig&);
std::span<const config::KeyText> key_texts(const ValidationConfig&);
std::span<const config::KeyText> key_texts(const StopConfig&);
std::span<const config::KeyText> key_texts(const RunConfig&);
void validate(const LossConfig&, config::Problems&);
void validate(const ShardingConfig&, config::Problems&);
void validate(const CheckpointConfig&, config::Problems&);
void validate(const EarlyStopConfig&, config::Problems&);
void validate(const CommandConfig&, config::Problems&);
void validate(const StopConfig&, config::Problems&);
void validate(const ValidationConfig&, config::Problems&);
void validate(const RunConfig&, config::Problems&);
/// Those of `preset`.
void set_defaults(RunConfig& config, const boost::json::value& root);
/// Tasks become corpora and validation sets; corpora that are read in both directions become two.
void expand(RunConfig& config);

/// Checks for the keys that training needs besides those of count and preprocess: run_dir, schedule.lr where it is not
/// decided by other keys, schedule.length. Throws Error{config} naming all that are missing, and a usual schedule.lr.
void require_trainable(const RunConfig& config);

[[nodiscard]] inline bool is_language_model(const RunConfig& config) {
  return config.model.type == spec::ModelType::decoder;
}
/// What the texts of a validation set say.
[[nodiscard]] data::TextRules rules_of(const ValidationSet& set, const RunConfig& config);
/// What stands before the lines of a set: nullopt where the corpora differ and the set names none.
[[nodiscard]] std::optional<data::Prefixes> prefixes_of(const ValidationSet& set, const data::DataConfig& data);
/// Whether the weights have an fp32 master, or are fp32 themselves.
[[nodiscard]] inline bool has_wide_master(const RunConfig& config) {
  return config.precision.mode != PrecisionMode::bf16_pure;
}
/// The section `batch` with the width_multiple that the model's positions decide where it is absent: 8 for t5 and
/// alibi, whose attention reads a row of biases, else 1. It stays absent where it is 1.
[[nodiscard]] data::BatchConfig batch_of(const RunConfig& config);
/// With the defaults for the kind of model.
[[nodiscard]] optim::Schedule schedule_of(const RunConfig& config);
/// The model with its adapters and what is frozen of it. pieces: of the tokenizer. Throws Error{config} where keys of
/// model, lora or freeze do not fit.
[[nodiscard]] spec::ModelSpec spec_of(const RunConfig& config, std::int64_t pieces);
/// The configured value, or the default for the kind of model.
[[nodiscard]] double label_smoothing_of(const RunConfig& config);

}  // namespace argosy::plan

namespace argosy {
/// Instantiated in run_config.cpp, once for all.
extern template plan::RunConfig config::from_document<plan::RunConfig>(const config::Document&);
extern template boost::json::value config::to_json<plan::RunConfig>(const plan::RunConfig&);
extern template boost::json::value config::schema_of<plan::RunConfig>();
}  // namespace argosy
