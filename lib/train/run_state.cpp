#include "train/run_state.hpp"

#include <algorithm>
#include <limits>

#include "checkpoint/fields.hpp"
#include "checkpoint/manifest.hpp"
#include "config/describe.hpp"
#include "core/error.hpp"
#include "model/stored_spec.hpp"
#include "plan/sharing.hpp"
#include "train/advice.hpp"
#include "train/early_stop.hpp"
#include "train/other_tasks.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;
using checkpoint::Fields;

/// What decides which examples form which step.
json::object data_of(const plan::RunConfig& config, const RunFacts& facts) {
  json::array weights;
  for (const data::CorpusConfig& corpus : config.data.corpora) weights.emplace_back(corpus.weight);
  json::object order{
      {"fingerprint", facts.data.hex()}, {"weights", std::move(weights)}, {"temperature", config.data.temperature}};
  json::object times;
  for (const data::CorpusConfig& corpus : config.data.corpora) {
    if (corpus.start.count > 0 || corpus.end)
      times[corpus.name] = {corpus.start.text(), corpus.end ? corpus.end->text() : ""};
  }
  if (!times.empty()) order["times"] = std::move(times);
  return order;
}

json::object batch_of(const plan::RunConfig& config, const RunFacts& facts) {
  json::object batch = config::to_json(plan::batch_of(config)).as_object();
  batch["global_size"] = facts.sizes.global_size;
  batch["micro_size"] = facts.sizes.micro_size;
  batch.erase("accumulation");
  if (config.batch.oversized == data::Oversized::skip) batch.erase("oversized");  // as versions without the key wrote
  return batch;
}

json::object loss_of(const plan::RunConfig& config) {
  json::object loss = config::to_json(config.loss).as_object();
  // As versions without the keys wrote.
  if (config.loss.error_norm_truncation == 0) loss.erase("error_norm_truncation");
  if (config.loss.error_norm_truncation_after == 0) loss.erase("error_norm_truncation_after");
  if (config.loss.normalise == plan::LossNormalisation::step) loss.erase("normalise");
  return loss;
}

/// Canonical text of the part at a pointer: numbers compare by value, whatever JSON made of their type.
std::string text_at(const json::object& section, std::string_view pointer, const char* unsaid) {
  json::error_code missing;
  const json::value whole(section);
  const json::value* found = whole.find_pointer(pointer, missing);
  return found == nullptr ? unsaid : config::text_of(*found, false);
}

/// A model section with all keys: one that an earlier version wrote lacks those that came later.
json::object with_all_keys(json::object model, const std::string& where) {
  if (const json::value* config = model.if_contains("config"))
    model["config"] = config::to_json(
        config::from_document<spec::ModelConfig>(config::Document::parse(json::serialize(*config), where)));
  if (const json::value* lora = model.if_contains("lora"))
    model["lora"] = config::to_json(
        config::from_document<spec::LoraConfig>(config::Document::parse(json::serialize(*lora), where)));
  return model;
}

/// Of a plain model: no tasks.
spec::Sharing sharing_in(const json::object& model, const std::string& where) {
  const json::value* const sharing = model.if_contains("sharing");
  if (sharing == nullptr) return {};
  return config::from_document<spec::Sharing>(config::Document::parse(json::serialize(*sharing), where));
}

/// Members of two objects that differ, as "lr: 0.001, was 0.002".
/// defaults: of keys that an earlier version did not store.
void add_differences(const json::object& saved, const json::object& wanted, const json::value& defaults,
                     const std::string& prefix, std::vector<std::string>& texts) {
  for (const auto& [key, value] : wanted) {
    const std::string now = config::text_of(value, false);
    const json::value* before = saved.if_contains(key);
    if (before == nullptr) before = defaults.as_object().if_contains(key);
    const std::string was = before == nullptr ? "nothing" : config::text_of(*before, false);
    if (now != was) texts.push_back(fmt::format("{}.{}: {}, was {}", prefix, std::string_view(key), now, was));
  }
}

