#include "unit/model/support.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace argosy::test {

BoundModel::BoundModel(const spec::ModelSpec& spec, at::ScalarType type, std::uint64_t seed)
    : model(std::make_unique<model::Model>(spec, partition::Layout({2, 1}))) {
  for (model::Unit& unit : model->units()) {
    const at::Tensor flat = at::zeros({unit.space().padded_size()}, at::kFloat);
    for (std::size_t i = 0; i < unit.space().params().size(); ++i) {
      const auto& param = unit.space().params()[i];
      model::initial_values(model->spec().units[weights.size()].parameter(param.name), seed, 0, param.numel(),
                            flat.mutable_data_ptr<float>() + unit.space().offset(i));
      if (param.shape.size() > 1) continue;
      // Norms and biases start as ones and zeros, which would hide one that is left out.
      for (std::int64_t e = unit.space().offset(i); e < unit.space().offset(i) + param.numel(); ++e) {
        float& value = flat.mutable_data_ptr<float>()[e];
        if (value > -1e3F) value += 0.25F * static_cast<float>(std::sin(1.7 * static_cast<double>(e)));
      }
    }
    weights.push_back(flat.to(type));
    gradients.push_back(at::full({unit.space().padded_size()}, std::numeric_limits<float>::quiet_NaN(), at::kFloat));
    unit.bind(weights.back(), gradients.back());
  }
}

model::Parameter& BoundModel::parameter(const std::string& name) {
  for (model::Parameter* parameter : parameters_of(*model))
    if (parameter->name == name) return *parameter;
  throw std::out_of_range("no parameter " + name);
}

void BoundModel::expect_fresh_gradients() {
  for (model::Unit& unit : model->units()) unit.expect_fresh_gradients();
}

std::vector<model::Parameter*> parameters_of(model::Model& model) {
  std::vector<model::Parameter*> all;
  for (model::Unit& unit : model.units())
    for (model::Parameter& parameter : unit.parameters()) all.push_back(&parameter);
  return all;
}

void expect_gradients_near(BoundModel& some, BoundModel& reference, double tolerance) {
  for (const model::Parameter* parameter : parameters_of(*reference.model)) {
    if (!parameter->gradient.defined()) continue;
    EXPECT_GT(parameter->gradient.abs().max().item<double>(), 0) << parameter->name;
    const at::Tensor gradient = some.gradient(parameter->name);
    if (tolerance == 0) {
      EXPECT_TRUE(at::equal(gradient, parameter->gradient)) << parameter->name;
    } else {
      EXPECT_LT(relative_error(gradient, parameter->gradient), tolerance) << parameter->name;
    }
  }
}

model::Pass training_pass(spec::Recompute recompute) {
  model::Pass pass;
  pass.training = true;
  pass.seed = 5;
  pass.step = 3;
  pass.loss_scale = 0.25;
  pass.recompute = recompute;
  return pass;
}

model::State detached(const model::State& state) {
  model::State in;
  if (state.x.defined()) in.x = state.x.detach().set_requires_grad(true);
  if (state.memory.defined()) in.memory = state.memory.detach().set_requires_grad(true);
  return in;
}

double run_micro_batch(model::Model& model, const model::Inputs& inputs, model::Pass& pass,
                       const std::function<void()>& between, Trace* trace) {
  std::vector<model::State> before, after;
  model::State state;
  for (const model::Visit& visit : model.visits()) {
    before.push_back(detached(state));
    state = visit.forward(before.back(), inputs, pass);
    after.push_back(state);
    if (trace != nullptr) trace->forward[visit.name] = state.x.detach();
  }
  const double loss = state.x.item<double>();
  if (between) between();
  at::Tensor dx, dmemory;
  for (std::size_t i = model.visits().size(); i-- > 0;) {
    back_up(model.visits()[i], before[i], after[i], dx, dmemory);
    if (trace != nullptr && dx.defined()) trace->backward[model.visits()[i].name] = dx;
  }
  if (trace != nullptr && dmemory.defined()) trace->backward["memory"] = dmemory;
  return loss;
}

double train_micro_batch(BoundModel& bound, const model::Inputs& inputs) {
  model::Pass pass = training_pass();
  return run_micro_batch(*bound.model, inputs, pass);
}

void back_up(const model::Visit& visit, const model::State& before, const model::State& after, at::Tensor& dx,
             at::Tensor& dmemory) {
  std::vector<at::Tensor> outputs, seeds;
  if (!dx.defined() && !dmemory.defined()) dx = at::ones_like(after.x);
  if (dx.defined() && after.x.requires_grad()) {
    outputs.push_back(after.x);
    seeds.push_back(dx);
  }
  if (visit.writes_memory && dmemory.defined()) {
    outputs.push_back(after.memory);
    seeds.push_back(dmemory);
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, seeds);
  dx = before.x.defined() ? before.x.grad() : at::Tensor();
  if (visit.writes_memory) dmemory.reset();
  if (visit.reads_memory) {
    const at::Tensor more = before.memory.grad();
    dmemory = dmemory.defined() ? dmemory + more : more;
  }
}

