#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "data/tokenizer.hpp"
#include "model/model.hpp"
#include "model/stored_model.hpp"

/// Loads a model for inference: of a committed checkpoint or soup of any layout, or of another program.
namespace argosy::decode {

/// Owns the weights that its model uses. Move-only.
struct LoadedModel {
  std::unique_ptr<model::Model> model;
  data::Tokenizer tokenizer;
  std::vector<at::Tensor> weights;  // flat buffers by unit, fp32
};

/// Not collective. Throws Error{corrupt} on damage, Error{io}.
[[nodiscard]] LoadedModel load_model(model::StoredModel stored, c10::Device device);
/// Throws as model::stored_model() as well.
[[nodiscard]] LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device);

}  // namespace argosy::decode