/// What Validator::state() has stored, checked against what it writes.
json::object validations_of(const Fields& best) {
  const auto check_best = [](const Fields& stored) {
    static_cast<void>(stored.number("value"));
    static_cast<void>(stored.count("step"));
  };
  if (best.has("early_stop")) {
    const Fields stop = best.object("early_stop");
    check_best(stop);
    static_cast<void>(stop.text("metric"));
    static_cast<void>(stop.count("stalled"));
  }
  if (best.has("kept")) {
    for (const auto& metric : best.members("kept")) check_best(best.object("kept").object(metric.key()));
  }
  if (best.has("keep")) {
    for (const json::value& step : best.list("keep")) static_cast<void>(best.count_of(step, "keep", Fields::most));
  }
  json::object validations;
  for (const char* key : ValidationHistory::state_keys)
    if (best.has(key)) validations[key] = best.at(key);
  if (best.has("advice")) {
    const Fields advice = best.object("advice");
    static_cast<void>(advice.number("nll"));
    static_cast<void>(advice.amount("tgt_tokens"));
    const json::array& left = advice.list("left");
    for (const json::value& each : left) static_cast<void>(advice.count_of(each, "left", Fields::most));
    if (left.size() != ValidationAdvice::Left{}.size()) advice.fail("left", "a number for each advice", "others");
    validations["advice"] = best.at("advice");
  }
  return validations;
}

}  // namespace

double RunState::position(config::Period::Unit unit) const {
  switch (unit) {
    case config::Period::Unit::step:
      return static_cast<double>(step);
    case config::Period::Unit::tgt_token:
      return static_cast<double>(tgt_tokens);
    case config::Period::Unit::epoch:
      return epoch;
  }
  return 0;
}

bool has_same_optimizer_state(const json::object& a, const json::object& b) {
  return text_at(a, "/type", "") == text_at(b, "/type", "") &&
         text_at(a, "/hparams/state", "\"fp32\"") == text_at(b, "/hparams/state", "\"fp32\"");
}

checkpoint::Sections sections_of(const plan::RunConfig& config, const RunFacts& facts, const RunState& state) {
  checkpoint::Sections sections;
  sections.model = model::model_section(config.model, facts.tokenizer, facts.vocab_live,
                                        config.precision.mode == plan::PrecisionMode::fp32 ? DType::f32 : DType::bf16,
                                        config.lora, plan::sharing_of(config));
  if (!config.freeze.empty()) sections.model["freeze"] = config::to_json(config.freeze);
  sections.optimizer = {{"type", config::to_json(config.optimizer.type)},
                        {"hparams", config::to_json(config.optimizer)},
                        {"loss", loss_of(config)},
                        {"precision", config::to_json(config.precision)},
                        {"step", state.updates}};
  for (const auto& [component, updates] : state.component_updates) {
    json::value& all = sections.optimizer["component_steps"];
    if (!all.is_object()) all.emplace_object();
    all.get_object()[component] = updates;
  }
  sections.schedule = {{"name", config::to_json(config.schedule.style)},
                       {"args", config::to_json(config.schedule)},
                       {"step", state.step}};
  sections.counters = {{"step", state.step},
                       {"src_tokens", state.src_tokens},
                       {"tgt_tokens", state.tgt_tokens},
                       {"padded_tokens", state.padded_tokens},
                       {"n_clips", state.n_clips},
                       {"skipped", state.guard.skipped},
                       {"skipped_in_a_row", state.guard.in_a_row},
                       {"mean_norm", state.guard.mean_norm},
                       {"mean_norm_steps", state.guard.taken},
                       {"window",
                        {{"loss", state.window.loss},
                         {"nll", state.window.nll},
                         {"tgt_tokens", state.window.tgt_tokens},
                         {"truncated", state.window.truncated},
                         {"steps", state.window.steps},
                         {"clipped", state.window.clipped}}}};
  for (const telemetry::CorpusSums& corpus : state.window.corpora) {
    json::value& all = sections.counters["window"].as_object()["corpora"];
    if (!all.is_array()) all.emplace_array();
    all.get_array().push_back({{"nll", corpus.nll}, {"tgt_tokens", corpus.tgt_tokens}});
  }
  sections.data = {{"seed", config.seed},
                   {"order", data_of(config, facts)},
                   {"batch", batch_of(config, facts)},
                   {"epoch_done", state.epoch}};
  const data::PoolBegin& pool = state.cursor.pool;
  sections.data["epoch"] = pool.epoch;
  sections.data["pool"] = pool.pool;
  sections.data["pool_step"] = state.cursor.step;
  sections.data["pool_begin"] = {{"steps", pool.steps},
                                 {"tgt_tokens", pool.tgt_tokens},
                                 {"drawn", json::array(pool.drawn.begin(), pool.drawn.end())},
                                 {"owed", json::array(pool.owed.begin(), pool.owed.end())}};
  sections.rng = {
      {"kind", "philox"}, {"seed", config.seed}, {"threads", state.threads.count}, {"ranks", state.threads.ranks}};
  if (!state.instructions.empty()) sections.rng["instructions"] = state.instructions;
  if (!state.placement.empty()) sections.rng["placement"] = state.placement;
  sections.metrics = state.metrics;
  sections.best = {{"loss", state.best_loss}, {"step", state.best_step}, {"validation_is_due", state.owes_validation}};
  for (const auto& [key, value] : state.validations) sections.best[key] = value;
  sections.history = state.history;
  return sections;
}

