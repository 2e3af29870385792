#include "train/run_state.hpp"

#include <algorithm>

#include "config/describe.hpp"
#include "core/error.hpp"
#include "train/early_stop.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

/// What decides which examples form which step.
json::object data_of(const RunConfig& config, const RunFacts& facts) {
  json::array weights;
  for (const data::CorpusConfig& corpus : config.data.corpora) weights.emplace_back(corpus.weight);
  return {{"fingerprint", facts.data.hex()}, {"weights", std::move(weights)}, {"temperature", config.data.temperature}};
}

json::object batch_of(const RunConfig& config, const RunFacts& facts) {
  json::object batch = config::to_json(config.batch).as_object();
  batch["global_size"] = facts.sizes.global_size;
  batch["micro_size"] = facts.sizes.micro_size;
  batch.erase("accumulation");
  return batch;
}

/// Canonical text of the part at a pointer: numbers compare by value, whatever JSON made of their type.
std::string text_at(const json::object& section, std::string_view pointer) {
  json::error_code missing;
  const json::value whole(section);
  const json::value* found = whole.find_pointer(pointer, missing);
  return found == nullptr ? "nothing" : config::text_of(*found, false);
}

/// Members of two objects that differ, as "lr: 0.001, was 0.002".
void add_differences(const json::object& saved, const json::object& wanted, const std::string& prefix,
                     std::vector<std::string>& texts) {
  for (const auto& [key, value] : wanted) {
    const std::string now = config::text_of(value, false);
    const json::value* before = saved.if_contains(key);
    const std::string was = before == nullptr ? "nothing" : config::text_of(*before, false);
    if (now != was) texts.push_back(fmt::format("{}.{}: {}, was {}", prefix, std::string_view(key), now, was));
  }
}

std::int64_t count_at(const json::object& section, std::string_view key) {
  return section.at(key).to_number<std::int64_t>();
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

checkpoint::Sections sections_of(const RunConfig& config, const RunFacts& facts, const RunState& state) {
  checkpoint::Sections sections;
  const bool tied = config.model.tie_embeddings.value_or(!is_language_model(config));
  sections.model = {{"arch", config::to_json(config.model.type)},
                    {"config", config::to_json(config.model)},
                    {"config_digest", config::digest_of_config(config.model).hex()},
                    {"tokenizer_digest", facts.tokenizer.hex()},
                    {"vocab_size", facts.vocab_live},
                    {"tied", tied ? json::array{"embeddings", "output"} : json::array{}}};
  sections.optimizer = {{"type", config::to_json(config.optimizer.type)},
                        {"hparams", config::to_json(config.optimizer)},
                        {"loss", config::to_json(config.loss)},
                        {"precision", config::to_json(config.precision)},
                        {"step", state.updates}};
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
                         {"steps", state.window.steps},
                         {"clipped", state.window.clipped}}}};
  sections.data = {{"seed", config.seed},         {"order", data_of(config, facts)}, {"batch", batch_of(config, facts)},
                   {"epoch", state.cursor.epoch}, {"epoch_step", state.cursor.step}, {"epoch_done", state.epoch}};
  sections.rng = {{"kind", "philox"}, {"seed", config.seed}};
  sections.metrics = state.metrics;
  sections.best = {{"loss", state.best_loss}, {"step", state.best_step}, {"validation_is_due", state.owes_validation}};
  for (const auto& [key, value] : state.judged) sections.best[key] = value;
  sections.history = state.history;
  return sections;
}

