#pragma once

#include <ATen/ops/equal.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "unit/kernels/compare.hpp"

namespace argosy::test {

/// The library of emulated_kernels.cpp: from then on, the one that this process takes for the plug-in.
inline void* emulated_kernels() {
  static void* const library = dlopen(EMULATED_KERNELS, RTLD_NOW | RTLD_LOCAL);
  return library;
}

class EmulatedKernels : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(emulated_kernels(), nullptr) << dlerror(); }
};

/// Values that are not finite lie at the same places and are the same there; the others have this distance.
inline void expect_alike(const at::Tensor& value, const at::Tensor& reference, double most, const char* what) {
  const at::Tensor a = value.to(at::kDouble), b = reference.to(at::kDouble), finite = b.isfinite();
  EXPECT_TRUE(at::equal(a.isnan(), b.isnan())) << what;
  EXPECT_TRUE(at::equal(a.isinf(), b.isinf())) << what;
  const double apart = finite.any().item<bool>() ? distance(a.masked_select(finite), b.masked_select(finite)) : 0;
  EXPECT_LE(apart, most) << what;
}

}  // namespace argosy::test
