#include "model/stored_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/stored_spec.hpp"

namespace argosy::model {
namespace {

using Names = std::map<std::string, std::string>;

class CheckpointWeights final : public WeightSource {
 public:
  /// stored: the names in the checkpoint of those of the model.
  CheckpointWeights(const checkpoint::Reader& reader, std::unique_ptr<const checkpoint::Reader> owned,
                    const Names& stored)
      : owned_(std::move(owned)), reader_(reader) {
    std::map<std::string_view, std::size_t> ids;
    for (std::size_t id = 0; id < reader.parameters().size(); ++id) ids.emplace(reader.parameters()[id].name, id);
    for (const auto& [name, there] : stored) ids_.emplace(name, ids.at(there));
  }
  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    reader_.read_elements(ids_.at(parameter.name), begin, to);
  }

 private:
  std::unique_ptr<const checkpoint::Reader> owned_;  // or null
  const checkpoint::Reader& reader_;
  std::map<std::string, std::size_t> ids_;  // by name
};

/// W + scale·B·A for the matrices that have adapters, summed in fp32; all else as it is.
class MergedWeights final : public WeightSource {
 public:
  MergedWeights(const spec::ModelSpec& with_adapters, std::unique_ptr<const WeightSource> weights)
      : weights_(std::move(weights)) {
    for (const spec::Unit& unit : with_adapters.units)
      for (const spec::Parameter& parameter : unit.parameters)
        if (parameter.is_adapter()) adapters_.emplace(parameter.name, parameter);
  }

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    weights_->read(parameter, begin, to);
    const std::optional<spec::AdapterNames> names = spec::adapter_names(parameter.name);
    if (!names || !adapters_.contains(names->down)) return;
    const spec::Parameter &down = adapters_.at(names->down), &up = adapters_.at(names->up);
    if (down_of_ != down.name) {  // parameters are read from the first to the last element
      down_.resize(static_cast<std::size_t>(down.numel()));
      weights_->read(down, 0, down_);
      down_of_ = down.name;
    }
    const std::int64_t columns = parameter.shape.back(), end = begin + std::ssize(to);
    std::vector<float> factors(static_cast<std::size_t>(up.shape.back()));
    for (const spec::AdapterPart& part : spec::adapter_parts(parameter, down, up)) {
      const std::int64_t last = std::min(part.begin + part.rows, (end + columns - 1) / columns);
      for (std::int64_t row = std::max(part.begin, begin / columns); row < last; ++row) {
        weights_->read(up, (part.up + row - part.begin) * part.rank, factors);
        const std::int64_t from = std::max(begin, row * columns), until = std::min(end, (row + 1) * columns);
        float* const values = to.data() + (from - begin);
        for (std::int64_t k = 0; k < part.rank; ++k) {
          const float factor = static_cast<float>(up.scale) * factors[static_cast<std::size_t>(k)];
          const float* const a = down_.data() + (part.down + k) * columns + (from - row * columns);
          for (std::int64_t i = 0; i < until - from; ++i) values[i] += factor * a[i];
        }
      }
    }
  }

 private:
  std::unique_ptr<const WeightSource> weights_;
  std::map<std::string, spec::Parameter> adapters_;  // by name
  mutable std::string down_of_;
  mutable std::vector<float> down_;  // A of the matrix that was read last
};

