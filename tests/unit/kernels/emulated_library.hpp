#pragma once

#include <dlfcn.h>

namespace argosy::test {

/// The library of emulated_kernels.cpp: from then on, the one that this process takes for the plug-in.
inline void* emulated_kernels() {
  static void* const library = dlopen(EMULATED_KERNELS, RTLD_NOW | RTLD_LOCAL);
  return library;
}

}  // namespace argosy::test
