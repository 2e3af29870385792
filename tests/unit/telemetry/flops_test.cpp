#include "telemetry/flops.hpp"

#include <gtest/gtest.h>

namespace argosy::telemetry {
namespace {

FlopShape mistral(std::int64_t vocab, std::optional<std::int64_t> window = 4096) {
  return {.decoder_layers = 32,
          .width = 4096,
          .ff = 14336,
          .heads = 32,
          .kv_heads = 8,
          .head_size = 128,
          .vocab = vocab,
          .window = window};
}

/// GFLOP a position of one row of T.
Flops giga_per_position(const FlopShape& shape, std::int64_t length) {
  Work work;
  work.add_row(0, length, shape.window);
  const Flops flops = flops_of(shape, work);
  const double scale = 1e-9 / static_cast<double>(length);
  return {flops.causal * scale, flops.full * scale};
}

// The figures that Fast-LLM's guide and its formulas give; rounding is that of the printed digits.
TEST(Flops, ReproduceTheMistralGuide) {
  EXPECT_NEAR(giga_per_position(mistral(49152), 8192).causal, 47.9157, 5e-5);
  EXPECT_NEAR(giga_per_position(mistral(32000), 8192).causal, 47.4942, 5e-5);
  const double flops = 1e9 * giga_per_position(mistral(49152), 8192).causal;
  const struct {
    double tokens_per_s, tflops, mfu;
  } published[] = {{4234.09, 202.88, 65.0}, {4218.63, 202.14, 64.8}, {3804.49, 182.29, 58.4}};
  for (const auto& row : published) {
    EXPECT_NEAR(row.tokens_per_s * flops / 1e12, row.tflops, 5e-3);
    EXPECT_NEAR(100 * row.tokens_per_s * flops / *bf16_peak_flops("NVIDIA A100-SXM4-80GB"), row.mfu, 5e-2);
  }
}

TEST(Flops, TheFullConventionDoublesAttentionAndKnowsNoWindow) {
  const FlopShape shape = mistral(32000, std::nullopt);
  const Flops with_window = giga_per_position(mistral(32000), 8192), plain = giga_per_position(shape, 8192);
  EXPECT_DOUBLE_EQ(with_window.full, plain.full);
  const double attention = 6e-9 * 32 * 32 * 128 * 8192.0;  // 6L·h·hd·T
  EXPECT_NEAR(plain.full - plain.causal, attention, 1e-9);
  EXPECT_EQ(giga_per_position(mistral(32000), 4096).causal, giga_per_position(shape, 4096).causal) << "T = w";
}

/// d = h·hd = 4, ff = 8, vocabulary 10.
FlopShape small_shape(std::int64_t encoder_layers, std::int64_t decoder_layers, std::int64_t kv_heads) {
  FlopShape shape{.width = 4, .ff = 8, .heads = 2, .kv_heads = kv_heads, .head_size = 2, .vocab = 10};
  shape.encoder_layers = encoder_layers;
  shape.decoder_layers = decoder_layers;
  return shape;
}

TEST(Flops, CountAnEncoderDecoderByHand) {
  FlopShape shape = small_shape(1, 1, 2);  // S = 3, T = 2
  shape.ff_matrices = 2;                   // plain feed-forward
  Work work;
  work.add_row(3, 2);
  const double encoder = 3 * (4 * 16 + 2 * 4 * 8);           // q, k, v, o; two matrices
  const double cross_keys_and_values = 3 * 2 * 16;           // from source positions
  const double decoder = 2 * (4 * 16 + 2 * 16 + 2 * 4 * 8);  // self; cross q and o; two matrices
  const double head = 2 * 4 * 10;
  const double linear = 6 * (encoder + cross_keys_and_values + decoder + head);
  const auto attention = [](double pairs) { return 12 * 4 * pairs; };
  EXPECT_DOUBLE_EQ(flops_of(shape, work).causal, linear + attention(3 * 3 + 3 * 2 + 2 * 2 / 2.0));
  EXPECT_DOUBLE_EQ(flops_of(shape, work).full, linear + attention(3 * 3 + 3 * 2 + 2 * 2));
}

TEST(Work, AddsUpOverRowsAndMicroBatches) {
  Work one, other, both;
  one.add_row(3, 2);
  other.add_row(5, 7, 4);
  both.add_row(3, 2);
  both.add_row(5, 7, 4);
  one += other;
  const FlopShape shape = small_shape(2, 3, 1);
  EXPECT_DOUBLE_EQ(flops_of(shape, one).causal, flops_of(shape, both).causal);
  EXPECT_DOUBLE_EQ(flops_of(shape, one).full, flops_of(shape, both).full);
  EXPECT_DOUBLE_EQ(both.decoder_pairs, 2 + (4 * 7 - 8));
}

TEST(Pairs, AreExact) {
  for (const std::int64_t window : {1, 3, 7, 20}) {
    double count = 0;
    for (int query = 0; query < 9; ++query)
      for (int key = 0; key <= query; ++key) count += query - key < window;
    EXPECT_EQ(exact_pairs(9, window), count) << window;
  }
  EXPECT_EQ(exact_pairs(9), 45);
}

TEST(Peak, IsKnownByTheDriversName) {
  EXPECT_EQ(bf16_peak_flops("NVIDIA H200"), 989.4e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(bf16_peak_flops("Intel Xeon"), std::nullopt);
}

}  // namespace
}  // namespace argosy::telemetry
