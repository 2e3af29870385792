#pragma once

#include "core/file.hpp"
#include "model/stored_model.hpp"

/// Reads Hugging Face folders: the inverse of the format hf, by the same tables (FORMAT.md).
namespace argosy::interchange {

/// Whether the folder holds a model of transformers, by its content.
[[nodiscard]] bool is_hugging_face(const Files& files, const Path& folder);

/// Opens the model of a folder. All names, types and shapes are checked; the weights are read later. Not collective.
/// Throws Error{usage} for a model that Argosy does not have, naming what is different; Error{data} for missing files
/// and for tensors that are missing, left over or of another shape, which are listed together; Error{corrupt},
/// Error{io}.
[[nodiscard]] model::StoredModel hugging_face_model(const Files& files, const Path& folder);

}  // namespace argosy::interchange
