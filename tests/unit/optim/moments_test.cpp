#include "optim/moments.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.hpp"

namespace argosy::test {
namespace {

using optim::Moments, optim::StateType;

/// A piece of `n` elements whose moments are stored as `type`.
optim::Piece coded_piece(StateType type, std::int64_t n) {
  optim::Piece piece;
  piece.master = at::zeros({n}, at::kFloat);
  piece.gradient = at::zeros({n}, at::kFloat);
  piece.rounding.seed = 3;
  for (int moment = 0; moment < 2; ++moment) {
    if (type == StateType::fp32) piece.states.push_back(at::zeros({n}, at::kFloat));
    if (type == StateType::bf16) piece.states.push_back(at::zeros({n}, at::kBFloat16));
    if (type == StateType::int8 || type == StateType::int4) {
      const bool bytes = type == StateType::int8;
      piece.states.push_back(at::zeros({bytes ? n : n / 2}, at::kByte));
      piece.states.push_back(at::zeros({n / (bytes ? 256 : 128)}, at::kFloat));
    }
  }
  return piece;
}

at::Tensor normal_moments(std::int64_t n, bool is_signed) {
  RandomStream random(11, is_signed ? 0 : 1);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const double size = std::exp(0.5 * random.normal()) * (i < n / 2 ? 1 : 1e-4);
    values.push_back(static_cast<float>(is_signed ? size * random.normal() : size));
  }
  return at::tensor(values, at::kFloat);
}

TEST(Moments, CodesAreTheDynamicMap) {
  const auto count = [](StateType type, bool is_signed) { return optim::codes_of(type, is_signed).size(); };
  EXPECT_EQ(std::tuple(count(StateType::int8, true), count(StateType::int8, false)), std::tuple(256U, 256U));
  EXPECT_EQ(std::tuple(count(StateType::int4, true), count(StateType::int4, false)), std::tuple(16U, 16U));
  const std::vector<float> signed8 = optim::codes_of(StateType::int8, true),
                           plain8 = optim::codes_of(StateType::int8, false),
                           signed4 = optim::codes_of(StateType::int4, true),
                           plain4 = optim::codes_of(StateType::int4, false);
  for (const auto& codes : {signed8, plain8, signed4, plain4}) {
    EXPECT_TRUE(std::is_sorted(codes.begin(), codes.end()));
    EXPECT_EQ(std::adjacent_find(codes.begin(), codes.end()), codes.end());
    EXPECT_EQ(codes.back(), 1.0F);
  }
  EXPECT_FLOAT_EQ(signed8[0], static_cast<float>(-(0.1 + 0.9 * 63.5 / 64)));
  EXPECT_FLOAT_EQ(signed8[128], 0.55e-6F);  // behind 0: the one number of i = 0
  EXPECT_EQ(signed8[127], 0.0F);
  EXPECT_EQ(plain8[0], 0.0F);
  EXPECT_FLOAT_EQ(plain8[1], 0.325e-6F);
  EXPECT_FLOAT_EQ(signed4[8], 0.55e-2F);
  EXPECT_EQ(std::tuple(plain4[0], plain4[7]), std::tuple(0.0625F, 0.5F));
}

TEST(Moments, ComeBackAsNearAsTheirTypeAllows) {
  constexpr std::int64_t n = 2048;
  for (const auto& [type, bound] :
       {std::pair{StateType::bf16, 0x1p-7}, {StateType::int8, 0.03}, {StateType::int4, 0.3}}) {
    const optim::Piece piece = coded_piece(type, n);
    const Moments moments(type);
    EXPECT_EQ(moments.read(piece, 0).abs().max().item<float>(), 0) << "before the first update";
    for (const std::size_t which : {0U, 1U}) {
      const at::Tensor values = normal_moments(n, which == 0);
      moments.write(piece, which, values, 1);
      const at::Tensor error = (moments.read(piece, which) - values).square().sum().sqrt(),
                       size = values.square().sum().sqrt();
      EXPECT_LT(error.item<float>(), bound * size.item<float>()) << which;
      EXPECT_GT(error.item<float>(), 0);
    }
  }
}

TEST(Moments, OfPlainPiecesAreTheTensorsThemselves) {
  const optim::Piece piece = coded_piece(StateType::fp32, 256);
  EXPECT_TRUE(Moments::is_plain(piece));
  EXPECT_TRUE(Moments(StateType::int8).read(piece, 1).is_same(piece.states[1]));
}

TEST(Moments, ASecondMomentAboveZeroStaysAboveZero) {
  for (const StateType type : {StateType::int8, StateType::int4}) {
    const optim::Piece piece = coded_piece(type, 256);
    std::vector<float> values(256, 1e-12F);
    values[0] = 1;
    values[1] = 0;
    Moments(type).write(piece, 1, at::tensor(values, at::kFloat), 1);
    const at::Tensor back = Moments(type).read(piece, 1);
    EXPECT_EQ(back[0].item<float>(), 1);
    EXPECT_GT(back[2].item<float>(), 0);
    EXPECT_EQ(back[1].item<float>() == 0, type == StateType::int8) << "4 bits have no zero";
  }
}

TEST(Moments, InBf16AreRoundedWithoutBias) {
  constexpr std::int64_t n = 1 << 15;
  const optim::Piece piece = coded_piece(StateType::bf16, n);
  const at::Tensor values = at::zeros({n}, at::kFloat).add_(1 + 0x1p-9);  // a quarter of the way up
  const Moments moments(StateType::bf16);
  for (const std::size_t which : {0U, 1U}) moments.write(piece, which, values, 1);
  const at::Tensor first = moments.read(piece, 0), second = moments.read(piece, 1);
  EXPECT_NEAR(first.mean(at::kDouble).item<double>(), 1 + 0x1p-9, 4 * 0x1p-7 * std::sqrt(0.1875 / n));
  EXPECT_FALSE(first.equal(second)) << "both with the same random numbers";
  moments.write(piece, 0, values, 2);
  EXPECT_FALSE(first.equal(moments.read(piece, 0))) << "the same in each update";
}

TEST(Moments, PartsOfAPieceAreItsOwn) {
  const optim::Piece piece = coded_piece(StateType::int4, 1024);
  Moments(StateType::int4).write(piece, 0, at::arange(1024, at::kFloat), 1);
  const at::Tensor whole = Moments(StateType::int4).read(piece, 0);
  const optim::Piece part = optim::part_of(piece, 512, 256);
  EXPECT_TRUE(Moments(StateType::int4).read(part, 0).equal(whole.narrow(0, 512, 256)));
  EXPECT_EQ(std::tuple(part.begin, part.rounding.begin, part.master.numel()), std::tuple(512, 512, 256));
}

}  // namespace
}  // namespace argosy::test
