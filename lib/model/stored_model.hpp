#pragma once

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "spec/model_spec.hpp"

/// The model of a checkpoint or soup, as far as it can be known without torch. Export and decode start from it.
namespace argosy::model {

struct StoredModel {
  spec::ModelSpec spec;
  data::Tokenizer tokenizer;
};

/// Not collective. Throws Error{data} if the checkpoint has no model configuration or no tokenizer, and Error{corrupt}
/// if these do not fit the stored parameters.
[[nodiscard]] StoredModel stored_model(const checkpoint::Reader& reader);

}  // namespace argosy::model
