#include "optim/moments.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

namespace argosy::optim {

std::vector<float> codes_of(StateType type, bool is_signed) {
  const int bits = type == StateType::int8 ? 8 : 4;
  std::vector<double> values;
  if (type == StateType::int4 && !is_signed) {
    for (int i = 1; i <= 16; ++i) values.push_back(i / 16.0);
  } else {
    values = {0, 1};
    const int parts = bits - 1;
    for (int i = 0; i < parts; ++i) {
      const int count = 1 << (is_signed ? i : i + 1);
      for (int k = 0; k < count; ++k) {
        const double value = (0.1 + 0.9 * (k + 0.5) / count) * std::pow(10.0, i - parts + 1);
        values.push_back(value);
        if (is_signed) values.push_back(-value);
      }
    }
  }
  std::sort(values.begin(), values.end());
  return {values.begin(), values.end()};
}

Piece part_of(const Piece& piece, std::int64_t begin, std::int64_t count) {
  const std::int64_t size = piece.master.numel();
  const auto part = [&](const at::Tensor& of) {  // of as many or fewer numbers
    const std::int64_t elements = size / of.numel();
    return of.narrow(0, begin / elements, count / elements);
  };
  Piece result{.begin = piece.begin + begin,
               .master = part(piece.master),
               .gradient = part(piece.gradient),
               .states = {},
               .weights = {},
               .ema = {},
               .decays = piece.decays,
               .rounding = piece.rounding};
  for (const at::Tensor& state : piece.states) result.states.push_back(part(state));
  if (piece.weights) result.weights = part(*piece.weights);
  if (piece.ema) result.ema = part(*piece.ema);
  result.rounding.begin += begin;
  return result;
}

Moments::Moments(StateType type) : type_(type) {
  if (type != StateType::int8 && type != StateType::int4) return;
  block_ = type == StateType::int8 ? 256 : 128;
  for (const std::size_t which : {0U, 1U}) {
    const std::vector<float> values = codes_of(type, which == 0);
    std::vector<float> between;
    for (std::size_t i = 1; i < values.size(); ++i) between.push_back((values[i - 1] + values[i]) / 2);
    values_[which] = at::tensor(values, at::kFloat);
    between_[which] = at::tensor(between, at::kFloat);
  }
}

bool Moments::is_plain(const Piece& piece) {
  return piece.states.size() == 2 && piece.states[0].scalar_type() == at::kFloat;
}

at::Tensor Moments::codes(const Piece& piece, std::size_t which) const {
  const at::Tensor& stored = piece.states[2 * which];
  if (type_ == StateType::int8) return stored;
  return at::stack({stored.bitwise_and(15), stored.__rshift__(4)}, 1).flatten();  // low half first
}

at::Tensor Moments::read(const Piece& piece, std::size_t which) const {
  if (is_plain(piece)) return piece.states[which];
  if (type_ == StateType::bf16) return piece.states[which].to(at::kFloat);
  const at::Tensor all = codes(piece, which), scales = piece.states[2 * which + 1].unsqueeze(1);
  const at::Tensor values = values_[which].to(all.device()).index_select(0, all.to(at::kInt));
  return (values.view({-1, block_}) * scales).flatten();
}

void Moments::write(const Piece& piece, std::size_t which, const at::Tensor& values, std::int64_t number) const {
  if (is_plain(piece)) return;
  if (type_ == StateType::bf16) {
    kernels::Rounding rounding = piece.rounding;
    rounding.domain -= which == 0 ? 1 : 2;  // other random numbers than those of the weights
    return kernels::round_stochastically_(piece.states[which], values, number, rounding);
  }
  const at::Tensor blocks = values.view({-1, block_}), scales = blocks.abs().amax(1);
  const at::Tensor parts = blocks / scales.clamp_min(1e-38).unsqueeze(1);
  at::Tensor indices = at::bucketize(parts, between_[which].to(parts.device()), /*out_int32=*/true);
  if (which == 1 && type_ == StateType::int8) indices = indices.maximum(blocks.gt(0).to(at::kInt));
  const at::Tensor bytes = indices.to(at::kByte).flatten();
  if (type_ == StateType::int8) {
    piece.states[2 * which].copy_(bytes);
  } else {
    const at::Tensor pairs = bytes.view({-1, 2});
    piece.states[2 * which].copy_(pairs.select(1, 0).bitwise_or(pairs.select(1, 1).__lshift__(4)));
  }
  piece.states[2 * which + 1].copy_(scales);
}

}  // namespace argosy::optim
