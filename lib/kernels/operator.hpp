#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

/// How a wrapper finds its torch operator: looked up once, dispatched by the tensor's device. For .cpp files of this
/// module.
namespace argosy::kernels {

template <class Signature>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace argosy::kernels
