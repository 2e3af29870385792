#include "model/neftune.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

namespace argosy::model {

at::Tensor noise_scales(double alpha, const at::Tensor& x, const at::Tensor& lengths, const at::Tensor& segments) {
  const std::int64_t rows = x.size(0), positions = x.size(1), width = x.size(2);
  at::Tensor size, is_real;
  if (segments.defined()) {
    const at::Tensor place = segments + 1;  // the first counts what is behind the end
    size = at::zeros({rows, positions + 1}, segments.options()).scatter_add_(1, place, at::ones_like(place));
    size = size.gather(1, place);
    is_real = segments.ge(0);
  } else {
    size = lengths.unsqueeze(1).expand({rows, positions});
    is_real = at::arange(positions, lengths.options()).lt(size);
  }
  return (alpha * (size * width).clamp_min(1).to(at::kDouble).rsqrt() * is_real).to(at::kFloat);
}

}  // namespace argosy::model
