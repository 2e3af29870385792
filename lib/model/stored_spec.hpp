#pragma once

#include <optional>

#include "checkpoint/checkpoint.hpp"
#include "spec/model_spec.hpp"

/// What a checkpoint's manifest says of its model, held against the parameters that lie in its shards: whoever builds,
/// exports or averages a model by the manifest's word asks here first. Torch-free.
namespace argosy::model {

/// nullopt: the manifest describes no model. Throws Error{corrupt} for a description that is none.
[[nodiscard]] std::optional<spec::ModelConfig> stored_config(const checkpoint::Reader& reader);

/// The model of that configuration with a tokenizer of `pieces` pieces. Throws Error{corrupt} naming the first
/// parameter that it has and the checkpoint has not, or has in another shape, or the other way round.
[[nodiscard]] spec::ModelSpec stored_spec(const checkpoint::Reader& reader, const spec::ModelConfig& config,
                                          std::int64_t pieces);

/// The same for a manifest's own word on the size of its vocabulary; of one that describes no model nothing is asked.
void require_own_parameters(const checkpoint::Reader& reader);

}  // namespace argosy::model
