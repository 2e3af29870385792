#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

/// Floating-point operations of training, counted from shapes. The count covers matrix products and attention, forward
/// and backward. It leaves out recomputation, embedding look-ups and element-wise work. There are two conventions:
/// `causal` counts the pairs that attention looks at, as Fast-LLM does (T²/2 a row, w·T - w²/2 with a window w);
/// `full` counts the whole T × T matrix and ignores windows. Pure.
namespace argosy::telemetry {

/// The sizes of a model that the count needs. encoder_layers > 0: there is cross-attention as well.
struct FlopShape {
  std::int64_t encoder_layers = 0, decoder_layers = 0;
  std::int64_t width = 0, ff = 0, heads = 0, kv_heads = 0, head_size = 0, vocab = 0;
  int ff_matrices = 3;  // gated: 3, else 2
  std::optional<std::int64_t> window{};
  /// Where parts are frozen: layers without a backward pass, and operations that a position has more, for adapters, or
  /// less.
  std::int64_t encoder_forward_only = 0, decoder_forward_only = 0;
  double source_extra = 0, target_extra = 0;
};

/// The work of a batch. It adds up over rows, micro-batches, ranks and steps.
struct Work {
  double source_positions = 0, target_positions = 0;
  double encoder_pairs = 0;                          // Σ S², both conventions
  double decoder_pairs = 0, decoder_pairs_full = 0;  // causal, full
  double cross_pairs = 0;                            // Σ S·T

  /// One row: `source` positions (0 in a decoder-only model) and `target` positions.
  void add_row(std::int64_t source, std::int64_t target, std::optional<std::int64_t> window = std::nullopt);
  Work& operator+=(const Work& other);
};

struct Flops {
  double causal = 0, full = 0;
};

/// One forward and backward pass over `work`: 6 operations a multiply-add. Decoder-only, a row of T:
/// 6L(2(h+kv)·hd·d + 3·d·ff) + 6dV + 6L·h·hd·c a position, c = T, or 2w - w²/T where w < T; `full`: c = 2T.
[[nodiscard]] Flops flops_of(const FlopShape& shape, const Work& work);

/// The exact number of attention pairs of a causal row of `length`: T(T+1)/2 - (T-w)(T-w+1)/2. For the planner.
[[nodiscard]] double exact_pairs(std::int64_t length, std::optional<std::int64_t> window = std::nullopt);

/// Dense bf16 peak of one device in FLOP/s, by the name that its driver reports ("NVIDIA H200"). nullopt: unknown.
[[nodiscard]] std::optional<double> bf16_peak_flops(std::string_view device_name);

}  // namespace argosy::telemetry
