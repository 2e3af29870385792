#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {

namespace {

constexpr std::int64_t cache_bytes = 16LL << 20;  // gradients of a chunk stay in the outer cache between GEMMs
constexpr std::int64_t block_rows = 64;           // of logits, for each thread: they are read soon after their GEMM
constexpr std::int64_t loss_rows = 16;            // a task of the loss, whose sums stay in the inner cache

}  // namespace

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels_in, const HeadLossOptions& options, const HeadLossOutputs& outputs) {
  const std::int64_t live = options.live;
  const auto& [dh, dweight, dbias, accumulate_weight, accumulate_bias, row_nll] = outputs;
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

  at::Tensor sums = at::zeros({5}, at::kDouble);
  double* sum = pointer<double>(sums);
  const std::int64_t reached = rows > 0 ? live : 0;  // no gradient reaches other ids
  const auto rest_is_zero = [reached](const OptionalTensor& target, bool accumulate) {
    if (target && !accumulate) target->narrow(0, reached, target->size(0) - reached).zero_();
  };
  rest_is_zero(dweight, accumulate_weight);
  rest_is_zero(dbias, accumulate_bias);
  if (row_nll) row_nll->zero_();
  if (rows == 0) {
    if (dh) dh->zero_();
    return sums;
  }

  // A chunk adds once to the gradient of the weights, which takes 8·width bytes of traffic for each of its columns.
  const std::int64_t cached = cache_bytes / (live * static_cast<std::int64_t>(x.element_size()));
  const std::int64_t most =
      std::clamp<std::int64_t>(std::min(options.chunk_bytes / (4 * live), std::max(cached, 2 * x.size(1))), 1, rows);
  const std::int64_t chunks = (rows + most - 1) / most,
                     chunk = (rows + chunks - 1) / chunks;  // none much smaller than the others
  // The gradient takes the place of the logits in fp32. In bf16 the logits of a block have their own, half a chunk's
  // at most, so that both together do not exceed chunk_bytes.
  const bool in_place = x.scalar_type() == at::kFloat;
  const std::int64_t block =
      std::clamp(chunk / 2 / loss_rows * loss_rows, std::min(chunk, loss_rows), block_rows * at::get_num_threads());
  const at::Tensor gradients_of = at::empty({in_place || wants_gradient ? chunk : 0, live}, x.options()),
                   logits_of = in_place ? gradients_of : at::empty({block, live}, at::kFloat);
  const at::Tensor dx = dh && rows < h.size(0) ? at::empty_like(x) : dh.value_or(at::Tensor());
  const PackedMatrix to_logits = kernels::pack_matrix(matrix.t()),
                     to_input = dh ? kernels::pack_matrix(matrix) : PackedMatrix{};
  std::vector<CrossEntropyRow> results(static_cast<std::size_t>(rows));
  at::Tensor partials = dbias ? at::empty({(block + loss_rows - 1) / loss_rows, live}, at::kFloat) : at::Tensor();
  const auto losses_of_block = [&](std::int64_t begin, std::int64_t in_chunk, std::int64_t count) {
    const at::Tensor logits = logits_of.narrow(0, in_place ? in_chunk : 0, count);
    kernels::gemm(x.narrow(0, begin, count), to_logits, logits);
    const std::int64_t tasks = (count + loss_rows - 1) / loss_rows;
    with_type(x, [&]<class T>(T*) {
      float *const logit = pointer<float>(logits), *const partial = dbias ? pointer<float>(partials) : nullptr;
      T* const slope = wants_gradient ? pointer<T>(gradients_of) + in_chunk * live : nullptr;
      const T* const added = pointer<T>(bias);
      at::parallel_for(0, tasks, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t task = first; task < last; ++task) {
          float* const task_sum = partial != nullptr ? partial + task * live : nullptr;
          if (task_sum != nullptr) std::fill(task_sum, task_sum + live, 0.0F);
          for (std::int64_t row = task * loss_rows; row < std::min(count, (task + 1) * loss_rows); ++row) {
            results[static_cast<std::size_t>(begin + row)] = table().loops<T>().cross_entropy(
                logit + row * live, added, slope != nullptr ? slope + row * live : nullptr, task_sum, live,
                label[kept[begin + row]], options.label_smoothing, options.z, options.truncation, options.loss_scale);
          }
        }
      });
      if (dbias) table().sum_partials(partial, pointer<float>(dbias), tasks, live, live, accumulate_bias || begin > 0);
    });
  };
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    for (std::int64_t at = 0; at < count; at += block) losses_of_block(begin + at, at, std::min(block, count - at));
    if (!wants_gradient) continue;
    const at::Tensor gradient = gradients_of.narrow(0, 0, count);
    if (dh) kernels::gemm(gradient, to_input, dx.narrow(0, begin, count));
    if (dweight)
      kernels::gemm(gradient.t(), x.narrow(0, begin, count), dweight->narrow(0, 0, live),
                    {.accumulate = accumulate_weight || begin > 0});
  }
  for (std::int64_t row = 0; const CrossEntropyRow& result : results) {
    if (row_nll) pointer<double>(*row_nll)[kept[row++]] = result.nll;
    sum[0] += result.nll;
    sum[1] += result.loss;
    sum[3] += result.right ? 1 : 0;
    sum[4] += result.kept ? 0 : 1;
  }
  sum[2] = static_cast<double>(rows);
  if (dh && rows < h.size(0)) {
    dh->zero_();
    dh->index_copy_(0, bearing, dx);
  }
  return sums;
}

}  // namespace argosy::kernels::cpu
