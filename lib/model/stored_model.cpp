#include "model/stored_model.hpp"

#include "core/error.hpp"
#include "model/stored_shape.hpp"

namespace argosy::model {

data::ModelShape token_shape(const ModelConfig& config) {
  if (config.type == ModelType::decoder) return data::ModelShape::llama;
  const bool pre = config.norm_position.value_or(NormPosition::post) == NormPosition::pre;
  return pre ? data::ModelShape::pegasus : data::ModelShape::marian;
}

StoredModel stored_model(const checkpoint::Reader& reader) {
  const std::string where = (reader.directory() / "MANIFEST.json").string();
  const std::optional<ModelConfig> config = stored_config(reader);
  if (!config) {
    throw Error{Fault::data, {.wanted = "a model configuration", .got = "none", .where = where}};
  }
  data::Tokenizer tokenizer = data::Tokenizer::load(reader.attachment("tokenizer.model"), token_shape(*config), where);
  const ModelShape shape = stored_shape(reader, *config, tokenizer.vocabulary().live_size);
  return {shape, std::move(tokenizer)};
}

}  // namespace argosy::model
