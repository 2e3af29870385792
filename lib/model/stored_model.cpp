#include "model/stored_model.hpp"

#include "core/error.hpp"
#include "model/stored_spec.hpp"

namespace argosy::model {

StoredModel stored_model(const checkpoint::Reader& reader) {
  const std::string where = (reader.directory() / "MANIFEST.json").string();
  const std::optional<spec::ModelConfig> config = stored_config(reader);
  if (!config)
    throw_error(Fault::data, where, "a model configuration", "none",
                "use a checkpoint of apps/train, or a soup of them");
  data::Tokenizer tokenizer =
      data::Tokenizer::load(reader.attachment("tokenizer.model"), spec::vocabulary_rule(*config), where);
  const spec::ModelSpec spec = stored_spec(reader, *config, tokenizer.vocabulary().pieces);
  return {spec, std::move(tokenizer)};
}

}  // namespace argosy::model
