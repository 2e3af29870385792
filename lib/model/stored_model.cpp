#include "model/stored_model.hpp"

#include "core/error.hpp"
#include "model/stored_shape.hpp"

namespace argosy::model {

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
