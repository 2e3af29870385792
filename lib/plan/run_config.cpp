#include "plan/run_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>

#include "config/describe.hpp"
#include "core/error.hpp"
#include "plan/sharing.hpp"
#include "spec/model_spec.hpp"

namespace argosy::comm {
void validate(const CommConfig& config, config::Problems& problems) {
  problems.require(config.timeout_s > 0, "/timeout_s", "a number above 0", config.timeout_s);
}
}  // namespace argosy::comm

namespace argosy::plan {

GradientWire GradientWire::parse(std::string_view text) {
  const auto refuse = [&] {
    throw Error{Fault::config,
                {.wanted = R"(fp32, bf16, or {"inner": TYPE, "outer": TYPE})", .got = std::string(text)}};
  };
  const auto type_of = [&](std::string_view name) {
    WireType type{};
    if (!boost::describe::enum_from_string(std::string(name).c_str(), type)) refuse();
    return type;
  };
  if (!text.starts_with('{')) return {type_of(text), type_of(text)};
  boost::system::error_code bad;
  const boost::json::value value = boost::json::parse(text, bad);
  GradientWire wire;
  if (bad || !value.is_object()) refuse();
  for (const auto& [key, type] : value.get_object()) {
    if (!type.is_string() || (key != "inner" && key != "outer")) refuse();
    (key == "inner" ? wire.inner : wire.outer) = type_of(type.get_string());
  }
  return wire;
}

std::string GradientWire::text() const {
  const auto name = [](WireType type) { return boost::describe::enum_to_string(type, ""); };
  if (inner == outer) return name(inner);
  return fmt::format(R"({{"inner":"{}","outer":"{}"}})", name(inner), name(outer));
}

boost::json::value GradientWire::schema() {
  const boost::json::value types{{"enum", {"fp32", "bf16"}}};
  const boost::json::value levels{
      {"type", "object"}, {"properties", {{"inner", types}, {"outer", types}}}, {"additionalProperties", false}};
  return {{"anyOf", boost::json::array{types, levels}}};
}

void validate(const LossConfig& config, config::Problems& problems) {
  const double smoothing = config.label_smoothing.value_or(0);
  problems.require(smoothing >= 0 && smoothing < 1, "/label_smoothing", "a number in [0, 1)", smoothing);
  problems.require(config.z >= 0, "/z", "0 or more", config.z);
  problems.require(config.error_norm_truncation >= 0, "/error_norm_truncation", "0 or more",
                   config.error_norm_truncation);
  problems.require(config.error_norm_truncation_after >= 0, "/error_norm_truncation_after", "0 or more",
                   config.error_norm_truncation_after);
  problems.require(config.error_norm_truncation_after == 0 || config.error_norm_truncation > 0,
                   "/error_norm_truncation_after", "absent unless loss.error_norm_truncation is above 0", "a number");
  problems.require(config.chunk_bytes == 0 || config.chunk_bytes >= 1 << 20, "/chunk_bytes",
                   "0, or at least 1048576 (1 MiB)", config.chunk_bytes);
}

void validate(const ShardingConfig& config, config::Problems& problems) {
  problems.require(config.zero_stage >= 1 && config.zero_stage <= 3, "/zero_stage", "1, 2 or 3", config.zero_stage);
  if (config.scope == ShardingScope::hybrid && config.zero_stage != 3) {
    problems.add("/scope", "world unless sharding.zero_stage is 3",
                 fmt::format("hybrid with zero_stage {}", config.zero_stage), "use --set sharding.zero_stage=3");
  }
}

void validate(const CheckpointConfig& config, config::Problems& problems) {
  problems.require(config.interval.count > 0, "/interval", "a period above 0", config.interval.text());
  problems.require(config.max_checkpoints > 0, "/max_checkpoints", "1 or more", config.max_checkpoints);
  problems.require(config.max_failed_saves > 0, "/max_failed_saves", "1 or more", config.max_failed_saves);
}

void validate(const EarlyStopConfig& config, config::Problems& problems) {
  problems.require(config.patience > 0, "/patience", "1 or more", config.patience);
  problems.require(config.min_delta >= 0, "/min_delta", "0 or more", config.min_delta);
}

void validate(const CommandConfig& config, config::Problems& problems) {
  problems.require(!config.run.empty() && config.run.find('\0') == std::string::npos, "/run",
                   "a command, without zero bytes", config.run.empty() ? "none" : "another text");
  problems.require(config.limit_s > 0, "/limit_s", "a number above 0", config.limit_s);
}

void validate(const StopConfig& config, config::Problems& problems) {
  problems.require(config.before_end_s.value_or(0) >= 0, "/before_end_s", "0 or more", config.before_end_s.value_or(0));
}

void validate(const ValidationConfig& config, config::Problems& problems) {
  problems.require(config.interval.count > 0, "/interval", "a period above 0", config.interval.text());
  problems.require(config.steps.value_or(1) > 0, "/steps", "1 or more", config.steps.value_or(1));
  problems.require(!config.metrics.empty(), "/metrics", "a list of loss, perplexity, bits_per_byte, bleu, chrf or ter",
                   "an empty one");
  problems.require(config.samples.value_or(0) >= 0, "/samples", "0 or more", config.samples.value_or(0));
  const auto require_measured = [&](Metric metric, const std::string& pointer) {
    const bool measured = std::find(config.metrics.begin(), config.metrics.end(), metric) != config.metrics.end();
    problems.require(measured, pointer, "one of the metrics in validation.metrics",
                     boost::describe::enum_to_string(metric, ""));
  };
  if (config.early_stop) require_measured(config.early_stop->metric, "/early_stop/metric");
  for (std::size_t i = 0; i < config.keep_best.size(); ++i)
    require_measured(config.keep_best[i], fmt::format("/keep_best/{}", i));
}

void expand(RunConfig& config) {
  if (config.tasks) {
    config.data.temperature = config.tasks->temperature.value_or(config.data.temperature);
    for (Task& task : tasks_of(*config.tasks)) {
      if (const auto& lines = task.validation) {
        ValidationSet& set = config.validation.sets.emplace_back();
        set.source = {lines->source};
        set.target = config::StringOrList{lines->target};
        set.corpus = task.corpus.name;
      }
      config.data.corpora.push_back(std::move(task.corpus));
    }
    config.tasks.reset();
  }
  data::expand_directions(config.data);
}

namespace {

/// What the tasks of a configuration do not go with. True if there is nothing.
bool validate_tasks(const RunConfig& config, config::Problems& problems) {
  const std::size_t before = problems.all().size();
  problems.require(config.data.corpora.empty(), "/data/corpora", "absent, since tasks makes the corpora", "a list");
  problems.require(!is_language_model(config), "/tasks", "absent, since model.type is decoder", "tasks");
  problems.require(!config.tasks->temperature || config.data.temperature == data::DataConfig{}.temperature,
                   "/data/temperature", "absent, since tasks.temperature is given", config.data.temperature);
  config::Problems own;
  validate(*config.tasks, own);
  return own.all().empty() && problems.all().size() == before;
}

}  // namespace

void validate(const RunConfig& config, config::Problems& problems) {
  if (config.tasks) {
    if (!validate_tasks(config, problems)) return;
    RunConfig expanded = config;
    expand(expanded);
    {
      const config::Problems::Scope scope(problems, "data");
      validate(expanded.data, problems);
    }
    {
      const config::Problems::Scope scope(problems, "tasks");
      for (const data::CorpusConfig& corpus : expanded.data.corpora) validate(corpus, problems);
    }
    validate(expanded, problems);
    return;
  }
  validate_sharing(config, problems);
  problems.require(!config.data.corpora.empty(), "/data/corpora", "at least one corpus, unless tasks is given", "none");
  const GradientWire& wire = config.precision.gradient_wire;
  const bool elastic = config.sharding.reduction == Reduction::elastic;
  problems.require(!elastic || (wire.inner == WireType::fp32 && wire.outer == WireType::fp32),
                   "/precision/gradient_wire", "fp32 when sharding.reduction is elastic", "bf16");
  problems.require(!config.lora || config.init_from, "/init_from",
                   "an existing model, since lora trains adapters next to its matrices", "none");
  problems.require(!config.lora || config.lora->rank || !config.batch.micro_size.is_auto, "/batch/micro_size",
                   "a number, since lora.rank is auto", "auto");
  problems.require(!config.lora || config.freeze.empty(), "/freeze",
                   "absent, since lora freezes everything but adapters", "a list of patterns");
  problems.require(config.optimizer.ema == 0 || has_wide_master(config), "/optimizer/ema",
                   "0 with precision.mode bf16_pure, which keeps no fp32 master weights to average",
                   config.optimizer.ema);
  problems.require(!elastic || config.sharding.scope == ShardingScope::world, "/sharding/scope",
                   "world when sharding.reduction is elastic", "hybrid");
  problems.require(!elastic || config.sharding.accumulation_order == AccumulationOrder::depth_first,
                   "/sharding/accumulation_order", "depth_first when sharding.reduction is elastic", "breadth_first");
  const optim::ScheduleConfig& schedule = config.schedule;
  if (config.optimizer.relative_step) {
    for (const auto& [given, pointer] : {std::pair{schedule.style.has_value(), "/schedule/style"},
                                         {schedule.lr != 0, "/schedule/lr"},
                                         {schedule.min_lr != 0, "/schedule/min_lr"},
                                         {schedule.warmup.has_value(), "/schedule/warmup"},
                                         {schedule.decay_end.has_value(), "/schedule/decay_end"}})
      problems.require(!given, pointer, "absent, since optimizer.relative_step decides the learning rate", "a value");
    problems.require(schedule.length.unit == config::Period::Unit::step, "/schedule/length",
                     "in steps, since optimizer.relative_step is true", schedule.length.text());
  }
  problems.require(
      !elastic ||
          (config.optimizer.type != optim::OptimizerType::adafactor && config.optimizer.update_clip.value_or(0) == 0),
      "/sharding/reduction",
      "exact or fast with adafactor or optimizer.update_clip, whose sums over matrices depend on the number "
      "of ranks",
      "elastic");
  problems.require(config.run_dir.find('\0') == std::string::npos, "/run_dir", "the path of a folder",
                   "one with a zero byte");
  problems.require(config.device == "auto" || config.device == "cpu" || config.device == "cuda", "/device",
                   "one of auto, cpu, cuda", config.device);
  problems.require(!config.model.token_ids || !config.data.tokenizer_training, "/model/token_ids",
                   "absent, since data.tokenizer_training trains a tokenizer with the ids of the model type", "");
  const spec::ModelConfig& model = config.model;
  problems.require(
      !is_language_model(config) || config.batch.sequence_length <= model.max_positions - model.position_shift_max,
      "/batch/sequence_length",
      model.position_shift_max == 0 ? fmt::format("at most model.max_positions ({})", model.max_positions)
                                    : fmt::format("at most model.max_positions ({}) less model.position_shift_max ({})",
                                                  model.max_positions, model.position_shift_max),
      std::to_string(config.batch.sequence_length));
  problems.require(!(config.validation.early_stop || !config.validation.keep_best.empty()) ||
                       !config.validation.sets.empty() || config.data.split,
                   "/validation/sets", "a list with at least one set, since early_stop and keep_best need validations",
                   "none", "set validation.sets or data.split");
  const bool language_model = is_language_model(config);
  data::DataConfig both = config.data;  // with reversed corpora
  data::expand_directions(both);
  for (std::size_t i = 0; i < config.validation.sets.size(); ++i) {
    const ValidationSet& set = config.validation.sets[i];
    const config::Problems::Scope scope(problems, fmt::format("validation/sets/{}", i));
    const data::TextRules rules = rules_of(set, config);
    data::validate_text(rules, set.source, set.target, problems);
    if (language_model) {
      problems.require(!set.corpus, "/corpus", "absent, since model.type is decoder", set.corpus.value_or(""));
    } else if (!both.corpora.empty() && !prefixes_of(set, both)) {
      std::vector<std::string> names;
      names.reserve(both.corpora.size());
      for (const data::CorpusConfig& corpus : both.corpora) names.push_back(corpus.name);
      const std::string all = fmt::format("{}", fmt::join(names, ", "));
      problems.add("/corpus",
                   set.corpus ? "the name of a corpus: " + all
                              : "the name of the corpus that the set is for, since their prefixes differ: " + all,
                   set.corpus.value_or("none"));
    }
    problems.require(set.target ? !language_model : language_model || rules.format != data::TextFormat::text, "",
                     language_model ? "without a target, since model.type is decoder" : "a source with a target",
                     set.target ? "a target" : "no target");
  }
  for (std::size_t i = 0; i < config.data.corpora.size(); ++i) {
    const data::CorpusConfig& corpus = config.data.corpora[i];
    const bool records = data::rules_of(corpus, config.data).format != data::TextFormat::text;
    problems.require(!records || data::has_pairs(corpus) != language_model,
                     fmt::format("/data/corpora/{}/languages", i),
                     language_model ? "one code, since model.type is decoder"
                                    : "two codes, which make records pairs, since model.type is encoder_decoder",
                     fmt::format("{}", corpus.languages.size()));
  }
  const auto& corpora = config.data.corpora;
  problems.require(!config.model.prefix_lm || !language_model || corpora.empty() ||
                       std::ranges::any_of(corpora,
                                           [&](const data::CorpusConfig& corpus) {
                                             return data::may_have_prompts(data::rules_of(corpus, config.data));
                                           }),
                   "/model/prefix_lm", "false, since no corpus has prompts", "true",
                   "use a corpus of records with a source and a target, or with messages");
  for (std::size_t i = 0; i < config.validation.metrics.size(); ++i) {
    const Metric metric = config.validation.metrics[i];
    const std::string name(boost::describe::enum_to_string(metric, ""));
    problems.require(!is_language_model(config) || !needs_translations(metric),
                     fmt::format("/validation/metrics/{}", i),
                     "loss, perplexity or bits_per_byte, since model.type is decoder", name);
  }
  for (const auto& [wanted, pointer, got] :
       {std::tuple{config.validation.samples.value_or(0) > 0, "/validation/samples", "more than 0"},
        {config.validation.collapse.value_or(false), "/validation/collapse", "true"}}) {
    if (!wanted) continue;
    problems.require(!is_language_model(config), pointer, "absent, since model.type is decoder", got);
    problems.require(!config.validation.sets.empty(), pointer,
                     "absent without validation.sets, whose lines are translated", got);
  }
}

void set_defaults(RunConfig& config, const boost::json::value& root) {
  const auto says = [&](const char* pointer, std::string_view text) {
    boost::system::error_code missing;
    const boost::json::value* const found = root.find_pointer(pointer, missing);
    return found != nullptr && found->is_string() && found->get_string() == text;
  };
  if (!says("/preset", "fine_tuning")) return;
  if (!says("/optimizer/type", "adafactor")) config.optimizer.max_grad_norm = 5;
  config.optimizer.skip.factor = 10;
  config.loss.label_smoothing = 0;
}

TranslatedLines translated_lines_of(const ValidationConfig& config) {
  const bool all = std::ranges::any_of(config.metrics, needs_translations);
  return {.all = all, .samples = config.samples.value_or(all ? 3 : 0), .collapse = config.collapse.value_or(all)};
}

data::BatchConfig batch_of(const RunConfig& config) {
  const auto has_bias = [](std::optional<spec::Position> position) {
    return position == spec::Position::t5 || position == spec::Position::alibi;
  };
  data::BatchConfig batch = config.batch;
  if (!batch.width_multiple && (has_bias(config.model.encoder.position) || has_bias(config.model.decoder.position)))
    batch.width_multiple = 8;
  return batch;
}

spec::ModelSpec spec_of(const RunConfig& config, std::int64_t pieces) {
  spec::ModelSpec spec(spec::resolve(config.model, pieces), sharing_of(config));
  if (config.lora) spec = spec::with_adapters(std::move(spec), *config.lora);
  if (!config.freeze.empty()) spec = spec::with_frozen(std::move(spec), config.freeze);
  return spec;
}

data::TextRules rules_of(const ValidationSet& set, const RunConfig& config) {
  data::TextRules rules{.format = data::format_of(set.format, set.source, set.target.has_value()),
                        .pairs = !is_language_model(config),
                        .fields = set.fields,
                        .invalid_utf8 = config.data.invalid_utf8,
                        .broken_records = config.data.broken_records};
  const bool records = rules.format != data::TextFormat::text;
  if (set.documents) {
    rules.documents = *set.documents;
  } else if (records) {
    rules.documents = data::DocumentUnit::record;
  } else if (!rules.pairs && !config.data.corpora.empty() &&
             config.data.corpora.front().documents != data::DocumentUnit::record) {
    rules.documents = config.data.corpora.front().documents;
  }
  return rules;
}

std::optional<data::Prefixes> prefixes_of(const ValidationSet& set, const data::DataConfig& data) {
  std::optional<data::Prefixes> prefixes;
  for (const data::CorpusConfig& corpus : data.corpora) {
    if (set.corpus && corpus.name != *set.corpus) continue;
    data::Prefixes own = data::prefixes_of(corpus);
    if (prefixes && *prefixes != own) return std::nullopt;
    prefixes = std::move(own);
  }
  return prefixes;
}

namespace {

/// Absent if sizes are missing.
std::optional<double> block_parameters(spec::ModelConfig model) {
  if (spec::width_of(model) <= 0) return std::nullopt;
  model.vocab_size = model.vocab_size.value_or(8000);  // any: it is not in blocks
  double parameters = 0;
  try {
    for (const spec::Unit& unit : spec::ModelSpec(spec::as_plain(spec::resolve(model, 0))).units) {
      for (const spec::Parameter& parameter : unit.parameters)
        parameters += unit.is_block ? static_cast<double>(parameter.numel()) : 0;
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return parameters;
}

}  // namespace

void require_trainable(const RunConfig& config) {
  std::string missing;
  const auto need = [&](bool given, const char* key) {
    if (!given) missing += missing.empty() ? key : std::string(", ") + key;
  };
  need(!config.run_dir.empty(), "run_dir");
  const bool lacks_lr = config.schedule.lr <= 0 && optim::has_lr(config.schedule) && !config.optimizer.relative_step;
  need(!lacks_lr, "schedule.lr");
  need(config.schedule.length.count > 0, "schedule.length");
  if (missing.empty()) return;
  std::string usual;
  if (const auto parameters = lacks_lr ? block_parameters(config.model) : std::nullopt)
    usual = fmt::format("; a usual schedule.lr for a model of this size ({:.1f} M parameters in blocks) is {:.1g}",
                        *parameters / 1e6, optim::usual_lr(*parameters));
  throw Error{
      Fault::config,
      {.sentence = fmt::format("missing keys: {}; add them to the file, or use --set KEY=VALUE{}", missing, usual),
       .wanted = "a configuration to train with",
       .got = fmt::format("none of {}", missing),
       .remedy = "add them to the file, or use --set KEY=VALUE"}};
}

Scheme scheme_of(const ShardingConfig& sharding) {
  if (sharding.scope == ShardingScope::hybrid) return Scheme::hybrid;
  return sharding.zero_stage == 1 ? Scheme::stage_1 : sharding.zero_stage == 2 ? Scheme::stage_2 : Scheme::stage_3;
}

optim::Schedule schedule_of(const RunConfig& config) {
  if (config.optimizer.relative_step)
    return optim::relative_steps(config.optimizer.warmup_init, config.schedule.length.count);
  return optim::resolve(config.schedule, is_language_model(config), spec::width_of(config.model));
}

double label_smoothing_of(const RunConfig& config) {
  return config.loss.label_smoothing.value_or(is_language_model(config) ? 0.0 : 0.1);
}

}  // namespace argosy::plan

namespace argosy {
template plan::RunConfig config::from_document<plan::RunConfig>(const config::Document&);
template boost::json::value config::to_json<plan::RunConfig>(const plan::RunConfig&);
template boost::json::value config::schema_of<plan::RunConfig>();
}  // namespace argosy
