#include "model/layers.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

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

/// gradient (+)= dyᵀ·x
void add_product(at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
  if (accumulate) {
    at::addmm_out(gradient, gradient, dy.t(), x);
  } else {
    at::mm_out(gradient, dy.t(), x);
  }
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
  if (bias != nullptr && with_bias) return at::addmm(bias->weight, x, weight->weight.t());
  return at::mm(x, weight->weight.t());
}

void Linear::backward_parameters(const at::Tensor& dy, const at::Tensor& x, bool and_bias) const {
  if (auto [gradient, accumulate] = claim_gradient(*weight); gradient.defined()) {
    // The gradient is fp32 whatever the compute type: on a GPU by the GEMM's own output type, on CPU by a wide GEMM,
    // which is the faster one there as well.
    if (dy.is_cuda() && dy.scalar_type() != at::kFloat) {
      const at::Tensor value = at::mm(dy.t(), x, at::kFloat);
      if (accumulate) {
        gradient.add_(value);
      } else {
        gradient.copy_(value);
      }
    } else {
      add_product(gradient, dy.to(at::kFloat), x.to(at::kFloat), accumulate);
    }
  }
  if (bias == nullptr || !and_bias) return;
  if (const auto [gradient, accumulate] = claim_gradient(*bias); gradient.defined()) {
    kernels::column_sum(dy, gradient, accumulate);
  }
}

at::Tensor Linear::backward_input(const at::Tensor& dy, const at::Tensor& add) const {
  if (!add.defined()) return at::mm(dy, weight->weight);
  at::Tensor result = add;
  return at::addmm_out(result, result, dy, weight->weight);
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
