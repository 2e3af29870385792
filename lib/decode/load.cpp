#include "decode/load.hpp"

#include <ATen/Functions.h>

#include <utility>

#include "core/error.hpp"
#include "kernels/gemm.hpp"

namespace argosy::decode {

LoadedModel load_model(model::StoredModel stored, c10::Device device, Precision precision) {
  const std::string instructions = kernels::cpu_instructions();
  if (precision == Precision::bf16 && device.is_cpu() && instructions.find("bf16") == std::string::npos)
    throw_error(Fault::device, "--precision bf16", "a CPU with bf16 products (AVX512-BF16 or AMX)", instructions,
                "use fp32 or int8");
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
    flat = flat.to(device, precision == Precision::bf16 ? at::kBFloat16 : at::kFloat);
    unit.bind(flat, {});
    weights.push_back(std::move(flat));
  }
  return {std::move(built), std::move(stored.tokenizer), std::move(weights)};
}

LoadedModel load_model(const checkpoint::Reader& reader, c10::Device device, Precision precision) {
  return load_model(model::stored_model(reader), device, precision);
}

}  // namespace argosy::decode
