#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "kernels/gemm.hpp"
#include "model/model.hpp"

/// Forward passes without gradients and with a cache of keys and values, for decoding. They use the weights that are
/// bound to the units of `model` when the Inference is made: it packs a copy of them. A cache holds only activations.
namespace argosy::model {

/// Keys and values of all decoder layers, for `rows` hypotheses. Grows by one position per step.
class Cache {
 public:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  ~Cache();
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  /// Keeps rows `index` [new rows] int64, in that order (beam search, finished sentences dropped).
  void select(const at::Tensor& index);
  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t length() const noexcept;
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

class Inference {
 public:
  explicit Inference(Model& model);
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;
  /// Encoder-decoder: runs the encoder and computes the keys and values of cross-attention. Each source row is used by
  /// `copies` hypotheses. source: int64 [rows, S]; lengths: int64 [rows].
  [[nodiscard]] Cache start(const at::Tensor& source, const at::Tensor& lengths, std::int64_t copies = 1);
  /// Decoder-only: an empty cache.
  [[nodiscard]] Cache start(std::int64_t rows);
  /// Feeds ids [rows] int64 and returns logits fp32 [rows, rows of the vocabulary]; dead ids get -1e4.
  [[nodiscard]] at::Tensor step(Cache& cache, const at::Tensor& ids);
  /// Feeds ids [rows, n] at once (for a forced prefix, or scoring) and returns logits fp32 [rows, n, rows of the
  /// vocabulary].
  [[nodiscard]] at::Tensor extend(Cache& cache, const at::Tensor& ids);

 private:
  Model& model_;
  kernels::PackedMatrix head_;
};

}  // namespace argosy::model
