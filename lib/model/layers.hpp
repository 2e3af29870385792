#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

#include "model/model.hpp"

/// Linear layer and norm over bound parameters, without autograd: forward, and backward halves that write parameter
/// gradients straight into the unit's fp32 buffer (the first write of a step replaces, later ones add). Values are [n,
/// features].
namespace argosy::model {

/// Where and how the next gradient of a parameter goes; claiming it marks it written.
struct GradientSlot {
  at::Tensor gradient;  // undefined: frozen
  bool accumulate = false;
};
[[nodiscard]] GradientSlot claim_gradient(Parameter& parameter);

struct Linear {
  Parameter* weight = nullptr;  // [out, in]
  Parameter* bias = nullptr;    // [out] or none

  Linear(Unit& unit, const std::string& name);
  /// x·Wᵀ + b; `with_bias` false leaves the bias to the caller's fused kernel.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, bool with_bias = true) const;
  /// Gradients of weight and, with `and_bias`, of the bias.
  void backward_parameters(const at::Tensor& dy, const at::Tensor& x, bool and_bias = true) const;
  /// dy·W (+ `add`, which is consumed).
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& dy, const at::Tensor& add = {}) const;
};

struct NormLayer {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;  // none in RMSNorm
  double epsilon = 1e-5;

  struct Saved {
    at::Tensor x, mean, rstd;
  };
  NormLayer(Unit& unit, const std::string& name, const spec::Architecture& shape);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, Saved* saved = nullptr) const;
  /// Gradient of x (+ `add`); writes those of gamma and beta.
  [[nodiscard]] at::Tensor backward(const at::Tensor& dy, const Saved& saved, const at::Tensor& add = {}) const;
};

}  // namespace argosy::model
