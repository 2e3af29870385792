#pragma once

#include <boost/describe.hpp>

namespace argosy::spec {

/// The activation of the feed-forward part, from the configuration to the kernel. gelu uses erf. swiglu is
/// swish(gate)·up; its rows are those of gate, then those of up.
enum class Activation { relu, swish, gelu, swiglu };
BOOST_DESCRIBE_ENUM(Activation, relu, swish, gelu, swiglu)

}  // namespace argosy::spec
