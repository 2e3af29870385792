#include "model/stored_model.hpp"

#include <boost/json/serialize.hpp>

#include "config/describe.hpp"
#include "core/error.hpp"

namespace argosy::model {

data::ModelShape token_shape(const ModelConfig& config) {
  if (config.type == ModelType::decoder) return data::ModelShape::llama;
  const bool pre = config.norm_position.value_or(NormPosition::post) == NormPosition::pre;
  return pre ? data::ModelShape::pegasus : data::ModelShape::marian;
}

StoredModel stored_model(const checkpoint::Reader& reader) {
  const std::string where = (reader.directory() / "MANIFEST.json").string();
  const boost::json::value* section = reader.sections().model.if_contains("config");
  if (section == nullptr) {
    throw Error{Fault::data, {.wanted = "a model configuration", .got = "none", .where = where}};
  }
  const auto config =
      config::from_document<ModelConfig>(config::Document::parse(boost::json::serialize(*section), where));
  data::Tokenizer tokenizer = data::Tokenizer::load(reader.attachment("tokenizer.model"), token_shape(config), where);
  const ModelShape shape = resolve(config, tokenizer.vocabulary().live_size);
  return {shape, std::move(tokenizer)};
}

}  // namespace argosy::model
