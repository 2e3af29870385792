#include "model/layers.hpp"

#include <ATen/ops/empty.h>

#include "kernels/elementwise.hpp"
#include "kernels/norm.hpp"

namespace argosy::model {

GradientSlot claim_gradient(Parameter& parameter) {
  GradientSlot slot{parameter.gradient, parameter.gradient_written};
  if (slot.gradient.defined()) parameter.gradient_written = true;
  return slot;
}

Adapters::Adapters(const Parameter& matrix, Parameter& down, Parameter& up, std::int64_t number)
    : down_(&down), up_(&up), parts_(spec::adapter_parts(matrix, down, up)), number_(number) {}

at::Tensor Adapters::dropped(const at::Tensor& x, const AdapterDropout& dropout) const {
  if (!dropout.training || down_->dropout == 0) return x;
  kernels::DropoutKey key = dropout.key;
  key.site += number_;
  return kernels::dropout_add(std::nullopt, x.contiguous(), down_->dropout, key);
}

void Adapters::forward(const at::Tensor& x, const at::Tensor& y, const AdapterDropout& dropout) const {
  const at::Tensor inner = kernels::gemm(dropped(x, dropout), down_->weight.t()).mul_(up_->scale);
  for (const spec::AdapterPart& part : parts_)
    kernels::gemm(inner.narrow(1, part.down, part.rank), up_->weight.narrow(0, part.up, part.rows).t(),
                  y.narrow(1, part.begin, part.rows), {.accumulate = true});
}

at::Tensor Adapters::inner_gradient(const at::Tensor& dy) const {
  const at::Tensor gradient = at::empty({dy.size(0), down_->weight.size(0)}, dy.options());
  for (const spec::AdapterPart& part : parts_)
    kernels::gemm(dy.narrow(1, part.begin, part.rows), up_->weight.narrow(0, part.up, part.rows),
                  gradient.narrow(1, part.down, part.rank));
  return gradient.mul_(up_->scale);
}

void Adapters::backward_parameters(const at::Tensor& dy, const at::Tensor& x, const AdapterDropout& dropout) const {
  const at::Tensor read = dropped(x, dropout);
  if (const auto [gradient, accumulate] = claim_gradient(*down_); gradient.defined())
    kernels::gemm(inner_gradient(dy).t(), read, gradient, {.accumulate = accumulate});
  const auto [gradient, accumulate] = claim_gradient(*up_);
  if (!gradient.defined()) return;
  const at::Tensor inner = kernels::gemm(read, down_->weight.t()).mul_(up_->scale);
  for (const spec::AdapterPart& part : parts_)
    kernels::gemm(dy.narrow(1, part.begin, part.rows).t(), inner.narrow(1, part.down, part.rank),
                  gradient.narrow(0, part.up, part.rows), {.accumulate = accumulate});
}

void Adapters::backward_input(const at::Tensor& dy, const at::Tensor& dx, const AdapterDropout& dropout) const {
  if (dropout.training && down_->dropout > 0)
    dx.add_(dropped(kernels::gemm(inner_gradient(dy), down_->weight), dropout));
  else
    kernels::gemm(inner_gradient(dy), down_->weight, dx, {.accumulate = true});
}

Linear::Linear(const VisitParameters& parameters, const std::string& name, std::int64_t number)
    : weight(&parameters.at(name + "/weight")), bias(parameters.find(name + "/bias")) {
  const spec::AdapterNames names = *spec::adapter_names(weight->name);
  if (Parameter* const down = parameters.find(names.down))
    adapters.emplace(*weight, *down, parameters.at(names.up), number);
}

at::Tensor Linear::forward(const at::Tensor& x, const AdapterDropout& dropout, bool with_bias) const {
  const kernels::OptionalTensor shift = bias != nullptr && with_bias ? optional(bias->weight) : std::nullopt;
  at::Tensor y = packed ? kernels::gemm(x, *packed, shift) : kernels::gemm(x, weight->weight.t(), shift);
  if (adapters) adapters->forward(x, y, dropout);
  return y;
}

void Linear::backward_parameters(const at::Tensor& dy, const at::Tensor& x, const AdapterDropout& dropout,
                                 bool and_bias) const {
  if (auto [gradient, accumulate] = claim_gradient(*weight); gradient.defined()) {
    kernels::gemm(dy.t(), x, gradient, {.accumulate = accumulate});
  }
  if (adapters) adapters->backward_parameters(dy, x, dropout);
  if (bias == nullptr || !and_bias) return;
  if (const auto [gradient, accumulate] = claim_gradient(*bias); gradient.defined()) {
    kernels::column_sum(dy, gradient, accumulate);
  }
}

at::Tensor Linear::backward_input(const at::Tensor& dy, const AdapterDropout& dropout, const at::Tensor& add) const {
  at::Tensor dx = add.defined() ? add : kernels::gemm(dy, weight->weight);
  if (add.defined()) kernels::gemm(dy, weight->weight, dx, {.accumulate = true});
  if (adapters) adapters->backward_input(dy, dx, dropout);
  return dx;
}

NormLayer::NormLayer(const VisitParameters& parameters, const std::string& name, const spec::Architecture& shape)
    : gamma(&parameters.at(name + "/gamma")), beta(parameters.find(name + "/beta")), epsilon(shape.norm_epsilon) {}

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
