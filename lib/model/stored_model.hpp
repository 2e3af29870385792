#pragma once

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "spec/model_spec.hpp"

/// The model a checkpoint or soup holds, as far as it can be known without torch: what export and decode start from.
namespace argosy::model {

struct StoredModel {
  spec::ModelSpec spec;
  data::Tokenizer tokenizer;
};

/// Not collective. Throws Error{data} when the checkpoint carries no model configuration or no tokenizer,
/// Error{corrupt} when these and the parameters stored do not belong together.
[[nodiscard]] StoredModel stored_model(const checkpoint::Reader& reader);

}  // namespace argosy::model
