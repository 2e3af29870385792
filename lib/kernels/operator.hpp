#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

/// Registers the torch operators of this module and looks them up; a call is dispatched by the tensor's device. For
/// .cpp files of this module.
namespace argosy::kernels {

/// Registers the plain reference, for devices without a version of their own, and the version for CPUs.
template <class Function>
void register_versions(torch::Library& library, const char* name, Function* plain, Function* cpu) {
  library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, plain));
  library.impl(name, torch::dispatch(c10::DispatchKey::CPU, cpu));
}

template <class Signature>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace argosy::kernels