RunState state_of(const checkpoint::Reader& reader) {
  const checkpoint::Sections& sections = reader.sections();
  try {
    RunState state;
    state.step = reader.step();
    state.updates = count_at(sections.optimizer, "step");
    state.cursor = {count_at(sections.data, "epoch"), count_at(sections.data, "epoch_step")};
    state.epoch = sections.data.at("epoch_done").to_number<double>();
    state.src_tokens = count_at(sections.counters, "src_tokens");
    state.tgt_tokens = count_at(sections.counters, "tgt_tokens");
    state.padded_tokens = count_at(sections.counters, "padded_tokens");
    state.n_clips = count_at(sections.counters, "n_clips");
    state.guard = {.mean_norm = sections.counters.at("mean_norm").to_number<double>(),
                   .taken = count_at(sections.counters, "mean_norm_steps"),
                   .skipped = count_at(sections.counters, "skipped"),
                   .in_a_row = count_at(sections.counters, "skipped_in_a_row")};
    if (const json::value* window = sections.counters.if_contains("window")) {
      const json::object& sums = window->as_object();
      state.window = {.loss = sums.at("loss").to_number<double>(),
                      .nll = sums.at("nll").to_number<double>(),
                      .tgt_tokens = sums.at("tgt_tokens").to_number<double>(),
                      .steps = count_at(sums, "steps"),
                      .clipped = count_at(sums, "clipped")};
    }
    state.best_loss = sections.best.at("loss").to_number<double>();
    state.best_step = count_at(sections.best, "step");
    if (const json::value* due = sections.best.if_contains("validation_is_due")) state.owes_validation = due->as_bool();
    for (const char* key : Judge::state_keys) {
      if (const json::value* judged = sections.best.if_contains(key)) state.judged[key] = *judged;
    }
    state.metrics = sections.metrics;
    state.history = sections.history;
    return state;
  } catch (const boost::system::system_error& error) {
    throw Error{Fault::corrupt,
                {.wanted = "the state of a training run", .got = error.what(), .where = reader.directory().string()}};
  } catch (const std::out_of_range& error) {
    throw Error{Fault::corrupt,
                {.wanted = "the state of a training run", .got = error.what(), .where = reader.directory().string()}};
  }
}

std::vector<std::string> check_resumable(const checkpoint::Sections& saved, const checkpoint::Sections& wanted,
                                         std::span<const std::string> allowed, const std::string& where) {
  struct Fixed {
    const json::object &saved, &wanted;
    const char *pointer, *key;
    bool always;
  };
  const Fixed fixed[] = {{saved.model, wanted.model, "/config", "model", true},
                         {saved.model, wanted.model, "/tokenizer_digest", "data.tokenizer", true},
                         {saved.model, wanted.model, "/vocab_size", "data.tokenizer", true},
                         {saved.data, wanted.data, "/order", "data", false},
                         {saved.data, wanted.data, "/batch", "batch", false},
                         {saved.data, wanted.data, "/seed", "seed", false},
                         {saved.optimizer, wanted.optimizer, "/precision", "precision", false},
                         {saved.optimizer, wanted.optimizer, "/loss", "loss", false},
                         {saved.optimizer, wanted.optimizer, "/type", "optimizer.type", false}};
  std::vector<std::string> changes;
  for (const Fixed& part : fixed) {
    const std::string was = text_at(part.saved, part.pointer), now = text_at(part.wanted, part.pointer);
    if (was == now) continue;
    if (!part.always && std::find(allowed.begin(), allowed.end(), part.key) != allowed.end()) {
      changes.push_back(fmt::format("{}: {}, was {}", part.key, now, was));
      continue;
    }
    throw Error{Fault::config,
                {.wanted = fmt::format("the {} this run was begun with, {}", part.key, was),
                 .got = now,
                 .where = where,
                 .remedy = part.always ? "undo the change, or begin a run in another run_dir"
                                       : fmt::format("undo the change, or allow it with --allow-change {}", part.key)}};
  }
  add_differences(saved.optimizer.at("hparams").as_object(), wanted.optimizer.at("hparams").as_object(), "optimizer",
                  changes);
  add_differences(saved.schedule.at("args").as_object(), wanted.schedule.at("args").as_object(), "schedule", changes);
  return changes;
}

}  // namespace argosy::train
