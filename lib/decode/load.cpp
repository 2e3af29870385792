#include "decode/load.hpp"

#include <ATen/Functions.h>

#include <utility>

namespace argosy::decode {

LoadedModel load_model(model::StoredModel stored, c10::Device device) {
  auto built = std::make_unique<model::Model>(stored.spec, partition::Layout{});
  std::vector<at::Tensor> weights;
  for (std::size_t u = 0; u < built->units().size(); ++u) {
    model::Unit& unit = built->units()[u];
    at::Tensor flat = at::zeros({unit.space().padded_size()}, at::kFloat);
    unit.bind(flat, {});
    for (model::Parameter& parameter : unit.parameters()) {
      stored.weights->read(stored.spec.units[u].parameter(parameter.name), 0,
                           {parameter.weight.data_ptr<float>(), static_cast<std::size_t>(parameter.weight.numel())});
    }
    if (!device.is_cpu()) {
      flat = flat.to(device);
      unit.bind(flat, {});
    }
    weights.push_back(std::move(flat));
  }
  return {std::move(built), std::move(stored.tokenizer), std::move(weights)};
}

LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device) {
  return load_model(model::stored_model(reader), device);
}

}  // namespace argosy::decode
