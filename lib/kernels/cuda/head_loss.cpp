// The loss in chunks of rows: product, cross-entropy that leaves the gradient on the logits, products of the gradient.
// Nothing here waits for the GPU: rows without loss take part, with a gradient of zero.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/cuda/start.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cuda {

at::Tensor head_loss(const at::Tensor& h_in, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels_in, const HeadLossOptions& options, const HeadLossOutputs& outputs) {
  const auto& [dh, dweight, dbias, accumulate_weight, accumulate_bias, row_nll] = outputs;
  const at::Tensor h = h_in.contiguous(), labels = labels_in.contiguous();
  const at::Tensor matrix = weight.narrow(0, 0, options.live);
  const std::int64_t rows = h.size(0), live = options.live, stride = (live + 7) / 8 * 8;  // rows of whole 16 bytes
  const std::int64_t element = is_bf16(h) ? 2 : 4;
  const std::int64_t chunk =
      std::clamp<std::int64_t>(options.chunk_bytes / (element * stride), 1, std::max<std::int64_t>(rows, 1));
  const std::int64_t reached = rows > 0 ? live : 0;  // no gradient reaches other ids
  if (dweight && !accumulate_weight) dweight->narrow(0, reached, dweight->size(0) - reached).zero_();
  if (dbias && !accumulate_bias) dbias->narrow(0, reached, dbias->size(0) - reached).zero_();
  const at::Tensor room = at::empty({std::min(chunk, rows), stride}, h.options()),
                   results = at::empty({rows, 5}, h.options().dtype(at::kDouble)),
                   sums = at::empty({5}, results.options());
  const PackedMatrix to_logits = kernels::pack_matrix(matrix.t()),
                     to_input = dh ? kernels::pack_matrix(matrix) : PackedMatrix{};
  const bool wants_gradient = dh || dweight || dbias;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const at::Tensor x = h.narrow(0, begin, count), logits = room.narrow(0, 0, count).narrow(1, 0, live);
    kernels::gemm(x, to_logits, logits);
    start(CrossEntropyCall{.logits = logits.mutable_data_ptr(),
                           .bias = values_of(bias, h.scalar_type()),
                           .labels = integers_of(labels) + begin,
                           .results = results.mutable_data_ptr<double>() + begin * 5,
                           .rows = count,
                           .live = live,
                           .stride = stride,
                           .label_smoothing = options.label_smoothing,
                           .z = options.z,
                           .truncation = options.truncation,
                           .loss_scale = options.loss_scale,
                           .gradient = wants_gradient,
                           .bf16 = is_bf16(h)},
          h);
    if (dh) kernels::gemm(logits, to_input, dh->narrow(0, begin, count));
    if (dweight)
      kernels::gemm(logits.t(), x, dweight->narrow(0, 0, live), {.accumulate = accumulate_weight || begin > 0});
    if (dbias) kernels::column_sum(logits, dbias->narrow(0, 0, live), accumulate_bias || begin > 0);
  }
  start(RowSumsCall{.values = results.mutable_data_ptr<double>(),
                    .sums = sums.mutable_data_ptr<double>(),
                    .rows = rows,
                    .columns = 5},
        h);
  if (row_nll) row_nll->copy_(results.select(1, 0));
  return sums;
}

}  // namespace argosy::kernels::cuda
