#include "activation_case.hpp"

namespace argosy::test {
namespace {

TEST(ActivationsOnTheCpu, AreWithinAFewPercentOfTheFormula) {
  train::count_memory();
  // The proportions of Mistral 7B.
  const LanguageModel sizes{
      .width = 128, .ff = 448, .heads = 4, .kv_heads = 1, .layers = 32, .vocab = 1024, .rows = 1, .length = 256};
  expect_activations(sizes, c10::kCPU, 0.08);  // libraries bring scratch of their own, by processor
}

}  // namespace
}  // namespace argosy::test
