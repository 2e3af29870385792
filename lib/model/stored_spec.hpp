#pragma once

#include <boost/json/object.hpp>
#include <optional>

#include "checkpoint/checkpoint.hpp"
#include "spec/fine_tuning.hpp"

/// Compares the model that a checkpoint's manifest describes with the parameters in its shards. Code that builds,
/// exports or averages a model from a manifest calls this first. Torch-free.
namespace argosy::model {

/// The section `model` of a manifest. pieces: of the tokenizer with that digest; lora: of a model with adapters.
[[nodiscard]] boost::json::object model_section(const spec::ModelConfig& config, const Digest& tokenizer,
                                                std::int64_t pieces,
                                                const std::optional<spec::LoraConfig>& lora = std::nullopt);

/// nullopt: the manifest describes no model. Throws Error{corrupt} for an invalid description.
[[nodiscard]] std::optional<spec::ModelConfig> stored_config(const checkpoint::Reader& reader);

/// The same of the adapters; nullopt: it has none.
[[nodiscard]] std::optional<spec::LoraConfig> stored_lora(const checkpoint::Reader& reader);

/// The model of that configuration, with its adapters and a tokenizer of `pieces` pieces. Throws Error{corrupt} with
/// the first parameter that only the model or only the checkpoint has, or whose shapes differ.
[[nodiscard]] spec::ModelSpec stored_spec(const checkpoint::Reader& reader, const spec::ModelConfig& config,
                                          std::int64_t pieces);

/// The same check with the vocabulary size that the manifest gives. Does nothing if the manifest describes no model.
void require_own_parameters(const checkpoint::Reader& reader);

}  // namespace argosy::model
