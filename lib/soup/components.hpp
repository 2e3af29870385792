#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "soup/inputs.hpp"
#include "spec/model_spec.hpp"

/// Means of models with different tasks (spec/sharing.hpp): each component is the mean over the checkpoints that have
/// it, and the soup is a model of all their tasks.
namespace argosy::soup {

/// The model of all tasks that the checkpoints have, which are of the same configuration. Throws Error{data} if one of
/// them has no tasks or cannot be a part of that model, as tasks of one name or groups of one language differ.
[[nodiscard]] spec::ModelSpec model_of_all_tasks(std::span<const checkpoint::Reader> readers);

inline constexpr const char* tokenizer_file = "tokenizer.model";
/// That file of the model of all tasks; nullopt: there is one tokenizer for all languages, or no such model. Throws
/// Error{data} if the checkpoints have different tokenizers of a language.
[[nodiscard]] std::optional<std::string> tokenizers_of_all(const Mean& mean);

/// By unit of `mean.whole`: the readers that have it. Throws Error{data} if one has only a part of a unit or another
/// shape, and Error{usage} if the weights of a unit add up to 0.
[[nodiscard]] std::vector<std::vector<std::size_t>> owners_of(const Mean& mean);

/// The components that only some readers have, with these.
[[nodiscard]] std::map<std::string, std::vector<std::size_t>> partial_components(const Mean& mean);

}  // namespace argosy::soup
