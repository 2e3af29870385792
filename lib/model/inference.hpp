#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "kernels/gemm.hpp"
#include "model/model.hpp"

/// Forward passes without gradients and with a cache of keys and values, for decoding.
namespace argosy::model {

/// Keys and values of rows of hypotheses, in all decoder layers. Each row has positions of its own number. They stay
/// where they were written: rows share them, and what no row needs any longer is used again.
class Cache {
 public:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  ~Cache();
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  /// Keeps these rows, in this order. A row may be kept more than once (beam search) or not at all (it has ended).
  void select(std::span<const std::int64_t> rows);
  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Uses the weights that are bound to the units of `model` when it is made, and packs a copy of their matrices. With
/// PackedType::int8, these have 8 bits, and so have the inputs of their products.
class Inference {
 public:
  explicit Inference(Model& model, kernels::PackedType type = kernels::PackedType::same);
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  [[nodiscard]] const spec::Architecture& architecture() const noexcept;
  [[nodiscard]] c10::Device device() const;  // of the weights
  /// A cache without rows.
  [[nodiscard]] Cache start() const;
  /// Adds a row after the others for each row of ids [rows, T] int64, of which the first lengths [rows] int64 count.
  /// Encoder-decoder: reads sources, and no row has a position yet. Decoder-only: ids are the first positions of the
  /// rows. With prefix_lm they are whole prompts: their positions see each other, and the last one is left to the first
  /// step, which must feed it again.
  void add(Cache& cache, const at::Tensor& ids, const at::Tensor& lengths);
  /// Feeds the next id of each row, [rows] int64, and returns logits fp32 [rows, rows of the vocabulary]; dead ids get
  /// -1e4. Throws Error{data} when a row has no position left.
  [[nodiscard]] at::Tensor step(Cache& cache, const at::Tensor& ids);
  /// Reads whole targets at once, without a cache. inputs: source, source_lengths and target_in. Returns what the head
  /// takes [rows, T, d]. Throws Error{data} for more positions than the model has.
  [[nodiscard]] at::Tensor read_targets(const Inputs& inputs);
  /// The cross-attention of a decoder layer (from 0) over such targets: see Block::cross_weights. Encoder-decoder only.
  [[nodiscard]] at::Tensor cross_attention(const Inputs& inputs, std::int64_t layer);
  /// The logits of such outputs [n, d], as those of `step`.
  [[nodiscard]] at::Tensor logits(const at::Tensor& outputs);

 private:
  Model& model_;
  kernels::PackedMatrix head_;
};

}  // namespace argosy::model
