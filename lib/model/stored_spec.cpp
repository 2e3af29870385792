#include "model/stored_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <map>

#include "checkpoint/fields.hpp"
#include "checkpoint/manifest.hpp"
#include "config/describe.hpp"
#include "core/error.hpp"

namespace argosy::model {
namespace {

std::string manifest_of(const checkpoint::Reader& reader) {
  return (reader.directory() / checkpoint::manifest_name).string();
}

[[noreturn]] void fail(const checkpoint::Reader& reader, std::string wanted, std::string got) {
  throw_error(Fault::corrupt, manifest_of(reader), std::move(wanted), std::move(got),
              "use another checkpoint; this one's manifest contradicts itself");
}

/// An invalid configuration in a manifest is damage of the checkpoint, not a mistake of the user.
template <class F>
auto by_its_word(const checkpoint::Reader& reader, F&& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.fault() != Fault::config && error.fault() != Fault::usage) throw;
    fail(reader, "a model configuration as Argosy writes it", error.what());
  }
}

/// A part of the section `model`; nullopt: it does not have it.
template <class Config>
std::optional<Config> described(const checkpoint::Reader& reader, std::string_view key) {
  const boost::json::value* const part = reader.sections().model.if_contains(key);
  if (part == nullptr) return std::nullopt;
  return by_its_word(reader, [&] {
    return config::from_document<Config>(config::Document::parse(boost::json::serialize(*part), manifest_of(reader)));
  });
}

}  // namespace

boost::json::object model_section(const spec::ModelConfig& config, const boost::json::value& tokenizer,
                                  std::int64_t pieces, DType trained_in, const std::optional<spec::LoraConfig>& lora,
                                  const spec::Sharing& sharing) {
  using boost::json::array;
  const bool tied = config.tie_embeddings.value_or(config.type == spec::ModelType::encoder_decoder);
  boost::json::object section{{"arch", config::to_json(config.type)},
                              {"config", config::to_json(config)},
                              {"config_digest", config::digest_of_config(config).hex()},
                              {"tokenizer_digest", tokenizer},
                              {"vocab_size", pieces},
                              {"trained_in", name_of(trained_in)},
                              {"tied", tied                                ? array{"embeddings", "output"}
                                       : config.tie_inputs.value_or(false) ? array{"embeddings"}
                                                                           : array{}}};
  if (lora) section["lora"] = config::to_json(*lora);
  if (!spec::is_plain(config)) section["sharing"] = config::to_json(sharing);
  return section;
}

bool share_tokenizers(const boost::json::object& a, const boost::json::object& b) {
  const boost::json::value *const one = a.if_contains("tokenizer_digest"), *const other =
                                                                               b.if_contains("tokenizer_digest");
  if (one == nullptr || other == nullptr || !one->is_object() || !other->is_object()) return false;
  return std::ranges::all_of(one->get_object(), [&](const auto& language) {
    const boost::json::value* const same = other->get_object().if_contains(language.key());
    return same == nullptr || *same == language.value();
  });
}

DType stored_type(const checkpoint::Reader& reader) {
  const boost::json::object& model = reader.sections().model;
  if (const boost::json::value* const type = model.if_contains("trained_in")) {
    for (const DType known : {DType::bf16, DType::f16})
      if (*type == boost::json::value(name_of(known))) return known;
    return DType::f32;
  }
  // Checkpoints of training said it in another section before.
  boost::json::error_code none;
  const boost::json::value optimizer(reader.sections().optimizer);
  const boost::json::value* const mode = optimizer.find_pointer("/precision/mode", none);
  return mode != nullptr && mode->is_string() && mode->get_string().starts_with("bf16") ? DType::bf16 : DType::f32;
}

std::optional<spec::ModelConfig> stored_config(const checkpoint::Reader& reader) {
  return described<spec::ModelConfig>(reader, "config");
}

std::optional<spec::LoraConfig> stored_lora(const checkpoint::Reader& reader) {
  auto lora = described<spec::LoraConfig>(reader, "lora");
  if (lora && !lora->rank) fail(reader, "the rank of its adapters", "none");
  return lora;
}

spec::Sharing stored_sharing(const checkpoint::Reader& reader) {
  auto sharing = described<spec::Sharing>(reader, "sharing");
  if (sharing && sharing->tasks.empty()) fail(reader, "tasks that share the model", "a section sharing without tasks");
  return std::move(sharing).value_or(spec::Sharing{});
}

spec::ModelSpec stored_spec(const checkpoint::Reader& reader, const spec::ModelConfig& config, std::int64_t pieces) {
  const spec::Architecture shape = by_its_word(reader, [&] { return spec::resolve(config, pieces); });
  std::map<std::string_view, const std::vector<std::int64_t>*> stored;
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
    stored.emplace(parameter.name, &parameter.shape);
  spec::Sharing sharing = stored_sharing(reader);
  if (spec::is_plain(shape) != sharing.tasks.empty())
    fail(reader, spec::is_plain(shape) ? "no section sharing, since all is shared" : "the tasks that share its stacks",
         sharing.tasks.empty() ? "no section sharing" : "the tasks " + spec::text_of(sharing.tasks));
  // Before anything is made for each block: a number in a file costs nothing, a block does.
  const std::int64_t blocks = by_its_word(reader, [&] { return spec::block_count(shape, sharing); });
  if (blocks > static_cast<std::int64_t>(stored.size()))
    fail(reader, fmt::format("the parameters of {} layers", blocks), fmt::format("{} in all", stored.size()));
  spec::ModelSpec spec = by_its_word(reader, [&] { return spec::ModelSpec(shape, std::move(sharing)); });
  if (const auto lora = stored_lora(reader))
    spec = by_its_word(reader, [&] { return spec::with_adapters(std::move(spec), *lora); });
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& param : unit.parameters) {
      const auto found = stored.find(param.name);
      if (found == stored.end()) fail(reader, "the parameter " + param.name, "none in the shards");
      if (*found->second != param.shape)
        fail(reader, fmt::format("{} of shape {}", param.name, spec::text_of(param.shape)),
             spec::text_of(*found->second));
      stored.erase(found);
    }
  }
  if (!stored.empty())
    fail(reader, "the parameters of the model it describes", fmt::format("also {}", stored.begin()->first));
  return spec;
}

void require_own_parameters(const checkpoint::Reader& reader) {
  const std::optional<spec::ModelConfig> config = stored_config(reader);
  if (!config) return;
  const std::string where = manifest_of(reader);
  const checkpoint::Fields model{reader.sections().model, "/model", where};
  static_cast<void>(stored_spec(reader, *config, model.count("vocab_size", spec::most_size)));
}

}  // namespace argosy::model
