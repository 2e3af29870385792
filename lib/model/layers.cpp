#include "model/layers.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/norm.hpp"

namespace argosy::model {

namespace {

Parameter* find(Unit& unit, const std::string& name) {
  for (Parameter& parameter : unit.parameters()) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

}  // namespace

GradientSlot claim_gradient(Parameter& parameter) {
  GradientSlot slot{parameter.gradient, parameter.gradient_written};
  if (slot.gradient.defined()) parameter.gradient_written = true;
  return slot;
}

Linear::Linear(Unit& unit, const std::string& name)
    : weight(&unit.parameter(name + "/weight")), bias(find(unit, name + "/bias")) {}

at::Tensor Linear::forward(const at::Tensor& x, bool with_bias) const {
  const kernels::OptionalTensor shift = bias != nullptr && with_bias ? optional(bias->weight) : std::nullopt;
  return packed ? kernels::gemm(x, *packed, shift) : kernels::gemm(x, weight->weight.t(), shift);
}

void Linear::backward_parameters(const at::Tensor& dy, const at::Tensor& x, bool and_bias) const {
  if (auto [gradient, accumulate] = claim_gradient(*weight); gradient.defined()) {
    kernels::gemm(dy.t(), x, gradient, {.accumulate = accumulate});
  }
  if (bias == nullptr || !and_bias) return;
  if (const auto [gradient, accumulate] = claim_gradient(*bias); gradient.defined()) {
    kernels::column_sum(dy, gradient, accumulate);
  }
}

at::Tensor Linear::backward_input(const at::Tensor& dy, const at::Tensor& add) const {
  if (!add.defined()) return kernels::gemm(dy, weight->weight);
  kernels::gemm(dy, weight->weight, add, {.accumulate = true});
  return add;
}

NormLayer::NormLayer(Unit& unit, const std::string& name, const spec::Architecture& shape)
    : gamma(&unit.parameter(name + "/gamma")), beta(find(unit, name + "/beta")), epsilon(shape.norm_epsilon) {}

at::Tensor NormLayer::forward(const at::Tensor& x, Saved* saved) const {
  auto [y, mean, rstd] = kernels::norm(x, gamma->weight, beta != nullptr ? optional(beta->weight) : std::nullopt,
                                       epsilon, beta == nullptr);
  if (saved != nullptr) *saved = {x, std::move(mean), std::move(rstd)};
  return std::move(y);
}

at::Tensor NormLayer::backward(const at::Tensor& dy, const Saved& saved, const at::Tensor& add) const {
  const auto [dgamma, accumulate] = claim_gradient(*gamma);
  const GradientSlot dbeta = beta != nullptr ? claim_gradient(*beta) : GradientSlot{};
  return kernels::norm_backward(dy, saved.x, gamma->weight, saved.mean, saved.rstd, optional(add), optional(dgamma),
                                optional(dbeta.gradient), dgamma.defined() ? accumulate : dbeta.accumulate,
                                beta == nullptr);
}

}  // namespace argosy::model
