#pragma once

#include <cmath>
#include <vector>

#include "support/small_model.hpp"
#include "unit/model/support.hpp"

/// Two kinds of models: such that give every step the same probabilities, whose results are worked out by hand, and
/// random ones with a vocabulary so small that all translations can be listed.
namespace argosy::test {

inline spec::Architecture shape_of(spec::ModelType type, std::int64_t live, std::int64_t max_positions = 32) {
  const int encoder_layers = type == spec::ModelType::encoder_decoder ? 1 : 0;
  spec::ModelConfig config = model_config(
      {.type = type, .width = 8, .ff = 8, .heads = 2, .encoder_layers = encoder_layers, .decoder_layers = 2});
  config.vocab_multiple = 8;
  config.max_positions = max_positions;
  config.bias = true;
  return resolve(config, live);
}

/// A decoder that reads prompts in both directions.
inline spec::Architecture prefix_lm(std::int64_t live) {
  spec::Architecture shape = shape_of(spec::ModelType::decoder, live);
  shape.prefix_lm = true;
  return shape;
}

/// Live ids 0 (EOS of translation models), 1, … come with these probabilities, whatever stands before.
inline BoundModel constant(const std::vector<double>& probabilities, std::int64_t max_positions = 32,
                           spec::ModelType type = spec::ModelType::encoder_decoder) {
  BoundModel bound(shape_of(type, static_cast<std::int64_t>(probabilities.size()), max_positions));
  for (const at::Tensor& flat : bound.weights) flat.zero_();
  float* bias = bound.parameter("decoder/projection/bias").weight.data_ptr<float>();
  for (const double p : probabilities) *bias++ = static_cast<float>(std::log(p));
  return bound;
}

}  // namespace argosy::test
