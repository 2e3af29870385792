#pragma once

#include <c10/core/Device.h>

#include <boost/describe/enum.hpp>
#include <memory>
#include <vector>

#include "data/tokenizer.hpp"
#include "model/model.hpp"
#include "model/stored_model.hpp"

/// Loads a model for inference: of a committed checkpoint or soup of any layout, or of another program.
namespace argosy::decode {

/// bf16: weights, what is computed from them, keys and values have 16 bits; sums and logits have 32. int8: weights are
/// loaded in fp32; make the Inference with kernels::PackedType::int8.
enum class Precision { fp32, bf16, int8 };
BOOST_DESCRIBE_ENUM(Precision, fp32, bf16, int8)

/// Owns the weights that its model uses. Move-only.
struct LoadedModel {
  std::unique_ptr<model::Model> model;
  data::Tokenizer tokenizer;
  std::vector<at::Tensor> weights;  // flat buffers by unit
};

/// Not collective. Throws Error{corrupt} on damage, Error{io}, Error{device} for bf16 on a CPU without products of
/// bf16.
[[nodiscard]] LoadedModel load_model(model::StoredModel stored, c10::Device device,
                                     Precision precision = Precision::fp32);
/// Throws as model::stored_model() as well.
[[nodiscard]] LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device,
                                     Precision precision = Precision::fp32);

}  // namespace argosy::decode
