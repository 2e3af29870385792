#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// The functions of libargosy_cuda.so that kernels/ calls by name (entries.ipp defines them). All pointers are the
/// device's. Values are fp32, or bf16 with `bf16`; rows lie one after the other. Torch-free.
namespace argosy::kernels {

inline constexpr const char* cuda_start_name = "argosy_cuda_start";

/// Makes `device` current and runs a kernel on it. Returns 0, or leaves one line in `problem` [capacity].
using CudaStart = int (*)(int device, char* problem, std::size_t capacity);

inline constexpr const char* cuda_traits_name = "argosy_cuda_traits";

struct GpuTraits {
  int multiprocessors, generation;  // generation: 8 for Ampere, 9 for Hopper, …
};

/// Returns 0 or a cudaError_t.
using CudaTraits = int (*)(int device, GpuTraits* traits);

/// Starts an operation on `stream` (cudaStream_t). Returns 0 or a cudaError_t.
template <class Call>
using CudaEntry = int (*)(const Call* call, void* stream);

/// As kernels::norm. bias: or null; mean: null for RMSNorm.
struct NormCall {
  static constexpr const char* entry = "argosy_cuda_norm";
  const void *x, *weight, *bias;
  void* y;
  float *mean, *rstd;
  std::int64_t rows, width;
  float epsilon;
  bool bf16;
};

/// As kernels::norm_backward. mean: null for RMSNorm; add, dweight, dbias: or null.
/// parts: [norm_parts(rows), norm_sums, width] to work in.
struct NormBackwardCall {
  static constexpr const char* entry = "argosy_cuda_norm_backward";
  const void *dy, *x, *weight, *add;
  void* dx;
  const float *mean, *rstd;
  float *parts, *dweight, *dbias;
  std::int64_t rows, width;
  bool accumulate, bf16;
};
constexpr std::int64_t norm_parts(std::int64_t rows) { return std::min<std::int64_t>(rows, 512); }
constexpr std::int64_t norm_sums(bool dweight, bool dbias) { return dbias ? 2 : dweight ? 1 : 0; }

/// As kernels::column_sum; rows of x are `stride` elements apart. parts: [column_parts(rows), width] to work in.
struct ColumnSumCall {
  static constexpr const char* entry = "argosy_cuda_column_sum";
  const void* x;
  float *parts, *out;
  std::int64_t rows, width, stride;
  bool accumulate, bf16;
};
constexpr std::int64_t column_parts(std::int64_t rows) { return std::min<std::int64_t>((rows + 255) / 256, 64); }

/// As kernels::activation. kind: the number of spec::Activation; bias: or null.
struct ActivationCall {
  static constexpr const char* entry = "argosy_cuda_activation";
  void* u;
  const void* bias;
  void* y;
  std::int64_t rows, width, kind;  // width: of y
  bool bf16;
};

/// As kernels::activation_backward, without dbias. again: or null.
struct ActivationBackwardCall {
  static constexpr const char* entry = "argosy_cuda_activation_backward";
  const void *dy, *saved;
  void *du, *again;
  std::int64_t rows, width, kind;  // width: of dy
  bool bf16;
};

/// What random halves are drawn by (kernels::DropoutKey).
struct RandomCounter {
  std::uint64_t seed;
  std::uint32_t site, step, micro_batch;
};

/// As kernels::dropout_add. base, bias: or null; threshold: halves below drop their element; scale: of those kept.
struct DropoutAddCall {
  static constexpr const char* entry = "argosy_cuda_dropout_add";
  const void *base, *branch, *bias;
  void* y;
  std::int64_t n, width;
  std::uint32_t threshold;
  float scale;
  RandomCounter random;
  bool bf16;
};

/// As kernels::add_noise_.
struct AddNoiseCall {
  static constexpr const char* entry = "argosy_cuda_add_noise";
  void* x;
  const float* scales;
  std::int64_t n, width;
  RandomCounter random;
  bool bf16;
};

/// As kernels::rope_. Strides are in elements; positions: or null.
struct RopeCall {
  static constexpr const char* entry = "argosy_cuda_rope";
  void* x;
  const std::int64_t* positions;
  const float* waves;
  std::int64_t rows, length, heads, half, row_stride, token_stride, head_stride, offset;
  bool inverse, bf16;
};

/// Replaces logits [rows, live], whose rows are `stride` elements apart, by their gradient if `gradient`, and leaves
/// the five numbers of kernels::head_loss for each row in results [rows, 5]. bias: or null.
struct CrossEntropyCall {
  static constexpr const char* entry = "argosy_cuda_cross_entropy";
  void* logits;
  const void* bias;
  const std::int64_t* labels;
  double* results;
  std::int64_t rows, live, stride;
  double label_smoothing, z, truncation, loss_scale;
  bool gradient, bf16;
};

/// Leaves the sums over the rows of values [rows, columns], at most 5, in sums.
struct RowSumsCall {
  static constexpr const char* entry = "argosy_cuda_row_sums";
  const double* values;
  double* sums;
  std::int64_t rows, columns;
};

/// As kernels::embedding. position_table, positions: or null.
struct EmbeddingCall {
  static constexpr const char* entry = "argosy_cuda_embedding";
  const std::int64_t* ids;
  const void* table;
  const float* position_table;
  const std::int64_t* positions;
  void* y;
  std::int64_t n, width, length, offset;
  float scale;
  bool bf16;
};

/// As kernels::embedding_backward, but that rows without an id are left alone. ids [n]: sorted; order [n]: the places
/// in dx that they come from, those of one id in ascending order.
struct EmbeddingBackwardCall {
  static constexpr const char* entry = "argosy_cuda_embedding_backward";
  const void* dx;
  const std::int64_t *ids, *order;
  float* dtable;
  std::int64_t n, width, skip_id;
  float scale;
  bool accumulate, bf16;
};

/// The factors of AdamW's formula, rounded to fp32 once.
struct AdamwFactors {
  float beta1, beta2, new_m, new_v, epsilon, keep, rate, spread;
};

/// As kernels::adamw_. weights: bf16, or null.
struct AdamwCall {
  static constexpr const char* entry = "argosy_cuda_adamw";
  float *master, *m, *v;
  const float *gradient, *coefficient;
  void* weights;
  std::int64_t n;
  AdamwFactors factors;
};

/// As kernels::adamw_stochastic_.
struct AdamwStochasticCall {
  static constexpr const char* entry = "argosy_cuda_adamw_stochastic";
  std::uint16_t* weights;
  float *m, *v;
  const float *gradient, *coefficient;
  std::int64_t begin, n;  // elements [begin, begin + n) of the parameter, begin a multiple of 128
  AdamwFactors factors;
  std::uint64_t seed;
  std::uint32_t parameter, step;
};

/// As kernels::ema_; rate: 1 - decay.
struct EmaCall {
  static constexpr const char* entry = "argosy_cuda_ema";
  float* mean;
  const float *values, *coefficient;
  std::int64_t n;
  float rate;
};

/// As kernels::sum_of_squares. parts: [square_parts(n)] to work in.
struct SumOfSquaresCall {
  static constexpr const char* entry = "argosy_cuda_sum_of_squares";
  const float* x;
  double *parts, *sum;
  std::int64_t n;
};
inline constexpr std::int64_t square_part = 1 << 16;
constexpr std::int64_t square_parts(std::int64_t n) { return (n + square_part - 1) / square_part; }

}  // namespace argosy::kernels
