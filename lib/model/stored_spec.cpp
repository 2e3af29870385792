#include "model/stored_spec.hpp"

#include <fmt/ranges.h>

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

std::string text_of(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

boost::json::object model_section(const spec::ModelConfig& config, const Digest& tokenizer, std::int64_t pieces,
                                  const std::optional<spec::LoraConfig>& lora) {
  using boost::json::array;
  const bool tied = config.tie_embeddings.value_or(config.type == spec::ModelType::encoder_decoder);
  boost::json::object section{{"arch", config::to_json(config.type)},
                              {"config", config::to_json(config)},
                              {"config_digest", config::digest_of_config(config).hex()},
                              {"tokenizer_digest", tokenizer.hex()},
                              {"vocab_size", pieces},
                              {"tied", tied                                ? array{"embeddings", "output"}
                                       : config.tie_inputs.value_or(false) ? array{"embeddings"}
                                                                           : array{}}};
  if (lora) section["lora"] = config::to_json(*lora);
  return section;
}

std::optional<spec::ModelConfig> stored_config(const checkpoint::Reader& reader) {
  const boost::json::value* const section = reader.sections().model.if_contains("config");
  if (section == nullptr) return std::nullopt;
  return by_its_word(reader, [&] {
    return config::from_document<spec::ModelConfig>(
        config::Document::parse(boost::json::serialize(*section), manifest_of(reader)));
  });
}

std::optional<spec::LoraConfig> stored_lora(const checkpoint::Reader& reader) {
  const boost::json::value* const section = reader.sections().model.if_contains("lora");
  if (section == nullptr) return std::nullopt;
  auto lora = by_its_word(reader, [&] {
    return config::from_document<spec::LoraConfig>(
        config::Document::parse(boost::json::serialize(*section), manifest_of(reader)));
  });
  if (!lora.rank) fail(reader, "the rank of its adapters", "none");
  return lora;
}

spec::ModelSpec stored_spec(const checkpoint::Reader& reader, const spec::ModelConfig& config, std::int64_t pieces) {
  const spec::Architecture shape = by_its_word(reader, [&] { return spec::resolve(config, pieces); });
  std::map<std::string_view, const std::vector<std::int64_t>*> stored;
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
    stored.emplace(parameter.name, &parameter.shape);
  // Before anything is made for each layer: a number in a file costs nothing, a layer does.
  const std::int64_t layers = shape.encoder_layers + shape.decoder_layers;
  if (layers > static_cast<std::int64_t>(stored.size()))
    fail(reader, fmt::format("the parameters of {} layers", layers), fmt::format("{} in all", stored.size()));
  spec::ModelSpec spec = shape;
  if (const auto lora = stored_lora(reader))
    spec = by_its_word(reader, [&] { return spec::with_adapters(std::move(spec), *lora); });
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& param : unit.parameters) {
      const auto found = stored.find(param.name);
      if (found == stored.end()) fail(reader, "the parameter " + param.name, "none in the shards");
      if (*found->second != param.shape)
        fail(reader, fmt::format("{} of shape {}", param.name, text_of(param.shape)), text_of(*found->second));
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
