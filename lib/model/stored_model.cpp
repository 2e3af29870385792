#include "model/stored_model.hpp"

#include <boost/json/serialize.hpp>

#include "config/describe.hpp"
#include "core/error.hpp"

namespace argosy::model {

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
