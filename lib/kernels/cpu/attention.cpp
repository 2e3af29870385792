#include <ATen/ops/empty.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

namespace {

HeadsView view(const at::Tensor& x) {
  ARGOSY_CHECK(x.stride(3) == 1, "the last dimension of a heads view is contiguous");
  return {x.mutable_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

struct Mask {
  OptionalTensor key_lengths, segments;
  AttentionShape shape;

  Mask(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask, double scale)
      : key_lengths(mask.key_lengths ? OptionalTensor(mask.key_lengths->contiguous()) : std::nullopt),
        segments(mask.segments ? OptionalTensor(mask.segments->contiguous()) : std::nullopt),
        shape{q.size(1),
              k.size(1),
              q.size(2),
              k.size(2),
              q.size(3),
              mask.causal,
              mask.window,
              pointer<std::int64_t>(key_lengths),
              pointer<std::int64_t>(segments),
              static_cast<float>(scale)} {
    ARGOSY_CHECK(shape.heads % shape.kv_heads == 0, "{} query heads, {} key heads", shape.heads, shape.kv_heads);
  }
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  const Mask seen(q, k, mask, scale);
  at::Tensor out = at::empty(q.sizes(), q.options()), lse = at::empty({q.size(0), q.size(2), q.size(1)}, at::kFloat);
  const AttentionForward io{view(q), view(k), view(v), view(out), pointer<float>(lse)};
  with_type(q, [&]<class T>(T*) {
    at::parallel_for(0, q.size(0) * k.size(2), 4, [&](std::int64_t begin, std::int64_t end) {
      table().loops<T>().attention(io, seen.shape, begin, end);
    });
  });
  return {out, lse};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  const Mask seen(q, k, mask, scale);
  const AttentionBackward io{view(dout),         view(q), view(k), view(v), view(out), view(dq), view(dk), view(dv),
                             pointer<float>(lse)};
  with_type(q, [&]<class T>(T*) {
    at::parallel_for(0, q.size(0) * k.size(2), 4, [&](std::int64_t begin, std::int64_t end) {
      table().loops<T>().attention_backward(io, seen.shape, begin, end);
    });
  });
}

void rope_(const at::Tensor& x, const OptionalTensor& positions_in, std::int64_t offset, double theta, bool inverse) {
  const OptionalTensor positions = positions_in ? OptionalTensor(positions_in->contiguous()) : std::nullopt;
  const std::int64_t rows = x.size(0), length = x.size(1), half = x.size(3) / 2;
  std::vector<double> frequency(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    frequency[static_cast<std::size_t>(i)] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  }
  const std::int64_t* place = pointer<std::int64_t>(positions);
  const at::Tensor waves = at::empty({positions ? rows : 1, length, 2, half}, at::kFloat);  // cosines, sines
  float* const wave = waves.mutable_data_ptr<float>();
  at::parallel_for(0, waves.size(0) * length, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<double>(place != nullptr ? place[t] : offset + t);
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = position * frequency[static_cast<std::size_t>(i)];
        wave[t * 2 * half + i] = static_cast<float>(std::cos(angle));
        wave[(t * 2 + 1) * half + i] = static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle));
      }
    }
  });
  const HeadsView heads = view(x);
  with_type(x, [&]<class T>(T*) {
    at::parallel_for(0, rows * length, grain(x.size(2) * x.size(3)), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float* at_position = wave + (positions ? i : i % length) * 2 * half;
        table().loops<T>().rotate(static_cast<T*>(heads.data) + i / length * heads.row + i % length * heads.position,
                                  at_position, at_position + half, x.size(2), heads.head, half);
      }
    });
  });
}

}  // namespace argosy::kernels::cpu
