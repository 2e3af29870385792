#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention.hpp"
#include "kernels/decoding.hpp"
#include "kernels/elementwise.hpp"
#include "model/layers.hpp"
#include "model/model.hpp"

/// One encoder or decoder block: self-attention, cross-attention (in the decoder of a translation model) and
/// feed-forward. Each is a residual branch with its norm before (pre) or after (post) it. The backward pass is written
/// by hand, branch by branch.
namespace argosy::model {

/// A residual branch around a computation f. Pre-norm: x + dropout(f(norm(x))). Post-norm: norm(x + dropout(f(x))).
struct Branch {
  NormLayer norm;
  bool pre;

  struct Saved {
    NormLayer::Saved norm;
    kernels::DropoutKey key;
    double dropout = 0;
    AdapterDropout adapters{};
  };
  [[nodiscard]] at::Tensor enter(const at::Tensor& x, Saved& saved) const;
  /// branch: the output of the linear layer `last`, without its bias.
  [[nodiscard]] at::Tensor leave(const at::Tensor& x, const at::Tensor& branch, const Linear& last, Saved& saved) const;
  /// The gradients of the inputs of `leave`: of the branch, and of the residual path.
  struct Gradients {
    at::Tensor branch, residual;
  };
  [[nodiscard]] Gradients leave_backward(const at::Tensor& dy, const Saved& saved) const;
  /// Pre-norm takes the gradient of f's input back through the norm; post-norm adds it to the residual gradient.
  [[nodiscard]] at::Tensor enter_backward(const Linear& first, const at::Tensor& du, const at::Tensor& residual,
                                          const Saved& saved) const;
};

/// kernels::rotary_waves() for all positions of a model, made when they are first asked for.
class RotaryTable {
 public:
  explicit RotaryTable(const spec::Architecture& shape) : shape_(shape) {}
  [[nodiscard]] const at::Tensor& on(c10::Device device);

 private:
  const spec::Architecture& shape_;
  at::Tensor waves_;
};

/// What a block reads besides its own parameters. Both outlive it.
struct Shared {
  RotaryTable& rotary;
  Parameter* relative_bias = nullptr;  // of its side, with T5's positions
};

class Block {
 public:
  /// prefix: such as "encoder/layer_0"; site: the number of the visit, which selects its dropout masks.
  Block(const spec::Architecture& shape, const VisitParameters& parameters, const std::string& prefix, bool encoder,
        std::int64_t site, const Shared& shared);

  /// x: [rows, T, d]; memory: [rows, S, d] with cross-attention. Records one autograd node.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const Inputs& inputs,
                                   const Pass& pass) const;

  /// The matrices of the forward pass: see Linear::pack and Linear::unpack.
  void pack(kernels::PackedType type);
  void unpack();

  /// Inference, one position for each row. x: [rows, d]; positions: int64 [rows, 1], for rotary ones; self: where the
  /// keys and values of this block are, with a place for the new position; source: those of the sources, with
  /// cross-attention; bias: position_bias(1, most positions of a row).
  [[nodiscard]] at::Tensor step(const at::Tensor& x, const at::Tensor& positions, const kernels::CachedKeys& self,
                                const std::optional<kernels::CachedKeys>& source,
                                const kernels::OptionalTensor& bias) const;
  /// What is added to the scores of self-attention; the same for all blocks of a side. See kernels::AttentionMask.
  [[nodiscard]] kernels::OptionalTensor position_bias(std::int64_t queries, std::int64_t keys) const;
  /// Inference over prompts, without cross-attention. x: [rows, T, d]; prompts: as Inputs. Returns the output, and the
  /// keys and values of all positions [rows·T, 2K, D], for `step`.
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> read(const at::Tensor& x, const at::Tensor& prompts) const;
  /// Keys and values of the encoder output `memory` [sources, S, d]: [sources·S, 2K, D], for `step`.
  [[nodiscard]] at::Tensor cross_keys_values(const at::Tensor& memory) const;
  /// The probabilities of the cross-attention for x and memory as `forward` has them, of which inputs.source_lengths
  /// count: means over the heads, fp32 [rows, T, S]. A pass of plain operations, for a few rows.
  [[nodiscard]] at::Tensor cross_weights(const at::Tensor& x, const at::Tensor& memory, const Inputs& inputs) const;

 private:
  struct AttentionSaved;
  struct Tape;
  struct CrossAttention {
    Branch branch;
    Linear query, key_value, out;
  };

  [[nodiscard]] static std::int64_t positions_of(const AttentionSaved& saved);  // of a row
  [[nodiscard]] at::Tensor self_attention(const at::Tensor& x, AttentionSaved& saved, const Inputs& inputs) const;
  [[nodiscard]] at::Tensor self_attention_backward(const at::Tensor& dy, AttentionSaved& saved) const;
  [[nodiscard]] at::Tensor cross_attention(const at::Tensor& x, const at::Tensor& memory, AttentionSaved& saved,
                                           const Inputs& inputs) const;
  [[nodiscard]] at::Tensor cross_attention_backward(const at::Tensor& dy, AttentionSaved& saved,
                                                    at::Tensor& dmemory) const;
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& x, Tape& tape) const;
  /// Frees what the backward pass can compute again.
  void forget(Tape& tape, spec::Recompute recompute) const;
  [[nodiscard]] at::Tensor feed_forward_backward(const at::Tensor& dy, Tape& tape) const;
  /// Query, key and value views [rows, T, heads, D] of packed rows.
  [[nodiscard]] at::Tensor heads_of(const at::Tensor& packed, std::int64_t rows, std::int64_t first,
                                    std::int64_t count) const;
  void rotate(const at::Tensor& packed, std::int64_t rows, const kernels::OptionalTensor& positions,
              std::int64_t offset, bool inverse) const;
  [[nodiscard]] std::vector<Linear*> matrices();
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> activate(at::Tensor u) const;

  spec::Architecture shape_;
  bool encoder_;
  spec::Position position_;
  Shared shared_;
  std::int64_t site_;
  double scale_;
  Branch self_branch_;
  Linear self_in_, self_out_;
  std::optional<CrossAttention> cross_;
  Branch ffn_branch_;
  Linear ffn_in_, ffn_out_;
};

}  // namespace argosy::model