std::vector<std::string> changes_of_bits(const RunState& before, const std::string& instructions,
                                         const std::string& placement, int ranks) {
  std::vector<std::string> changes;
  const auto add = [&](const char* what, const std::string& now, const std::string& was) {
    changes.push_back(fmt::format("{}: {}, was {}; the last bits of results may differ", what, now, was));
  };
  if (!before.instructions.empty() && before.instructions != instructions)
    add("CPU instructions", instructions, before.instructions);
  const auto said = [](const std::string& text) { return text.empty() ? "everywhere" : text; };
  if (before.threads.ranks == ranks && before.placement != placement)
    add("placement", said(placement), said(before.placement));
  return changes;
}

RunState state_of(const checkpoint::Reader& reader) {
  const std::string where = (reader.directory() / checkpoint::manifest_name).string();
  const checkpoint::Sections& sections = reader.sections();
  const Fields counters{sections.counters, "/counters", where}, data{sections.data, "/data", where},
      optimizer{sections.optimizer, "/optimizer", where}, best{sections.best, "/best", where};
  RunState state;
  state.step = reader.step();
  state.updates = optimizer.count("step");
  if (optimizer.has("component_steps")) {
    const Fields steps = optimizer.object("component_steps");
    for (const auto& component : optimizer.members("component_steps"))
      state.component_updates[component.key()] = steps.count(component.key());
  }
  constexpr std::int64_t most_epochs = 1 << 24;  // times the examples of an epoch it fits 64 bits
  state.cursor.pool.epoch = data.count("epoch", most_epochs);
  if (data.has("pool")) {
    const Fields begin = data.object("pool_begin");
    data::PoolBegin& pool = state.cursor.pool;
    pool.pool = data.count("pool");
    pool.steps = begin.count("steps");
    pool.tgt_tokens = begin.count("tgt_tokens");
    for (const json::value& drawn : begin.list("drawn"))
      pool.drawn.push_back(begin.count_of(drawn, "drawn", Fields::most));
    for (const json::value& owed : begin.list("owed")) {
      if (!owed.is_number() || !std::isfinite(owed.to_number<double>()))
        begin.fail("owed", "finite numbers", json::serialize(owed));
      pool.owed.push_back(owed.to_number<double>());
    }
    state.cursor.step = data.count("pool_step");
  } else {
    state.cursor.step = data.count("epoch_step");  // as earlier versions counted: from the first pool of the epoch on
  }
  state.epoch = data.amount("epoch_done");
  state.src_tokens = counters.count("src_tokens");
  state.tgt_tokens = counters.count("tgt_tokens");
  state.padded_tokens = counters.count("padded_tokens");
  state.n_clips = counters.count("n_clips");
  state.guard = {.mean_norm = counters.amount("mean_norm"),
                 .taken = counters.count("mean_norm_steps"),
                 .skipped = counters.count("skipped"),
                 .in_a_row = counters.count("skipped_in_a_row")};
  const Fields rng{sections.rng, "/rng", where};
  if (rng.has("instructions")) state.instructions = rng.text("instructions");
  if (rng.has("placement")) {
    state.placement = rng.text("placement");
    try {
      static_cast<void>(plan::PlacementConfig::parse(state.placement));
    } catch (const Error& error) {
      rng.fail("placement", error.facts().wanted, state.placement);
    }
  }
  if (rng.has("threads")) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    state.threads = {.count = narrow<int>(rng.count("threads", most)), .ranks = narrow<int>(rng.count("ranks", most))};
  }
  if (counters.has("window")) {
    const Fields window = counters.object("window");
    state.window = {.loss = window.number("loss"),
                    .nll = window.number("nll"),
                    .tgt_tokens = window.amount("tgt_tokens"),
                    .truncated = window.has("truncated") ? window.amount("truncated") : 0,
                    .steps = window.count("steps"),
                    .clipped = window.count("clipped")};
    if (window.has("corpora"))
      window.for_each("corpora", [&state](const Fields& corpus) {
        state.window.corpora.push_back({.nll = corpus.number("nll"), .tgt_tokens = corpus.amount("tgt_tokens")});
      });
  }
  state.best_loss = best.number("loss");
  state.best_step = best.count("step");
  if (best.has("validation_is_due")) state.owes_validation = best.flag("validation_is_due");
  state.validations = validations_of(best);
  state.metrics = sections.metrics;
  state.history = sections.history;
  return state;
}

