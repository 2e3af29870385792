#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

/// Looks up the torch operator of a wrapper; a call of it is dispatched by the tensor's device. For .cpp files of this
/// module.
namespace argosy::kernels {

template <class Signature>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace argosy::kernels
