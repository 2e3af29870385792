#include "activation_case.hpp"

namespace argosy::test {
namespace {

/// The proportions of Mistral 7B.
LanguageModel deep() {
  return {.width = 128, .ff = 448, .heads = 4, .kv_heads = 1, .layers = 32, .vocab = 1024, .rows = 1, .length = 256};
}

TEST(ActivationsOnTheCpu, AreWithinAFewPercentOfTheFormula) {
  kernels::keep_tensor_memory();
  expect_activations(deep(), c10::kCPU, 0.08);  // libraries bring scratch of their own, by processor
}

TEST(ActivationsOnTheCpu, OfFrozenLayersBeforeTheFirstTrainedOneAreNotKept) {
  kernels::keep_tensor_memory();
  const std::vector<std::string> frozen{"decoder/embeddings/weight", "decoder/layer_?/*", "decoder/layer_1?/*"};
  LanguageModel sizes = deep();
  sizes.frozen = frozen;
  expect_activations(sizes, c10::kCPU, 0.08);
}

}  // namespace
}  // namespace argosy::test
