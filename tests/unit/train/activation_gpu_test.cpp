#include "activation_case.hpp"
#include "kernels/plugin.hpp"

namespace argosy::test {
namespace {

TEST(ActivationsOnAGpu, AreWithinAFewPercentOfTheFormula) {
  if (kernels::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  kernels::open_cuda_plugin();
  const LanguageModel sizes{
      .width = 1024, .ff = 3584, .heads = 8, .kv_heads = 2, .layers = 32, .vocab = 8000, .rows = 1, .length = 4096};
  expect_activations(sizes, c10::Device(c10::kCUDA, 0), 0.05);
}

}  // namespace
}  // namespace argosy::test
