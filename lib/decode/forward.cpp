#include "decode/forward.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "model/model.hpp"

namespace argosy::decode {
namespace {

at::Tensor row_of(const std::vector<std::int64_t>& ids) { return at::tensor(ids, at::kLong).unsqueeze(0); }

model::Inputs inputs_of(const model::Example& example, const spec::Architecture& shape) {
  const std::vector<std::int64_t> labels(example.target.begin(), example.target.end());
  std::vector<std::int64_t> fed{shape.vocabulary.start};
  fed.insert(fed.end(), labels.begin(), labels.end() - 1);
  model::Inputs inputs;
  inputs.target_in = row_of(fed);
  inputs.target_labels = row_of(labels);
  inputs.target_lengths = at::tensor({std::ssize(labels)}, at::kLong);
  if (shape.type == spec::ModelType::encoder_decoder) {
    inputs.source = row_of({example.source.begin(), example.source.end()});
    inputs.source_lengths = at::tensor({std::ssize(example.source)}, at::kLong);
  }
  return inputs;
}

/// Gives the units of a visit their weights, and takes those of all others away.
void hold(model::Model& model, const model::WeightSource& weights, const std::vector<std::size_t>& wanted) {
  for (std::size_t u = 0; u < model.units().size(); ++u) {
    model::Unit& unit = model.units()[u];
    const bool is_held = unit.parameters().front().weight.defined();
    const bool is_wanted = std::ranges::count(wanted, u) > 0;
    if (is_held == is_wanted) continue;
    if (!is_wanted) {
      unit.bind({}, {});
      continue;
    }
    unit.bind(at::zeros({unit.space().padded_size()}, at::kFloat), {});
    for (model::Parameter& parameter : unit.parameters()) {
      weights.read(model.spec().units[u].parameter(parameter.name), 0,
                   {parameter.weight.data_ptr<float>(), static_cast<std::size_t>(parameter.weight.numel())});
    }
  }
}

}  // namespace

std::vector<model::Outputs> forward(const spec::ModelSpec& spec, const model::WeightSource& weights,
                                    std::span<const model::Example> examples) {
  const c10::InferenceMode guard;
  model::Model model{spec, partition::Layout{}};
  std::vector<model::Inputs> inputs;
  for (const model::Example& example : examples) inputs.push_back(inputs_of(example, model.architecture()));
  std::vector<model::State> states(examples.size());
  std::vector<model::Outputs> outputs(examples.size());
  for (const model::Visit& visit : model.visits()) {
    hold(model, weights, visit.units);
    for (std::size_t i = 0; i < examples.size(); ++i) {
      if (visit.kind == spec::VisitKind::head) {
        const at::Tensor hidden = states[i].x.contiguous();
        const auto* values = hidden.const_data_ptr<float>();
        outputs[i].hidden.assign(values, values + hidden.numel());
      }
      model::Pass pass;
      states[i] = visit.forward(states[i], inputs[i], pass);
      if (visit.kind == spec::VisitKind::head) outputs[i].nll = pass.nll_sum.item<double>();
    }
  }
  return outputs;
}

}  // namespace argosy::decode
