#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

namespace {

HeadsView view(const at::Tensor& x) {
  ARGOSY_CHECK(x.stride(3) == 1, "the last dimension of a heads view is contiguous");
  return {x.mutable_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

struct Mask {
  OptionalTensor key_lengths, segments, prompts;
  AttentionShape shape;

  Mask(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask, double scale)
      : key_lengths(mask.key_lengths ? OptionalTensor(mask.key_lengths->contiguous()) : std::nullopt),
        segments(mask.segments ? OptionalTensor(mask.segments->contiguous()) : std::nullopt),
        prompts(mask.prompts ? OptionalTensor(mask.prompts->contiguous()) : std::nullopt),
        shape{q.size(1),
              k.size(1),
              q.size(2),
              k.size(2),
              q.size(3),
              mask.causal,
              mask.window,
              pointer<std::int64_t>(key_lengths),
              pointer<std::int64_t>(segments),
              static_cast<float>(scale),
              pointer<float>(mask.bias),
              pointer<std::int64_t>(prompts)} {
    ARGOSY_CHECK(shape.heads % shape.kv_heads == 0, "{} query heads, {} key heads", shape.heads, shape.kv_heads);
    ARGOSY_CHECK(!prompts || (mask.causal && shape.queries == shape.keys && prompts->size(1) == shape.queries),
                 "prompts for {} queries and {} keys", shape.queries, shape.keys);
    ARGOSY_CHECK(!mask.bias || (mask.bias->is_contiguous() && mask.bias->size(0) == shape.heads &&
                                mask.bias->size(1) == std::max<std::int64_t>(0, shape.keys + shape.queries - 1)),
                 "a bias for {} heads, {} queries and {} keys", shape.heads, shape.queries, shape.keys);
  }
};

/// Positions of a row cut into parts, if rows and key heads alone are too few for all threads. Results do not depend on
/// it.
class Parts {
 public:
  Parts(std::int64_t heads, std::int64_t length, bool cuts = true)
      : heads_(heads), length_(length), span_(std::max<std::int64_t>(1, length)) {
    const std::int64_t threads = at::get_num_threads(), wanted = 4 * threads;
    if (!cuts || threads == 1 || heads == 0 || heads >= 2 * threads) return;
    constexpr std::int64_t least = 64;  // so that packing keys and values costs little
    const std::int64_t parts = (wanted + heads - 1) / heads;
    span_ = std::min(span_, std::max(least, (length / parts + 31) / 32 * 32));
  }
  [[nodiscard]] bool is_whole() const { return span_ >= length_; }

  /// Calls work(head, first, end). Of a causal mask, early and late parts alternate: they differ in work.
  template <class Work>
  void for_each(std::int64_t grain, Work&& work) const {
    const std::int64_t parts = (length_ + span_ - 1) / span_;
    at::parallel_for(0, heads_ * parts, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = i % parts, part = k % 2 == 0 ? k / 2 : parts - 1 - k / 2;
        work(i / parts, part * span_, std::min(length_, (part + 1) * span_));
      }
    });
  }

 private:
  std::int64_t heads_, length_, span_;
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  const Mask seen(q, k, mask, scale);
  at::Tensor out = at::empty(q.sizes(), q.options()), lse = at::empty({q.size(0), q.size(2), q.size(1)}, at::kFloat);
  const AttentionForward io{view(q), view(k), view(v), view(out), pointer<float>(lse)};
  const Parts parts(q.size(0) * k.size(2), q.size(1));
  with_type(q, [&]<class T>(T*) {
    parts.for_each(grain(k.size(1) * q.size(3)), [&](std::int64_t head, std::int64_t first, std::int64_t end) {
      table().loops<T>().attention(io, seen.shape, {head / k.size(2), head % k.size(2), first, end});
    });
  });
  return {out, lse};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  const Mask seen(q, k, mask, scale);
  // Each row has sums of its own, which are then added in order.
  const at::Tensor sums = dbias ? at::zeros({q.size(0), dbias->size(0), dbias->size(1)}, at::kFloat) : at::Tensor();
  const AttentionBackward io{view(dout),
                             view(q),
                             view(k),
                             view(v),
                             view(out),
                             view(dq),
                             view(dk),
                             view(dv),
                             pointer<float>(lse),
                             dbias ? pointer<float>(sums) : nullptr};
  const std::int64_t queries = q.size(1), keys = k.size(1), kv_heads = k.size(2), heads = q.size(0) * kv_heads;
  const bool cuts = !dbias;  // the sums of a row and head have one order
  const Parts by_query(heads, queries, cuts), by_key(heads, keys, cuts);
  with_type(q, [&]<class T>(T*) {
    const auto task = [&](std::int64_t head, AttentionBackwardTask of) {
      of.row = head / kv_heads, of.kv_head = head % kv_heads;
      table().loops<T>().attention_backward(io, seen.shape, of);
    };
    if (by_query.is_whole() && by_key.is_whole()) {
      by_query.for_each(1, [&](std::int64_t head, std::int64_t first, std::int64_t end) {
        task(head, {0, 0, first, end, 0, keys, true, true});
      });
      return;
    }
    // Probabilities are computed twice, so that no two threads write to one place: seven products instead of five.
    by_query.for_each(1, [&](std::int64_t head, std::int64_t first, std::int64_t end) {
      task(head, {0, 0, first, end, 0, keys, true, false});
    });
    by_key.for_each(1, [&](std::int64_t head, std::int64_t first, std::int64_t end) {
      task(head, {0, 0, 0, queries, first, end, false, true});
    });
  });
  if (!dbias) return;
  const std::int64_t width = dbias->numel();
  auto *const partial = pointer<float>(sums), *const target = pointer<float>(*dbias);
  at::parallel_for(0, width, grain(q.size(0)), [&](std::int64_t begin, std::int64_t end) {
    table().sum_partials(partial + begin, target + begin, q.size(0), width, end - begin, false);
  });
}

void rope_(const at::Tensor& x, const OptionalTensor& positions_in, std::int64_t offset, const at::Tensor& waves,
           bool inverse) {
  const OptionalTensor positions = positions_in ? OptionalTensor(positions_in->contiguous()) : std::nullopt;
  const std::int64_t rows = x.size(0), length = x.size(1), half = x.size(3) / 2, covered = waves.size(0);
  const std::int64_t* place = pointer<std::int64_t>(positions);
  const float* const wave = pointer<float>(waves);
  const HeadsView heads = view(x);
  with_type(x, [&]<class T>(T*) {
    at::parallel_for(0, rows * length, grain(x.size(2) * x.size(3)), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t position = place != nullptr ? place[i] : offset + i % length;
        ARGOSY_CHECK(0 <= position && position < covered, "position {} of {}", position, covered);
        const float* const cosines = wave + position * 2 * half;
        table().loops<T>().rotate(static_cast<T*>(heads.data) + i / length * heads.row + i % length * heads.position,
                                  cosines, cosines + half, inverse ? -1.0F : 1.0F, x.size(2), heads.head, half);
      }
    });
  });
}

}  // namespace argosy::kernels::cpu
