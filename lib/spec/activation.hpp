#pragma once

#include <boost/describe.hpp>

namespace argosy::spec {

/// Of the feed-forward part, from the configuration to the kernel. gelu: erf; swiglu: swish(gate)·up, rows hold gate |
/// up.
enum class Activation { relu, swish, gelu, swiglu };
BOOST_DESCRIBE_ENUM(Activation, relu, swish, gelu, swiglu)

}  // namespace argosy::spec
