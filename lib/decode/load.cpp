#include "decode/load.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/stored_model.hpp"

namespace argosy::decode {

LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device) {
  model::StoredModel stored = model::stored_model(reader);
  auto built = std::make_unique<model::Model>(stored.spec, partition::Layout{});
  std::vector<at::Tensor> weights;
  for (model::Unit& unit : built->units()) {
    at::Tensor flat = at::zeros({unit.space().padded_size()}, at::kFloat);
    unit.bind(flat, {});
    for (model::Parameter& parameter : unit.parameters()) {
      const std::vector<float> values = reader.read_parameter(parameter.name);
      if (static_cast<std::int64_t>(values.size()) != parameter.weight.numel()) {
        throw_error(Fault::data, reader.directory().string(),
                    fmt::format("{} with {} elements", parameter.name, parameter.weight.numel()),
                    std::to_string(values.size()), "use another checkpoint");
      }
      std::copy(values.begin(), values.end(), parameter.weight.data_ptr<float>());
    }
    if (!device.is_cpu()) {
      flat = flat.to(device);
      unit.bind(flat, {});
    }
    weights.push_back(std::move(flat));
  }
  return {std::move(built), std::move(stored.tokenizer), std::move(weights)};
}

}  // namespace argosy::decode
