#pragma once

#include <cstdint>

/// Inner loops of the CPU kernels on raw pointers, torch-free, compiled once for each instruction set (table_*.cpp) and
/// chosen at run time. All sums have an order that depends on shapes alone. `T` is float or Bf16; statistics and
/// parameter gradients are float.
namespace argosy::kernels::cpu {

struct Bf16 {
  std::uint16_t bits;
};

/// A packed matrix is stored as panels of this many columns.
constexpr std::int64_t panel_columns = 64;

/// Strides in elements; the last dimension is contiguous.
struct HeadsView {
  void* data;
  std::int64_t row, position, head;
};

struct AttentionShape {
  std::int64_t queries, keys, heads, kv_heads, size;
  bool causal;
  std::int64_t window;
  const std::int64_t* key_lengths;  // [rows] or null
  const std::int64_t* segments;     // [rows, keys] or null
  float scale;
  const float* bias;            // [heads, keys + queries - 1] or null
  const std::int64_t* prompts;  // [rows, queries] or null
};

struct AttentionForward {
  HeadsView q, k, v, out;
  float* lse;  // [rows, heads, queries]
};

struct AttentionBackward {
  HeadsView dout, q, k, v, out, dq, dk, dv;
  const float* lse;
  float* dbias;  // [rows, heads, keys + queries - 1], to be added to, or null
};

/// A key head of a row, and the queries [first_query, end_query) of all heads that share it.
struct AttentionTask {
  std::int64_t row, kv_head, first_query, end_query;
};

/// The same with the keys [first_key, end_key). Of all queries, the gradients of these keys and values are written if
/// `wants_key`; of all keys, the gradients of these queries if `wants_query`.
struct AttentionBackwardTask {
  std::int64_t row, kv_head, first_query, end_query, first_key, end_key;
  bool wants_query, wants_key;
};

struct CrossEntropyRow {
  double nll, loss;
  bool right, kept;
};

/// Philox4x32-10 numbers: key, and the counter's words but for the first, which numbers the blocks.
struct RandomName {
  std::uint64_t seed;
  std::uint32_t second, third, fourth;
};

struct DropoutMask {
  std::uint32_t threshold;  // kept when a 16-bit number is at least that
  RandomName name;
};

struct AdamwTerms {
  float coefficient;
  double lr, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};

struct AttentionStepShape {
  std::int64_t heads, kv_heads, size, window;
  float scale;
  const float* bias;  // [heads, most] or null
  std::int64_t most;
};

template <class T>
struct Loops {
  void (*norm)(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd, std::int64_t rows,
               std::int64_t width,
               double epsilon);  // mean null: RMSNorm
  /// partial: [2, width], the sums of this call's rows for weight and bias.
  void (*norm_backward)(const T* dy, const T* x, const T* weight, const float* mean, const float* rstd, const T* add,
                        T* dx, float* partial, std::int64_t rows, std::int64_t width);
  /// Elements [begin, end), begin a multiple of 128; base and bias [width] may be null.
  void (*dropout_add)(const T* base, const T* branch, const T* bias, T* out, std::int64_t begin, std::int64_t end,
                      std::int64_t width, const DropoutMask& mask);
  /// Elements [begin, end), begin a multiple of 128; scales: one for each row of `width` elements.
  void (*add_noise)(T* x, const float* scales, std::int64_t begin, std::int64_t end, std::int64_t width,
                    const RandomName& name);
  /// width: of u; kinds as spec::Activation.
  void (*activation)(T* u, const T* bias, T* y, std::int64_t rows, std::int64_t width, std::int64_t kind);
  /// partial: [width of u] or null; again: y once more, or null.
  void (*activation_backward)(const T* dy, const T* saved, T* du, T* again, float* partial, std::int64_t rows,
                              std::int64_t width, std::int64_t kind);
  void (*column_sum)(const T* x, float* partial, std::int64_t rows, std::int64_t width);
  /// By the angle whose cosines and sines [half] are given, times sign (1 or -1).
  void (*rotate)(T* x, const float* cosine, const float* sine, float sign, std::int64_t heads, std::int64_t head_stride,
                 std::int64_t half);
  void (*embed)(const T* row, const float* position, T* out, float scale, std::int64_t width);
  void (*add_scaled)(const T* x, float* sum, float scale, std::int64_t width);
  /// One row of logits [width], which are overwritten. gradient [width], or null: may begin where the logits do. It
  /// is added to dbias [width] before it is rounded. bias and dbias may be null. Where the error norm is above
  /// `truncation` (0: none), loss and gradient are 0.
  CrossEntropyRow (*cross_entropy)(float* logits, const T* bias, T* gradient, float* dbias, std::int64_t width,
                                   std::int64_t label, double label_smoothing, double z, double truncation,
                                   double scale);
  void (*attention)(const AttentionForward& io, const AttentionShape& shape, const AttentionTask& task);
  /// Sums of dk and dv go over the heads of the group, then over queries, in order.
  void (*attention_backward)(const AttentionBackward& io, const AttentionShape& shape,
                             const AttentionBackwardTask& task);
  /// Up to panel_columns columns of a matrix with one stride of 1 become a panel [padded, panel_columns]: row by row,
  /// in bf16 by pairs of rows, the elements of a column next to each other. Rows from `rows` on become zero.
  void (*pack_panel)(const T* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                     std::int64_t padded, std::int64_t columns, T* panel);
  /// out = tile + bias, or out += with `accumulate`; bias [columns] may be null.
  void (*store_tile)(const float* tile, std::int64_t tile_stride, T* out, std::int64_t out_stride, std::int64_t rows,
                     std::int64_t columns, const T* bias, bool accumulate);
  /// A row becomes integers from -127 to 127, plus 128, in `padded` elements. Returns the scale that they are multiples
  /// of; NaN for a row with NaN or infinity.
  float (*round_row)(const T* row, std::int64_t width, std::uint8_t* out, std::int64_t padded);
  /// One row: see kernels::attention_step(). added may be null.
  void (*attention_step)(const T* q, const T* added, T* pool, const std::int64_t* places, std::int64_t length,
                         const AttentionStepShape& shape, T* out);
};

/// Lines of the cache, of `rows` rows of memory, and which of them is next.
struct Lines {
  const char* from;
  std::int64_t stride;  // bytes
  std::int64_t in_row, rows;
  std::int64_t share;  // of them to be fetched in a call
  std::int64_t row = 0, line = 0;
};

struct Table {
  Loops<float> fp32;
  Loops<Bf16> bf16;
  /// Rows of a matrix with one stride of 1, each made contiguous; columns from `columns` to `padded` (even) become
  /// zero.
  void (*pack_rows)(const Bf16* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                    std::int64_t columns, std::int64_t padded, Bf16* out, std::int64_t out_stride);
  /// The same as pack_panel, and as pack_rows of contiguous rows, in fp32.
  void (*pack_panel_wide)(const Bf16* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                          std::int64_t padded, std::int64_t columns, float* panel);
  void (*pack_rows_wide)(const Bf16* matrix, std::int64_t row_stride, std::int64_t rows, std::int64_t columns,
                         std::int64_t padded, float* out, std::int64_t out_stride);
  /// c (+)= aᵀ·b: a [depth, rows], b [depth, columns], c [rows, columns], rows contiguous. `b` has room for whole
  /// multiples of half of panel_columns. Brings the next lines of `ahead` into the cache.
  void (*multiply_columns)(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                           std::int64_t a_row, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                           bool accumulate, Lines& ahead);
  /// target (+)= Σ partials [count, width], in order.
  void (*sum_partials)(const float* partials, float* target, std::int64_t count, std::int64_t stride,
                       std::int64_t width, bool accumulate);
  void (*adamw)(float* master, float* m, float* v, const float* gradient, Bf16* weights, std::int64_t n,
                const AdamwTerms& terms);
  /// Elements `begin` (a multiple of 128) and on of a parameter.
  void (*adamw_stochastic)(Bf16* weights, float* m, float* v, const float* gradient, std::int64_t begin, std::int64_t n,
                           const AdamwTerms& terms, const RandomName& name);
  /// mean += share · (values - mean)
  void (*ema)(float* mean, const float* values, std::int64_t n, float share);
  double (*sum_of_squares)(const float* x, std::int64_t n);
  /// out[i, j] = (sums[i, j] - 128·column_sums[j]) · row_scales[i]·column_scales[j]
  void (*scale_tile)(const std::int32_t* sums, float* out, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                     const float* row_scales, const float* column_scales, const std::int32_t* column_sums);
  /// One row: see kernels::top_log_probabilities().
  void (*top_log_probabilities)(const float* logits, std::int64_t live, std::int64_t count, float* values,
                                std::int64_t* ids);
  const char* name;

  template <class T>
  [[nodiscard]] const Loops<T>& loops() const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return fp32;
    } else {
      return bf16;
    }
  }
};

/// The best table this processor runs; ARGOSY_CPU_KERNELS=baseline|avx2|avx512|avx512_bf16|avx512_amx forces a lesser
/// one.
[[nodiscard]] const Table& table();
/// All tables this processor runs, for tests.
[[nodiscard]] const Table* table_named(const char* name);

}  // namespace argosy::kernels::cpu
