#pragma once

#include "spec/model_config.hpp"

namespace argosy::test {

/// The sizes of a small model. encoder_layers 0: they are not set.
struct ModelSizes {
  spec::ModelType type = spec::ModelType::encoder_decoder;
  std::int64_t width = 0, ff = 0, heads = 0, encoder_layers = 0, decoder_layers = 0;
};

/// A configuration with these sizes; tests set what else they need.
inline spec::ModelConfig model_config(const ModelSizes& sizes) {
  spec::ModelConfig config;
  config.type = sizes.type;
  config.width = sizes.width;
  config.ff = sizes.ff;
  config.heads = sizes.heads;
  if (sizes.encoder_layers > 0) config.encoder.layers = sizes.encoder_layers;
  config.decoder.layers = sizes.decoder_layers;
  return config;
}

}  // namespace argosy::test
