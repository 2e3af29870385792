// The host part of attention on a GPU, over stand-ins for LibTorch's operators (flash_stand_in.hpp).
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <string>
#include <vector>

#include "kernels/cuda/flash.hpp"
#include "kernels/device_table.hpp"
#include "unit/kernels/compare.hpp"
#include "unit/kernels/emulated_library.hpp"
#include "unit/kernels/flash_stand_in.hpp"

namespace argosy::test {
namespace {

using namespace kernels;
using kernels::cuda::DocumentRange, kernels::cuda::is_flash, kernels::cuda::runs_of, kernels::cuda::Sequences,
    kernels::cuda::sequences_of;

/// Each query's keys by the sequences that flash attention would get, row by row; 'causal' within a sequence.
std::vector<std::string> seen_in(const Sequences& cut, std::int64_t queries, std::int64_t keys, bool causal) {
  const auto number = [](const at::Tensor& of, std::int64_t i) { return std::int64_t{of[i].item<int>()}; };
  std::vector<std::string> seen(static_cast<std::size_t>(queries), std::string(static_cast<std::size_t>(keys), '.'));
  EXPECT_EQ(cut.queries.scalar_type(), at::kInt);
  for (std::int64_t s = 0; s + 1 < cut.queries.size(0); ++s) {
    const std::int64_t q0 = number(cut.queries, s), q1 = number(cut.queries, s + 1), k0 = number(cut.keys, s),
                       k1 = number(cut.keys, s + 1);
    EXPECT_LE(q1 - q0, cut.longest_query);
    EXPECT_LE(k1 - k0, cut.longest_key);
    for (std::int64_t i = q0; i < q1; ++i)
      for (std::int64_t j = k0; j < (causal ? k1 - (q1 - i) + 1 : k1); ++j)
        seen.at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(j)) = '1';
  }
  return seen;
}

TEST(CudaAttention, ItsSequencesSayWhatTheMaskSays) {
  const at::Tensor q = at::zeros({2, 3, 2, 8}, at::kBFloat16), k = at::zeros({2, 4, 2, 8}, at::kBFloat16);
  const AttentionMask padded{.key_lengths = at::tensor({4, 1}, at::kLong), .segments = {}};
  ASSERT_TRUE(is_flash(q, k, padded));
  const std::vector<std::string> two_rows = {"1111....", "1111....", "1111....", "....1...", "....1...", "....1..."};
  EXPECT_EQ(seen_in(sequences_of(q, k, padded).value(), 6, 8, false), two_rows);

  const at::Tensor x = at::zeros({2, 4, 2, 8}, at::kBFloat16);
  AttentionMask packed{
      .key_lengths = {}, .segments = at::tensor({0, 0, 1, 1, 1, 1, 1, -1}, at::kLong).view({2, 4}), .causal = true};
  ASSERT_TRUE(is_flash(x, x, packed));
  const std::vector<std::string> documents = {"1.......", "11......", "..1.....", "..11....",
                                              "....1...", "....11..", "....111.", ".......1"};
  EXPECT_EQ(seen_in(sequences_of(x, x, packed).value(), 8, 8, true), documents);
  packed.documents = Documents{{0, 2, 4, 7, 8}, at::tensor({0, 2, 4, 7, 8}, at::kInt)};
  EXPECT_EQ(seen_in(sequences_of(x, x, packed).value(), 8, 8, true), documents);
  EXPECT_FALSE(sequences_of(x, x, {.key_lengths = {}, .segments = {}, .causal = true}));
}

TEST(CudaAttention, OneDocumentARowNeedsNoSequences) {
  const at::Tensor x = at::zeros({2, 4, 2, 8}, at::kBFloat16);
  AttentionMask mask{.key_lengths = {}, .segments = at::zeros({2, 4}, at::kLong), .causal = true};
  EXPECT_FALSE(sequences_of(x, x, mask));
  mask.documents = Documents{{0, 4, 8}, at::tensor({0, 4, 8}, at::kInt)};
  EXPECT_FALSE(sequences_of(x, x, mask));
}

TEST(CudaAttention, LongDocumentsHaveABackwardPassOfTheirOwn) {
  using Runs = std::vector<DocumentRange>;
  const auto runs = [](const std::vector<std::int32_t>& begins) { return runs_of(begins, 32, 132); };
  EXPECT_EQ(runs({0, 100, 200, 300}), (Runs{{0, 3}}));
  EXPECT_EQ(runs({0, 6000, 8192}), (Runs{{0, 1}, {1, 2}}));
  EXPECT_EQ(runs({0, 300, 600, 5000, 5300, 5600, 5900}), (Runs{{0, 2}, {2, 3}, {3, 6}}));
  std::vector<std::int32_t> many;  // 200 of about one length
  for (std::int32_t i = 0; i <= 200; ++i) many.push_back(i * 500);
  EXPECT_EQ(runs(many), (Runs{{0, 200}}));
}

TEST(CudaAttention, WhatFlashDoesNotHaveIsLeftToTheReference) {
  const at::Tensor x = at::zeros({1, 4, 2, 8}, at::kBFloat16);
  const AttentionMask causal{.key_lengths = {}, .segments = {}, .causal = true};
  EXPECT_TRUE(is_flash(x, x, causal));
  EXPECT_FALSE(is_flash(x.to(at::kFloat), x.to(at::kFloat), causal));
  EXPECT_FALSE(is_flash(x.narrow(3, 0, 4), x.narrow(3, 0, 4), causal));
  EXPECT_FALSE(is_flash(x.narrow(1, 0, 0), x, causal));
  const auto with = [&](auto change) {
    AttentionMask mask = causal;
    change(mask);
    return is_flash(x, x, mask);
  };
  EXPECT_FALSE(with([](AttentionMask& mask) { mask.bias = at::zeros({2, 7}); }));
  EXPECT_FALSE(with([](AttentionMask& mask) { mask.prompts = at::zeros({1, 4}, at::kLong); }));
  EXPECT_FALSE(with([](AttentionMask& mask) { mask.key_lengths = at::tensor({3}, at::kLong); }));
  EXPECT_TRUE(with([](AttentionMask& mask) { mask.window = 2; }));
}

struct OnGpu {
  const char* name;
  std::int64_t queries, keys, heads, kv_heads, size;
  bool causal, lengths;
  std::vector<std::int64_t> documents;  // lengths in each row, the last up to its end
  std::int64_t window = 0;
  int backward_calls = 1;
  std::int64_t heads_of_call = 0;
};

class CudaAttentionCase : public testing::TestWithParam<OnGpu> {
 protected:
  void SetUp() override { ASSERT_NE(emulated_kernels(), nullptr) << dlerror(); }
};

TEST_P(CudaAttentionCase, EqualsPlainBothWays) {
  const OnGpu& c = GetParam();
  const std::int64_t rows = 2;
  const at::ScalarType type = at::kBFloat16;
  const auto heads = [&](std::int64_t positions, double phase) {
    return values({rows, positions, c.heads + 2 * c.kv_heads, c.size}, type, phase);
  };
  const at::Tensor qs = heads(c.queries, 1), kvs = heads(c.keys, 2),
                   dout = values({rows, c.queries, c.heads, c.size}, type, 3);
  const at::Tensor q = qs.narrow(2, 0, c.heads) * 2, k = kvs.narrow(2, c.heads, c.kv_heads),
                   v = kvs.narrow(2, c.heads + c.kv_heads, c.kv_heads);
  AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = c.causal, .window = c.window};
  if (c.lengths) mask.key_lengths = at::tensor({c.keys, std::int64_t{1}}, at::kLong);
  if (!c.documents.empty()) {
    std::vector<std::int64_t> segments;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t number = 0;
      for (const std::int64_t length : c.documents)
        segments.insert(segments.end(), static_cast<std::size_t>(length), number++);
      segments.resize(static_cast<std::size_t>((row + 1) * c.keys), -1);
    }
    mask.segments = at::tensor(segments, at::kLong).view({rows, c.keys});
  }
  flash::calls = {};
  const auto [out, lse] = cuda::attention(q, k, v, mask, 0.3);
  const auto [out2, lse2] = plain::attention(q, k, v, mask, 0.3);
  EXPECT_EQ(flash::calls.forward + flash::calls.cudnn, 1);
  EXPECT_LT(distance(out, out2), 1e-2);
  const auto gradients = [&] {
    const at::Tensor packed = poisoned({rows, c.queries, c.heads + 2 * c.kv_heads, c.size}).to(type);
    const at::Tensor other = poisoned({rows, c.keys, c.heads + 2 * c.kv_heads, c.size}).to(type);
    return std::array{packed.narrow(2, 0, c.heads), other.narrow(2, c.heads, c.kv_heads),
                      other.narrow(2, c.heads + c.kv_heads, c.kv_heads)};
  };
  auto got = gradients(), expected = gradients();
  cuda::attention_backward(dout, q, k, v, out, lse, mask, 0.3, got[0], got[1], got[2]);
  plain::attention_backward(dout, q, k, v, out2, lse2, mask, 0.3, expected[0], expected[1], expected[2]);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(got[i], expected[i]), 1.5e-2) << i;
  EXPECT_EQ(flash::calls.backward, c.backward_calls);
  EXPECT_TRUE(flash::calls.in_one_order);
  if (c.heads_of_call > 0) {
    EXPECT_EQ(flash::calls.heads, c.heads_of_call);
  }
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());  // as before
  EXPECT_EQ(flash::calls.cudnn, c.causal && c.keys >= 1024 && c.documents.empty() && c.window == 0 ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaAttentionCase,
    testing::Values(OnGpu{"Causal", 37, 37, 4, 2, 16, true, false, {}},
                    OnGpu{"Filled", 40, 40, 32, 8, 8, true, false, {}, 0, 1, 33},
                    OnGpu{"FilledAlike", 40, 40, 32, 32, 8, true, false, {}, 0, 1, 33},
                    OnGpu{"Window", 40, 40, 6, 2, 16, true, false, {}, 9},
                    OnGpu{"WideWindow", 40, 40, 6, 2, 16, true, false, {}, 40},
                    OnGpu{"Encoder", 37, 37, 4, 4, 16, false, true, {}},
                    OnGpu{"Cross", 7, 13, 4, 2, 16, false, true, {}},
                    OnGpu{"Later", 7, 40, 4, 2, 16, true, false, {}, 20},
                    OnGpu{"Packed", 37, 37, 4, 2, 16, true, false, {10, 3, 20}},
                    OnGpu{"PackedWindow", 37, 37, 4, 2, 16, true, false, {10, 3, 20}, 5},
                    OnGpu{"OneEach", 37, 37, 4, 2, 16, true, false, {37}},
                    OnGpu{"LongAlone", 1900, 1900, 4, 2, 8, true, false, {30, 1750, 20, 50}, 0, 5},
                    OnGpu{"LongAloneWindow", 1900, 1900, 4, 2, 8, true, false, {30, 1750, 20, 50}, 100, 5},
                    OnGpu{"Cudnn", 1024, 1024, 2, 1, 8, true, false, {}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace argosy::test