/// wanted: a task; absent: all of them.
StoredModel open_model(const checkpoint::Reader& reader, std::unique_ptr<const checkpoint::Reader> owned,
                       const std::optional<std::string>& wanted) {
  const std::string where = (reader.directory() / "MANIFEST.json").string(), folder = reader.directory().string();
  const std::optional<spec::ModelConfig> config = stored_config(reader);
  if (!config)
    throw_error(Fault::data, where, "a model configuration", "none",
                "use a checkpoint of apps/train, or a soup of them");
  data::Tokenizer tokenizer =
      data::Tokenizer::load(reader.attachment("tokenizer.model"), spec::vocabulary_rule(*config), where);
  spec::ModelSpec spec = stored_spec(reader, *config, tokenizer.vocabulary().pieces);
  require_embeddings(Fault::corrupt, tokenizer, spec.architecture, where);
  for (const spec::Task& each : spec.sharing.tasks)
    for (const std::string& language : {each.source, each.target})
      if (tokenizer.is_by_language() && !tokenizer.parts().contains(language))
        throw_error(Fault::corrupt, where, "a tokenizer of the language " + language, "none",
                    "use another checkpoint; this one's files contradict each other");
  const std::vector<spec::Task>& tasks = spec.sharing.tasks;
  const std::string task = wanted.value_or("");
  if (tasks.empty() && !task.empty())
    throw_claim(Fault::usage, fmt::format("--task {}: the model of {} has no tasks", task, folder), folder,
                "a model of several tasks", "one of a single task, or whose tasks share all of it", "leave --task out");
  if (!tasks.empty() && wanted == "")
    throw_claim(Fault::usage, fmt::format("{} is a model of several tasks: {}", folder, spec::text_of(tasks)), folder,
                "a task", "none",
                "give one with --task, or first make a model of it: apps/export CHECKPOINT --task TASK --format argosy "
                "--out FOLDER");
  Names stored;
  spec::ModelConfig own = *config;
  if (task.empty()) {
    for (const spec::Unit& unit : spec.units)
      for (const spec::Parameter& parameter : unit.parameters) stored.emplace(parameter.name, parameter.name);
  } else {
    const spec::Task direction = spec::task_named(spec.sharing, task);
    spec::RouteModel route = spec::model_of_task(spec, direction);
    own = spec::as_plain(*config);
    if (tokenizer.is_by_language()) own.vocab_size = tokenizer.vocabulary().pieces;  // others may be larger
    tokenizer = tokenizer.of(std::array{direction.source, direction.target});
    spec = std::move(route.spec);
    stored = std::move(route.stored);
  }
  std::unique_ptr<const WeightSource> weights = std::make_unique<CheckpointWeights>(reader, std::move(owned), stored);
  std::optional<StoredAdapters> adapters;
  if (std::optional<spec::LoraConfig> lora = stored_lora(reader)) {
    weights = std::make_unique<MergedWeights>(spec, std::move(weights));
    spec::ModelSpec merged(spec.architecture, spec.sharing);
    adapters = {std::move(*lora), std::exchange(spec, std::move(merged))};
  }
  return {std::move(own),
          std::move(spec),
          std::move(tokenizer),
          std::move(weights),
          folder,
          reader.run_uuid(),
          reader.step(),
          std::move(adapters),
          task,
          {},
          stored_type(reader)};
}

}  // namespace

void require_embeddings(Fault fault, const data::Tokenizer& tokenizer, const spec::Architecture& shape,
                        const std::string& where) {
  if (tokenizer.is_by_language() && !shape.embeddings_by_language)
    throw_error(fault, where, "one tokenizer, since all languages have the same embeddings",
                "a tokenizer for each language", "set model.embeddings to {\"share\": \"language\"}");
  const bool differ = shape.type == spec::ModelType::encoder_decoder && !shape.tie_inputs;  // of source and target
  if (tokenizer.is_by_side() && (!differ || shape.embeddings_by_language))
    throw_error(fault, where, "a tokenizer for each side only where each side has its embeddings",
                "a tokenizer for each side", "set model.tie_inputs to false, or name another tokenizer");
  const std::int64_t eos = tokenizer.vocabulary().eos;
  for (const auto& [part, own] : tokenizer.parts()) {
    const std::string end = tokenizer.parts().begin()->second.piece(eos), other = own.piece(eos);
    if (end != other)
      throw_error(fault, where, fmt::format("one piece of the id {}, which ends a text, in all tokenizers", eos),
                  fmt::format("{}, and {} of {}", end, other, part), "use tokenizers with the same special ids");
  }
}

StoredModel stored_model(const checkpoint::Reader& reader, const std::string& task) {
  return open_model(reader, nullptr, task);
}

StoredModel stored_model(std::unique_ptr<const checkpoint::Reader> reader, const std::string& task) {
  const checkpoint::Reader& borrowed = *reader;
  return open_model(borrowed, std::move(reader), task);
}

StoredModel whole_model(const checkpoint::Reader& reader) { return open_model(reader, nullptr, std::nullopt); }

StoredModel whole_model(std::unique_ptr<const checkpoint::Reader> reader) {
  const checkpoint::Reader& borrowed = *reader;
  return open_model(borrowed, std::move(reader), std::nullopt);
}

}  // namespace argosy::model
