#pragma once

#include <boost/describe.hpp>

namespace argosy::spec {

/// The activation of the feed-forward part, from the configuration to the kernel. gelu uses erf. swiglu is
/// swish(gate)·up, geglu gelu(gate)·up with the approximation by tanh (T5 v1.1). Their rows are those of gate, then
/// those of up.
enum class Activation { relu, swish, gelu, swiglu, geglu };
BOOST_DESCRIBE_ENUM(Activation, relu, swish, gelu, swiglu, geglu)

/// Whether a second matrix of the same size multiplies what the activation gives.
[[nodiscard]] constexpr bool is_gated(Activation activation) noexcept {
  return activation == Activation::swiglu || activation == Activation::geglu;
}

}  // namespace argosy::spec