std::optional<std::int64_t> micro_size_of(const checkpoint::Reader& reader, std::int64_t global_size) {
  const std::string where = (reader.directory() / checkpoint::manifest_name).string();
  const Fields batch = Fields{reader.sections().data, "/data", where}.object("batch");
  const std::int64_t micro_size = batch.count("micro_size");
  const bool same = batch.count("global_size") == global_size && micro_size > 0 && global_size % micro_size == 0;
  return same ? std::optional(micro_size) : std::nullopt;
}

data::StepSizes sizes_with(data::BatchConfig batch, const checkpoint::Reader& reader, int world) {
  if (batch.micro_size.is_auto) batch.micro_size = micro_size_of(reader, batch.global_size.value());
  return data::resolve_sizes(batch, world);
}

std::vector<std::string> check_resumable(const checkpoint::Sections& saved, const checkpoint::Sections& wanted,
                                         std::span<const std::string> allowed, const std::string& where) {
  struct Fixed {
    const json::object &saved, &wanted;
    const char *pointer, *key;
    const char* unsaid = "nothing";  // what a checkpoint means that does not say it
  };
  const json::object saved_model = with_all_keys(saved.model, where);
  const auto allows = [&allowed](std::string_view key) { return std::ranges::find(allowed, key) != allowed.end(); };
  const std::string other_tasks = difference_of(sharing_in(saved.model, where), sharing_in(wanted.model, where));
  const Fixed fixed[] = {{saved_model, wanted.model, "/config", "model"},
                         {saved.model, wanted.model, "/tokenizer_digest", "data.tokenizer"},
                         {saved.model, wanted.model, "/vocab_size", "data.tokenizer"},
                         {saved_model, wanted.model, "/lora", "lora"},
                         {saved.model, wanted.model, "/freeze", "freeze"},
                         {saved.data, wanted.data, "/order", "data"},
                         {saved.data, wanted.data, "/batch", "batch"},
                         {saved.data, wanted.data, "/seed", "seed"},
                         {saved.optimizer, wanted.optimizer, "/precision", "precision"},
                         {saved.optimizer, wanted.optimizer, "/loss", "loss"},
                         {saved.optimizer, wanted.optimizer, "/type", "optimizer.type"},
                         {saved.optimizer, wanted.optimizer, "/hparams/state", "optimizer.state", "\"fp32\""}};
  std::vector<std::string> changes;
  const bool same_model = text_at(saved_model, "/config", "") == text_at(wanted.model, "/config", "");
  if (!other_tasks.empty() && same_model) {
    if (!allows("tasks"))
      throw_claim(Fault::config, fmt::format("{}: the tasks have changed: {}", where, other_tasks), where,
                  "the tasks that this run began with", other_tasks,
                  "undo the change, or allow it with --allow-change tasks, which begins new components with random "
                  "values and leaves out those that no task has");
    changes.push_back("tasks: " + other_tasks);
  }
  for (const Fixed& part : fixed) {
    if (part.pointer == std::string_view("/tokenizer_digest") && !other_tasks.empty() &&
        model::share_tokenizers(saved.model, wanted.model))
      continue;
    const std::string was = text_at(part.saved, part.pointer, part.unsaid),
                      now = text_at(part.wanted, part.pointer, part.unsaid);
    if (was == now) continue;
    const bool follows = !other_tasks.empty() && part.pointer == std::string_view("/order");  // tasks are corpora
    const bool may_change = std::ranges::count(changeable_keys, std::string_view(part.key)) > 0;
    if (may_change && (allows(part.key) || follows)) {
      changes.push_back(fmt::format("{}: {}, was {}", part.key, now, was));
      continue;
    }
    const std::string remedy = may_change ? fmt::format("undo the change, or allow it with --allow-change {}", part.key)
                                          : "undo the change, or start a new run in another run_dir";
    throw_claim(Fault::config, fmt::format("{}: {} was {} and is now {}", where, part.key, was, now), where,
                fmt::format("the {} that this run began with, {}", part.key, was), now, remedy);
  }
  const auto members = [&](const json::object& section, const char* name, const char* key) {
    return Fields{section, name, where}.members(key);
  };
  json::object hparams = members(wanted.optimizer, "/optimizer", "hparams");
  for (const char* const key : {"type", "state"}) hparams.erase(key);  // compared above
  add_differences(members(saved.optimizer, "/optimizer", "hparams"), hparams, config::to_json(optim::OptimizerConfig{}),
                  "optimizer", changes);
  add_differences(members(saved.schedule, "/schedule", "args"), members(wanted.schedule, "/schedule", "args"),
                  config::to_json(optim::ScheduleConfig{}), "schedule", changes);
  return changes;
}

}  // namespace argosy::train
