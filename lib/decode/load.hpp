#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "model/model.hpp"

/// A model ready for inference out of a committed checkpoint or soup, whatever layout saved it.
namespace argosy::decode {

/// Owns the weights its model is bound to; move-only.
struct LoadedModel {
  std::unique_ptr<model::Model> model;
  data::Tokenizer tokenizer;
  std::vector<at::Tensor> weights;  // flat buffers by unit, fp32
};

/// Not collective. Throws Error{data} when the checkpoint carries no tokenizer or no parameters of its own model,
/// Error{corrupt} on damage.
[[nodiscard]] LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device);

}  // namespace argosy::decode
