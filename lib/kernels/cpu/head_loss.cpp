#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

namespace {

constexpr std::int64_t cache_bytes = 8LL << 20;  // logits of a chunk stay in the outer cache between GEMMs
constexpr std::int64_t loss_rows = 16;           // and those of a block of rows in the inner one, sums included

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
  const at::Tensor x = (rows == h.size(0) ? h : h.index_select(0, bearing)).to(at::kFloat).contiguous();
  const at::Tensor matrix = weight.narrow(0, 0, live).to(at::kFloat);
  const OptionalTensor shift = bias ? OptionalTensor(bias->narrow(0, 0, live).to(at::kFloat)) : std::nullopt;
  const bool gradient = dh || dweight || dbias;

  at::Tensor dx = dh ? at::empty_like(x) : at::Tensor();
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
  const at::Tensor buffer = at::empty({chunk, live}, at::kFloat);
  std::vector<CrossEntropyRow> results(static_cast<std::size_t>(rows));
  at::Tensor partials = dbias ? at::empty({(chunk + loss_rows - 1) / loss_rows, live}, at::kFloat) : at::Tensor();
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    at::Tensor logits = buffer.narrow(0, 0, count);
    const at::Tensor in = x.narrow(0, begin, count);
    at::mm_out(logits, in, matrix.t());
    float* const logit = pointer<float>(logits);
    float* const partial = dbias ? pointer<float>(partials) : nullptr;
    const float* const added = pointer<float>(shift);
    const std::int64_t blocks = (count + loss_rows - 1) / loss_rows;
    at::parallel_for(0, blocks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        float* const block_sum = partial != nullptr ? partial + block * live : nullptr;
        if (block_sum != nullptr) std::fill(block_sum, block_sum + live, 0.0F);
        for (std::int64_t row = block * loss_rows; row < std::min(count, (block + 1) * loss_rows); ++row) {
          results[static_cast<std::size_t>(begin + row)] =
              table().cross_entropy(logit + row * live, added, block_sum, live, label[kept[begin + row]],
                                    options.label_smoothing, options.z, options.loss_scale, gradient);
        }
      }
    });
    if (dbias) table().sum_partials(partial, pointer<float>(dbias), blocks, live, live, accumulate_bias || begin > 0);
    if (dh) {
      at::Tensor out = dx.narrow(0, begin, count);
      at::mm_out(out, logits, matrix);
    }
    if (dweight) {
      at::Tensor out = dweight->narrow(0, 0, live);
      if (accumulate_weight || begin > 0) {
        at::addmm_out(out, out, logits.t(), in);
      } else {
        at::mm_out(out, logits.t(), in);
      }
    }
  }
  for (const CrossEntropyRow& result : results) {
    sum[0] += result.nll;
    sum[1] += result.loss;
    sum[3] += result.right ? 1 : 0;
  }
  sum[2] = static_cast<double>(rows);
  if (dh && rows == h.size(0)) {
    dh->copy_(dx);
  } else if (dh) {
    dh->zero_();
    dh->index_copy_(0, bearing, dx.to(dh->scalar_type()));
  }
  return sums;
}

}  // namespace argosy::kernels::cpu
