#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

namespace {

constexpr std::int64_t cache_bytes = 16LL << 20;  // logits of a chunk stay in the outer cache between GEMMs
constexpr std::int64_t loss_rows = 16;            // and those of a block of rows in the inner one, sums included

}  // namespace

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels_in, const HeadLossOptions& options, const HeadLossGradients& gradients) {
  const std::int64_t live = options.live;
  const auto& [dh, dweight, dbias, accumulate_weight, accumulate_bias] = gradients;
  const at::Tensor labels = labels_in.contiguous(), index = at::empty(labels.sizes(), labels.options());
  const std::int64_t* label = pointer<std::int64_t>(labels);
  std::int64_t* kept = pointer<std::int64_t>(index);
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    ARGOSY_CHECK(label[i] < live, "label {} of {} live ids", label[i], live);
    if (label[i] >= 0) kept[rows++] = i;
  }
  const at::Tensor bearing = index.narrow(0, 0, rows);
  const at::Tensor x = (rows == h.size(0) ? h : h.index_select(0, bearing)).contiguous();
  const at::Tensor matrix = weight.narrow(0, 0, live);
  const bool wants_gradient = dh || dweight || dbias;

  at::Tensor sums = at::zeros({4}, at::kDouble);
  double* sum = pointer<double>(sums);
  const std::int64_t reached = rows > 0 ? live : 0;  // no gradient reaches other ids
  const auto rest_is_zero = [reached](const OptionalTensor& target, bool accumulate) {
    if (target && !accumulate) target->narrow(0, reached, target->size(0) - reached).zero_();
  };
  rest_is_zero(dweight, accumulate_weight);
  rest_is_zero(dbias, accumulate_bias);
  if (rows == 0) {
    if (dh) dh->zero_();
    return sums;
  }

  const std::int64_t most = std::clamp<std::int64_t>(std::min(options.chunk_bytes, cache_bytes) / (4 * live), 1, rows);
  const std::int64_t chunks = (rows + most - 1) / most,
                     chunk = (rows + chunks - 1) / chunks;  // none much smaller than the others
  // The gradient of a row of logits, of the type of h, begins where the logits of that row begin.
  const at::Tensor buffer = at::empty({chunk, live}, at::kFloat), typed = buffer.view(x.scalar_type());
  const at::Tensor dx = dh && rows < h.size(0) ? at::empty_like(x) : dh.value_or(at::Tensor());
  const PackedMatrix to_logits = kernels::pack_matrix(matrix.t()),
                     to_input = dh ? kernels::pack_matrix(matrix) : PackedMatrix{};
  std::vector<CrossEntropyRow> results(static_cast<std::size_t>(rows));
  at::Tensor partials = dbias ? at::empty({(chunk + loss_rows - 1) / loss_rows, live}, at::kFloat) : at::Tensor();
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const at::Tensor logits = buffer.narrow(0, 0, count), in = x.narrow(0, begin, count);
    kernels::gemm(in, to_logits, logits);
    const at::Tensor gradient = typed.narrow(0, 0, count).narrow(1, 0, live);
    const std::int64_t blocks = (count + loss_rows - 1) / loss_rows;
    with_type(x, [&]<class T>(T*) {
      float *const logit = pointer<float>(logits), *const partial = dbias ? pointer<float>(partials) : nullptr;
      T* const slope = wants_gradient ? pointer<T>(gradient) : nullptr;
      const T* const added = pointer<T>(bias);
      at::parallel_for(0, blocks, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t block = first; block < last; ++block) {
          float* const block_sum = partial != nullptr ? partial + block * live : nullptr;
          if (block_sum != nullptr) std::fill(block_sum, block_sum + live, 0.0F);
          for (std::int64_t row = block * loss_rows; row < std::min(count, (block + 1) * loss_rows); ++row) {
            results[static_cast<std::size_t>(begin + row)] = table().loops<T>().cross_entropy(
                logit + row * live, added, slope != nullptr ? slope + row * gradient.stride(0) : nullptr, block_sum,
                live, label[kept[begin + row]], options.label_smoothing, options.z, options.loss_scale);
          }
        }
      });
      if (dbias) table().sum_partials(partial, pointer<float>(dbias), blocks, live, live, accumulate_bias || begin > 0);
    });
    if (dh) kernels::gemm(gradient, to_input, dx.narrow(0, begin, count));
    if (dweight) {
      const bool adds = accumulate_weight || begin > 0;
      kernels::gemm(gradient.t(), in, dweight->narrow(0, 0, live), {.accumulate = adds});
    }
  }
  for (const CrossEntropyRow& result : results) {
    sum[0] += result.nll;
    sum[1] += result.loss;
    sum[3] += result.right ? 1 : 0;
  }
  sum[2] = static_cast<double>(rows);
  if (dh && rows < h.size(0)) {
    dh->zero_();
    dh->index_copy_(0, bearing, dx);
  }
  return sums;
}

}  // namespace argosy::kernels::cpu
