#include <ATen/ops/empty.h>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

at::Tensor attention_step(const at::Tensor& q, const OptionalTensor& added, const CachedKeys& keys, std::int64_t window,
                          double scale, const OptionalTensor& bias) {
  const std::int64_t rows = q.size(0), most = keys.places.size(1), pairs = keys.pool.size(1) * keys.pool.size(2);
  ARGOSY_CHECK(!bias || (bias->is_contiguous() && bias->size(0) == q.size(1) && bias->size(1) == most),
               "a bias for {} heads and {} positions", q.size(1), most);
  const AttentionStepShape shape{
      q.size(1), keys.pool.size(1) / 2, q.size(2), window, static_cast<float>(scale), pointer<float>(bias), most};
  const auto is_row = [](const at::Tensor& x) { return x.stride(2) == 1 && x.stride(1) == x.size(2); };
  ARGOSY_CHECK(is_row(q) && (!added || is_row(*added)) && keys.pool.is_contiguous(), "heads that are contiguous");
  at::Tensor out = at::empty(q.sizes(), q.options());
  const at::Tensor places = keys.places.contiguous(), lengths = keys.lengths.contiguous();
  const auto *place = pointer<std::int64_t>(places), *length = pointer<std::int64_t>(lengths);
  with_type(q, [&]<class T>(T*) {
    T *const pool = pointer<T>(keys.pool), *const from = pointer<T>(q), *const to = pointer<T>(out);
    const T* const fresh = pointer<T>(added);
    at::parallel_for(0, rows, grain(most * pairs), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        table().loops<T>().attention_step(from + row * q.stride(0),
                                          fresh != nullptr ? fresh + row * added->stride(0) : nullptr, pool,
                                          place + row * most, length[row], shape, to + row * out.stride(0));
      }
    });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> top_log_probabilities(const at::Tensor& logits_in, std::int64_t live,
                                                         std::int64_t count) {
  const at::Tensor logits = logits_in.contiguous();
  const std::int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor values = at::empty({rows, count}, at::kFloat), ids = at::empty({rows, count}, at::kLong);
  const float* const from = pointer<float>(logits);
  auto* const value = pointer<float>(values);
  auto* const id = pointer<std::int64_t>(ids);
  at::parallel_for(0, rows, grain(live), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      table().top_log_probabilities(from + row * width, live, count, value + row * count, id + row * count);
  });
  return {values, ids};
}

}  // namespace argosy::kernels::cpu
