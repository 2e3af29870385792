#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "model/model.hpp"

/// Loads a model for inference from a committed checkpoint or soup of any layout.
namespace argosy::decode {

/// Owns the weights that its model uses. Move-only.
struct LoadedModel {
  std::unique_ptr<model::Model> model;
  data::Tokenizer tokenizer;
  std::vector<at::Tensor> weights;  // flat buffers by unit, fp32
};

/// Not collective. Throws Error{data} when the checkpoint has no tokenizer or lacks parameters of its model,
/// Error{corrupt} on damage.
[[nodiscard]] LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device);

}  // namespace argosy::decode
