#pragma once

#include <boost/json/object.hpp>
#include <optional>

#include "checkpoint/checkpoint.hpp"
#include "spec/fine_tuning.hpp"

/// Compares the model that a checkpoint's manifest describes with the parameters in its shards. Code that builds,
/// exports or averages a model from a manifest calls this first. Torch-free.
namespace argosy::model {

/// The section `model` of a manifest. tokenizer: data::digests_of(); pieces: of the tokenizer; trained_in: the type
/// that forward passes had in training; lora: of a model with adapters; sharing: of a model whose tasks do not share
/// all of it.
[[nodiscard]] boost::json::object model_section(const spec::ModelConfig& config, const boost::json::value& tokenizer,
                                                std::int64_t pieces, DType trained_in,
                                                const std::optional<spec::LoraConfig>& lora = std::nullopt,
                                                const spec::Sharing& sharing = {});

/// Whether two such sections have a tokenizer for each language, the same of the languages that both have.
[[nodiscard]] bool share_tokenizers(const boost::json::object& a, const boost::json::object& b);

/// nullopt: the manifest describes no model. Throws Error{corrupt} for an invalid description.
[[nodiscard]] std::optional<spec::ModelConfig> stored_config(const checkpoint::Reader& reader);

/// The type that forward passes had in training: f32, bf16 or f16. Older soups do not say it: f32.
[[nodiscard]] DType stored_type(const checkpoint::Reader& reader);

/// The same of the adapters; nullopt: it has none.
[[nodiscard]] std::optional<spec::LoraConfig> stored_lora(const checkpoint::Reader& reader);

/// The tasks of the model, which share parts of it; none: they share all of it, or it has none. Throws Error{corrupt}
/// for an invalid description.
[[nodiscard]] spec::Sharing stored_sharing(const checkpoint::Reader& reader);

/// The model of that configuration, of all tasks, with its adapters and a tokenizer of `pieces` pieces. Throws
/// Error{corrupt} with the first parameter that only the model or only the checkpoint has, or whose shapes differ.
[[nodiscard]] spec::ModelSpec stored_spec(const checkpoint::Reader& reader, const spec::ModelConfig& config,
                                          std::int64_t pieces);

/// The same check with the vocabulary size that the manifest gives. Does nothing if the manifest describes no model.
void require_own_parameters(const checkpoint::Reader& reader);

}  // namespace argosy::model