model::Inputs ragged_inputs(const spec::Architecture& shape) {
  const bool translation = shape.type == spec::ModelType::encoder_decoder;
  const std::vector<std::int64_t> source_lengths{5, 2, 4}, target_lengths{6, 4, 1};
  model::Inputs inputs;
  const auto fill = [&](const std::vector<std::int64_t>& lengths, std::int64_t width, std::int64_t first, bool labels) {
    const at::Tensor ids = at::full({3, width}, labels ? -1 : shape.vocabulary.start, at::kLong);
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t t = 0; t < lengths[static_cast<std::size_t>(row)]; ++t)
        ids.mutable_data_ptr<std::int64_t>()[row * width + t] =
            !labels && first == 0 && t == 0 ? shape.vocabulary.start
                                            : (row * 7 + t * 3 + first) % shape.vocabulary.pieces;
    }
    return ids;
  };
  if (translation) {
    inputs.source = fill(source_lengths, 5, 5, false);
    inputs.source_lengths = at::tensor(source_lengths, at::kLong);
  }
  inputs.target_in = fill(target_lengths, 6, 0, false);
  inputs.target_labels = fill(target_lengths, 6, 3, true);
  inputs.target_lengths = at::tensor(target_lengths, at::kLong);
  if (!translation) {  // prompts of 4, 2 and 0 positions, which a model without prefix_lm reads as all else
    inputs.prompts = at::zeros({3, 6}, at::kLong);
    inputs.prompts[0].narrow(0, 0, 4).fill_(4);
    inputs.prompts[1].narrow(0, 0, 2).fill_(2);
  }
  return inputs;
}

model::Inputs single_row(const model::Inputs& inputs, std::int64_t row) {
  model::Inputs one;
  const auto cut = [row](const at::Tensor& ids, const at::Tensor& lengths) {
    return ids.narrow(0, row, 1).narrow(1, 0, lengths[row].item<std::int64_t>()).contiguous();
  };
  if (inputs.source.defined()) {
    one.source = cut(inputs.source, inputs.source_lengths);
    one.source_lengths = inputs.source_lengths.narrow(0, row, 1);
  }
  one.target_in = cut(inputs.target_in, inputs.target_lengths);
  one.target_labels = cut(inputs.target_labels, inputs.target_lengths);
  one.target_lengths = inputs.target_lengths.narrow(0, row, 1);
  if (inputs.prompts.defined()) one.prompts = cut(inputs.prompts, inputs.target_lengths);
  return one;
}

spec::Architecture two_layers(ModelSizes sizes, std::int64_t max_positions, std::int64_t pieces) {
  const bool translation = sizes.type == spec::ModelType::encoder_decoder;
  sizes.decoder_layers = 2;
  sizes.encoder_layers = translation ? 2 : 0;
  spec::ModelConfig config = model_config(sizes);
  config.vocab_multiple = 8;
  config.max_positions = max_positions;
  if (!translation) config.kv_heads = 2;
  return resolve(config, pieces);
}

spec::Architecture tiny_translation() { return two_layers({.width = 16, .ff = 24, .heads = 4}, 32, 21); }
spec::Architecture tiny_language_model() {
  return two_layers({.type = spec::ModelType::decoder, .width = 16, .ff = 24, .heads = 4}, 32, 21);
}

spec::Architecture tiny_t5() {
  spec::ModelConfig config =
      model_config({.width = 16, .ff = 24, .heads = 4, .encoder_layers = 2, .decoder_layers = 2});
  config.vocab_multiple = 8;
  config.max_positions = 32;
  config.norm = spec::Norm::rms_norm;
  config.norm_position = spec::NormPosition::pre;
  config.bias = false;
  config.activation = spec::Activation::geglu;
  config.encoder.position = config.decoder.position = spec::Position::t5;
  return resolve(config, 21);
}

spec::Architecture tiny_with(spec::Position encoder, spec::Position decoder) {
  return with(tiny_translation(), [&](spec::Architecture& s) {
    s.encoder_position = encoder;
    s.decoder_position = decoder;
  });
}

spec::Architecture with(spec::Architecture shape, const std::function<void(spec::Architecture&)>& change) {
  shape.dropout = 0;
  change(shape);
  return shape;
}

double relative_error(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor a = value.to(at::kDouble), b = reference.to(at::kDouble);
  return ((a - b).square().mean().sqrt() / (b.square().mean().sqrt() + 1e-12)).item<double>();
}

}  // namespace argosy::test
