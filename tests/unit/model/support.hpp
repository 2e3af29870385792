#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "model/model.hpp"
#include "support/small_model.hpp"

/// Tiny models with memory of their own and weights that all matter, and a runner that walks visits as DESIGN.md says:
/// forward keeping inputs, then back, one autograd segment at a time.
namespace argosy::test {

struct BoundModel {
  explicit BoundModel(const spec::ModelSpec& spec, at::ScalarType type = at::kFloat, std::uint64_t seed = 1);
  std::unique_ptr<model::Model> model;
  std::vector<at::Tensor> weights, gradients;  // flat, one a unit; gradients start as NaN
  [[nodiscard]] model::Parameter& parameter(const std::string& name);
  [[nodiscard]] at::Tensor gradient(const std::string& name) { return parameter(name).gradient; }
  void expect_fresh_gradients();
};

/// All parameters of a model, unit by unit.
[[nodiscard]] std::vector<model::Parameter*> parameters_of(model::Model& model);

/// Expects gradients that differ from those of `reference` by no more than this relative error; 0: not by a bit. None
/// of `reference` is all zeros; its frozen parameters do not count.
void expect_gradients_near(BoundModel& some, BoundModel& reference, double tolerance);

/// A pass of training with some seed, step and scale of the loss.
[[nodiscard]] model::Pass training_pass(spec::Recompute recompute = spec::Recompute::none);

/// The inputs of a visit in the backward walk: what the visit before it has left, cut off from it.
[[nodiscard]] model::State detached(const model::State& state);

/// What a micro-batch leaves, by name: outputs of visits, gradients of their inputs.
struct Trace {
  std::map<std::string, at::Tensor> forward, backward;
};

/// Forward and backward of one micro-batch, `between` in between; returns the scaled loss.
double run_micro_batch(model::Model& model, const model::Inputs& inputs, model::Pass& pass,
                       const std::function<void()>& between = {}, Trace* trace = nullptr);

/// The same by the usual training pass.
double train_micro_batch(BoundModel& bound, const model::Inputs& inputs);

/// One visit's part of the backward walk: dx, dmemory from gradients of `after` to those of `before`; both undefined at
/// the loss.
void back_up(const model::Visit& visit, const model::State& before, const model::State& after, at::Tensor& dx,
             at::Tensor& dmemory);

/// 3 ragged rows, source up to 5, target up to 6; decoder-only: the target alone. Ids below `shape.vocabulary.pieces`.
[[nodiscard]] model::Inputs ragged_inputs(const spec::Architecture& shape);
/// Row `row` of `inputs`, cut to its own lengths.
[[nodiscard]] model::Inputs single_row(const model::Inputs& inputs, std::int64_t row);

/// A shape without dropout and with what `change` does to it.
[[nodiscard]] spec::Architecture with(spec::Architecture shape, const std::function<void(spec::Architecture&)>& change);

/// Two layers a side; language models with two heads of keys and values.
[[nodiscard]] spec::Architecture two_layers(ModelSizes sizes, std::int64_t max_positions, std::int64_t pieces);
[[nodiscard]] spec::Architecture tiny_translation();
[[nodiscard]] spec::Architecture tiny_language_model();
/// T5 v1.1.
[[nodiscard]] spec::Architecture tiny_t5();
/// tiny_translation() with these positions.
[[nodiscard]] spec::Architecture tiny_with(spec::Position encoder, spec::Position decoder);

/// rms difference over rms of the reference.
[[nodiscard]] double relative_error(const at::Tensor& value, const at::Tensor& reference);

}  // namespace argosy::test
