#include "model/stored_model.hpp"

#include <map>

#include "core/error.hpp"
#include "model/stored_spec.hpp"

namespace argosy::model {
namespace {

class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const checkpoint::Reader& reader, std::unique_ptr<const checkpoint::Reader> owned)
      : owned_(std::move(owned)), reader_(reader) {
    for (std::size_t id = 0; id < reader.parameters().size(); ++id) ids_.emplace(reader.parameters()[id].name, id);
  }
  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    reader_.read_elements(ids_.at(parameter.name), begin, to);
  }

 private:
  std::unique_ptr<const checkpoint::Reader> owned_;  // or null
  const checkpoint::Reader& reader_;
  std::map<std::string, std::size_t> ids_;  // by name
};

StoredModel open_model(const checkpoint::Reader& reader, std::unique_ptr<const checkpoint::Reader> owned) {
  const std::string where = (reader.directory() / "MANIFEST.json").string();
  const std::optional<spec::ModelConfig> config = stored_config(reader);
  if (!config)
    throw_error(Fault::data, where, "a model configuration", "none",
                "use a checkpoint of apps/train, or a soup of them");
  data::Tokenizer tokenizer =
      data::Tokenizer::load(reader.attachment("tokenizer.model"), spec::vocabulary_rule(*config), where);
  spec::ModelSpec spec = stored_spec(reader, *config, tokenizer.vocabulary().pieces);
  return {*config,
          std::move(spec),
          std::move(tokenizer),
          std::make_unique<CheckpointWeights>(reader, std::move(owned)),
          reader.directory().string(),
          reader.run_uuid(),
          reader.step()};
}

}  // namespace

StoredModel stored_model(const checkpoint::Reader& reader) { return open_model(reader, nullptr); }

StoredModel stored_model(std::unique_ptr<const checkpoint::Reader> reader) {
  const checkpoint::Reader& borrowed = *reader;
  return open_model(borrowed, std::move(reader));
}

}  // namespace argosy::model
