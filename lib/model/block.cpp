#include "model/block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/position_bias.hpp"
#include "model/segment.hpp"
#include "spec/positions.hpp"

namespace argosy::model {

using kernels::AttentionMask;
using kernels::OptionalTensor;
using spec::Activation;
using spec::ModelType;
using spec::NormPosition;
using spec::Position;
using spec::Recompute;

namespace {

constexpr std::int64_t adapter_sites = 1 << 30;  // above those of branches and embeddings

at::Tensor flat(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// [rows, T, H, D] → [rows·T, H·D]
at::Tensor joined(const at::Tensor& heads) {
  return heads.view({heads.size(0) * heads.size(1), heads.size(2) * heads.size(3)});
}

}  // namespace

at::Tensor Branch::enter(const at::Tensor& x, Saved& saved) const { return pre ? norm.forward(x, &saved.norm) : x; }

at::Tensor Branch::leave(const at::Tensor& x, const at::Tensor& branch, const Linear& last, Saved& saved) const {
  const at::Tensor sum = kernels::dropout_add(x, branch, saved.dropout, saved.key,
                                              last.bias != nullptr ? optional(last.bias->weight) : std::nullopt);
  return pre ? sum : norm.forward(sum, &saved.norm);
}

Branch::Gradients Branch::leave_backward(const at::Tensor& dy, const Saved& saved) const {
  const at::Tensor residual = pre ? dy : norm.backward(dy, saved.norm);
  if (saved.dropout == 0) return {residual, residual};
  return {kernels::dropout_add(std::nullopt, residual, saved.dropout, saved.key), residual};
}

at::Tensor Branch::enter_backward(const Linear& first, const at::Tensor& du, const at::Tensor& residual,
                                  const Saved& saved) const {
  if (pre) return norm.backward(first.backward_input(du, saved.adapters), saved.norm, residual);
  // Where there is no dropout the residual is the branch's own gradient too, but by now that has been read.
  return first.backward_input(du, saved.adapters, residual);
}

struct Block::AttentionSaved {
  Branch::Saved branch;
  at::Tensor input, memory;       // of the first linear layers
  at::Tensor packed, key_values;  // q, k, v (self); q and k, v (cross)
  at::Tensor out, lse;
  AttentionMask mask;
  OptionalTensor positions;
  std::int64_t rows = 0;
};

std::int64_t Block::positions_of(const AttentionSaved& saved) {
  return saved.rows > 0 ? saved.packed.size(0) / saved.rows : 0;
}

struct Block::Tape {
  AttentionSaved self, cross;
  Branch::Saved ffn;
  at::Tensor ffn_input, activation_saved, activated;
};

const at::Tensor& RotaryTable::on(c10::Device device) {
  if (!waves_.defined()) {
    const double theta = shape_.rope_theta;
    waves_ =
        kernels::rotary_waves(shape_.max_positions, shape_.head_size, theta,
                              shape_.rope_scaling ? spec::rotary_factors(*shape_.rope_scaling, theta, shape_.head_size)
                                                  : std::vector<double>());
  }
  if (waves_.device() != device) waves_ = waves_.to(device);
  return waves_;
}

Block::Block(const spec::Architecture& shape, const VisitParameters& parameters, const std::string& prefix,
             bool encoder, std::int64_t site, const Shared& shared)
    : shape_(shape),
      encoder_(encoder),
      position_(shape.position(encoder)),
      shared_(shared),
      site_(site),
      scale_(shape.attention_scale(encoder)),
      self_branch_{NormLayer(parameters, prefix + "/self_attention/layer_norm", shape),
                   shape.norm_position == NormPosition::pre},
      self_in_(parameters, prefix + "/self_attention/linear_0", 0),
      self_out_(parameters, prefix + "/self_attention/linear_1", 1),
      ffn_branch_{NormLayer(parameters, prefix + "/ffn/layer_norm", shape), shape.norm_position == NormPosition::pre},
      ffn_in_(parameters, prefix + "/ffn/linear_0", 2),
      ffn_out_(parameters, prefix + "/ffn/linear_1", 3) {
  if (!encoder && shape.type == ModelType::encoder_decoder) {
    cross_ = CrossAttention{{NormLayer(parameters, prefix + "/attention/layer_norm", shape), self_branch_.pre},
                            Linear(parameters, prefix + "/attention/linear_0", 4),
                            Linear(parameters, prefix + "/attention/linear_1", 5),
                            Linear(parameters, prefix + "/attention/linear_2", 6)};
  }
}

at::Tensor Block::heads_of(const at::Tensor& packed, std::int64_t rows, std::int64_t first, std::int64_t count) const {
  return packed.view({rows, rows > 0 ? packed.size(0) / rows : 0, packed.size(1) / shape_.head_size, shape_.head_size})
      .narrow(2, first, count);
}

void Block::rotate(const at::Tensor& packed, std::int64_t rows, const OptionalTensor& positions, std::int64_t offset,
                   bool inverse) const {
  if (position_ != Position::rope) return;
  kernels::rope_(heads_of(packed, rows, 0, shape_.heads + shape_.kv_heads), positions, offset,
                 shared_.rotary.on(packed.device()), inverse);
}

OptionalTensor Block::position_bias(std::int64_t queries, std::int64_t keys) const {
  if (position_ == Position::t5)
    return kernels::relative_bias(shared_.relative_bias->weight, queries, keys, /*bidirectional=*/encoder_);
  if (position_ == Position::alibi)
    return kernels::alibi_bias(shape_.heads, queries, keys, self_in_.weight->weight.device());
  return std::nullopt;
}

at::Tensor Block::self_attention(const at::Tensor& x, AttentionSaved& saved, const Inputs& inputs) const {
  saved.input = self_branch_.enter(x, saved.branch);
  saved.packed = self_in_.forward(saved.input, saved.branch.adapters);
  if (!encoder_) saved.positions = optional(inputs.positions);
  rotate(saved.packed, saved.rows, saved.positions, 0, false);
  saved.mask = encoder_ ? AttentionMask{.key_lengths = inputs.source_lengths, .segments = {}}
                        : AttentionMask{.key_lengths = {},
                                        .segments = optional(inputs.segments),
                                        .causal = true,
                                        .window = shape_.window.value_or(0),
                                        .documents = inputs.documents};
  if (!encoder_ && shape_.prefix_lm) saved.mask.prompts = optional(inputs.prompts);
  const std::int64_t heads = shape_.heads, kv = shape_.kv_heads, length = positions_of(saved);
  saved.mask.bias = position_bias(length, length);
  std::tie(saved.out, saved.lse) =
      kernels::attention(heads_of(saved.packed, saved.rows, 0, heads), heads_of(saved.packed, saved.rows, heads, kv),
                         heads_of(saved.packed, saved.rows, heads + kv, kv), saved.mask, scale_);
  saved.mask.bias.reset();
  return self_branch_.leave(x, self_out_.forward(joined(saved.out), saved.branch.adapters, false), self_out_,
                            saved.branch);
}

at::Tensor Block::self_attention_backward(const at::Tensor& dy, AttentionSaved& saved) const {
  const auto [dbranch, residual] = self_branch_.leave_backward(dy, saved.branch);
  const std::int64_t heads = shape_.heads, kv = shape_.kv_heads, rows = saved.rows;
  self_out_.backward_parameters(dbranch, joined(saved.out), saved.branch.adapters);
  const at::Tensor dout = self_out_.backward_input(dbranch, saved.branch.adapters).view(saved.out.sizes());
  const at::Tensor dpacked = at::empty_like(saved.packed);
  const std::int64_t length = positions_of(saved);
  saved.mask.bias = position_bias(length, length);
  const GradientSlot slot = shared_.relative_bias != nullptr ? claim_gradient(*shared_.relative_bias) : GradientSlot{};
  const OptionalTensor dbias =
      slot.gradient.defined() ? OptionalTensor(at::empty_like(*saved.mask.bias)) : std::nullopt;
  kernels::attention_backward(dout, heads_of(saved.packed, rows, 0, heads), heads_of(saved.packed, rows, heads, kv),
                              heads_of(saved.packed, rows, heads + kv, kv), saved.out, saved.lse, saved.mask, scale_,
                              heads_of(dpacked, rows, 0, heads), heads_of(dpacked, rows, heads, kv),
                              heads_of(dpacked, rows, heads + kv, kv), dbias);
  if (dbias) kernels::relative_bias_backward(*dbias, length, encoder_, slot.gradient, slot.accumulate);
  rotate(dpacked, rows, saved.positions, 0, true);
  self_in_.backward_parameters(dpacked, saved.input, saved.branch.adapters);
  return self_branch_.enter_backward(self_in_, dpacked, residual, saved.branch);
}

at::Tensor Block::cross_attention(const at::Tensor& x, const at::Tensor& memory, AttentionSaved& saved,
                                  const Inputs& inputs) const {
  saved.input = cross_->branch.enter(x, saved.branch);
  saved.memory = flat(memory);
  saved.packed = cross_->query.forward(saved.input, saved.branch.adapters);
  saved.key_values = cross_->key_value.forward(saved.memory, saved.branch.adapters);
  saved.mask = {.key_lengths = inputs.source_lengths, .segments = {}};
  const std::int64_t kv = shape_.kv_heads;
  std::tie(saved.out, saved.lse) = kernels::attention(
      heads_of(saved.packed, saved.rows, 0, shape_.heads), heads_of(saved.key_values, saved.rows, 0, kv),
      heads_of(saved.key_values, saved.rows, kv, kv), saved.mask, scale_);
  return cross_->branch.leave(x, cross_->out.forward(joined(saved.out), saved.branch.adapters, false), cross_->out,
                              saved.branch);
}

at::Tensor Block::cross_attention_backward(const at::Tensor& dy, AttentionSaved& saved, at::Tensor& dmemory) const {
  const auto [dbranch, residual] = cross_->branch.leave_backward(dy, saved.branch);
  const std::int64_t kv = shape_.kv_heads, rows = saved.rows;
  cross_->out.backward_parameters(dbranch, joined(saved.out), saved.branch.adapters);
  const at::Tensor dout = cross_->out.backward_input(dbranch, saved.branch.adapters).view(saved.out.sizes());
  const at::Tensor dquery = at::empty_like(saved.packed), dkey_values = at::empty_like(saved.key_values);
  kernels::attention_backward(dout, heads_of(saved.packed, rows, 0, shape_.heads),
                              heads_of(saved.key_values, rows, 0, kv), heads_of(saved.key_values, rows, kv, kv),
                              saved.out, saved.lse, saved.mask, scale_, heads_of(dquery, rows, 0, shape_.heads),
                              heads_of(dkey_values, rows, 0, kv), heads_of(dkey_values, rows, kv, kv));
  cross_->key_value.backward_parameters(dkey_values, saved.memory, saved.branch.adapters);
  dmemory = cross_->key_value.backward_input(dkey_values, saved.branch.adapters);
  cross_->query.backward_parameters(dquery, saved.input, saved.branch.adapters);
  return cross_->branch.enter_backward(cross_->query, dquery, residual, saved.branch);
}

std::pair<at::Tensor, at::Tensor> Block::activate(at::Tensor u) const {
  const auto kind = shape_.activation;
  at::Tensor y = shape_.activation == Activation::relu ? u : at::empty({u.size(0), shape_.ff}, u.options());
  kernels::activation(u, ffn_in_.bias != nullptr ? optional(ffn_in_.bias->weight) : std::nullopt, y, kind);
  return {std::move(u), std::move(y)};
}

at::Tensor Block::feed_forward(const at::Tensor& x, Tape& tape) const {
  tape.ffn_input = ffn_branch_.enter(x, tape.ffn);
  std::tie(tape.activation_saved, tape.activated) = activate(ffn_in_.forward(tape.ffn_input, tape.ffn.adapters, false));
  return ffn_branch_.leave(x, ffn_out_.forward(tape.activated, tape.ffn.adapters, false), ffn_out_, tape.ffn);
}

void Block::forget(Tape& tape, Recompute recompute) const {
  if (recompute == Recompute::full) tape.activation_saved.reset();
  // relu keeps one tensor, which is both what it gave and what its gradient asks for
  if (recompute == Recompute::full || (recompute == Recompute::activation && shape_.activation != Activation::relu)) {
    tape.activated.reset();
  }
}

at::Tensor Block::feed_forward_backward(const at::Tensor& dy, Tape& tape) const {
  const auto [dbranch, residual] = ffn_branch_.leave_backward(dy, tape.ffn);
  if (!tape.activation_saved.defined()) {
    std::tie(tape.activation_saved, tape.activated) =
        activate(ffn_in_.forward(tape.ffn_input, tape.ffn.adapters, false));
  }
  at::Tensor dactivated = ffn_out_.backward_input(dbranch, tape.ffn.adapters);
  OptionalTensor again;
  if (!tape.activated.defined()) again = tape.activated = at::empty_like(dactivated);
  const GradientSlot dbias = ffn_in_.bias != nullptr ? claim_gradient(*ffn_in_.bias) : GradientSlot{};
  const at::Tensor du = kernels::activation_backward(dactivated, tape.activation_saved, shape_.activation,
                                                     optional(dbias.gradient), dbias.accumulate, again);
  dactivated.reset();
  ffn_out_.backward_parameters(dbranch, tape.activated, tape.ffn.adapters);
  ffn_in_.backward_parameters(du, tape.ffn_input, tape.ffn.adapters, false);
  return ffn_branch_.enter_backward(ffn_in_, du, residual, tape.ffn);
}

at::Tensor Block::forward(const at::Tensor& x, const at::Tensor& memory, const Inputs& inputs, const Pass& pass) const {
  Tape tape;
  const double dropout = pass.training ? shape_.dropout : 0;
  std::int64_t place = 0;
  for (Branch::Saved* saved : {&tape.self.branch, &tape.cross.branch, &tape.ffn}) {
    saved->dropout = dropout;
    saved->key = {pass.seed, pass.step, pass.micro_batch, 4 * site_ + place++};
    saved->adapters = {pass.training, {pass.seed, pass.step, pass.micro_batch, adapter_sites + 8 * site_}};
  }
  tape.self.rows = tape.cross.rows = x.size(0);
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = self_attention(flat(x), tape.self, inputs);
    if (cross_) y = cross_attention(y, memory, tape.cross, inputs);
    y = feed_forward(y, tape).view(x.sizes());
    forget(tape, pass.recompute);
  }
  if (!recording()) return y;
  const std::vector<std::int64_t> memory_sizes = cross_ ? memory.sizes().vec() : std::vector<std::int64_t>();
  attach({y}, {x, memory}, [this, memory_sizes, tape = std::move(tape)](const Tensors& gradients) mutable -> Tensors {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor& dy = gradients[0];
    at::Tensor dmemory, dx = feed_forward_backward(flat(dy).contiguous(), tape);
    if (cross_) dx = cross_attention_backward(dx, tape.cross, dmemory);
    dx = self_attention_backward(dx, tape.self);
    if (dmemory.defined()) dmemory = dmemory.view(memory_sizes);
    return {dx.view(dy.sizes()), dmemory};
  });
  return y;
}

std::vector<Linear*> Block::matrices() {
  std::vector<Linear*> layers{&self_in_, &self_out_, &ffn_in_, &ffn_out_};
  if (cross_) layers.insert(layers.end(), {&cross_->query, &cross_->key_value, &cross_->out});
  return layers;
}

void Block::pack(kernels::PackedType type) {
  for (Linear* layer : matrices()) layer->pack(type);
}

void Block::unpack() {
  for (Linear* layer : matrices()) layer->unpack();
}

at::Tensor Block::step(const at::Tensor& x, const at::Tensor& positions, const kernels::CachedKeys& self,
                       const std::optional<kernels::CachedKeys>& source, const OptionalTensor& bias) const {
  const std::int64_t rows = x.size(0), heads = shape_.heads, kv = shape_.kv_heads;
  const auto split = [&](const at::Tensor& packed) { return packed.view({rows, -1, shape_.head_size}); };
  const auto attend = [&](const at::Tensor& query, const OptionalTensor& added, const kernels::CachedKeys& keys,
                          std::int64_t window, const OptionalTensor& by_distance) {
    return kernels::attention_step(query, added, keys, window, scale_, by_distance)
        .view({rows, heads * shape_.head_size});
  };
  Tape tape;
  const at::Tensor packed = self_in_.forward(self_branch_.enter(x, tape.self.branch), {});
  rotate(packed, rows, positions, 0, false);
  const at::Tensor parts = split(packed);
  at::Tensor out =
      attend(parts.narrow(1, 0, heads), parts.narrow(1, heads, 2 * kv), self, shape_.window.value_or(0), bias);
  at::Tensor y = self_branch_.leave(x, self_out_.forward(out, {}, false), self_out_, tape.self.branch);
  if (cross_) {
    const at::Tensor query = cross_->query.forward(cross_->branch.enter(y, tape.cross.branch), {});
    out = attend(split(query), std::nullopt, *source, 0, std::nullopt);
    y = cross_->branch.leave(y, cross_->out.forward(out, {}, false), cross_->out, tape.cross.branch);
  }
  return feed_forward(y, tape);
}

std::pair<at::Tensor, at::Tensor> Block::read(const at::Tensor& x, const at::Tensor& prompts) const {
  Tape tape;
  Inputs inputs;
  inputs.prompts = prompts;
  tape.self.rows = x.size(0);
  const at::Tensor y = feed_forward(self_attention(flat(x), tape.self, inputs), tape).view(x.sizes());
  return {y, tape.self.packed.view({tape.self.packed.size(0), -1, shape_.head_size})
                 .narrow(1, shape_.heads, 2 * shape_.kv_heads)};
}

at::Tensor Block::cross_keys_values(const at::Tensor& memory) const {
  const at::Tensor rows = flat(memory);
  return cross_->key_value.forward(rows, {}).view({rows.size(0), 2 * shape_.kv_heads, shape_.head_size});
}

at::Tensor Block::cross_weights(const at::Tensor& x, const at::Tensor& memory, const Inputs& inputs) const {
  Tape tape;
  const std::int64_t rows = tape.self.rows = x.size(0), kv = shape_.kv_heads;
  const at::Tensor y = self_attention(flat(x), tape.self, inputs);
  const at::Tensor query = cross_->query.forward(cross_->branch.enter(y, tape.cross.branch), {}).to(at::kFloat);
  const at::Tensor keys = cross_keys_values(memory).narrow(1, 0, kv).to(at::kFloat);
  // By row and head of the keys: [rows, K, H/K, T, D] and [rows, K, 1, D, S].
  const at::Tensor queries =
      query.view({rows, x.size(1), kv, shape_.heads / kv, shape_.head_size}).permute({0, 2, 3, 1, 4});
  const at::Tensor by_head = keys.view({rows, memory.size(1), kv, shape_.head_size}).permute({0, 2, 3, 1}).unsqueeze(2);
  const at::Tensor unseen =
      at::arange(memory.size(1), inputs.source_lengths.options()).ge(inputs.source_lengths.view({rows, 1, 1, 1, 1}));
  const at::Tensor scores =
      (at::matmul(queries, by_head) * scale_).masked_fill(unseen, -std::numeric_limits<float>::infinity());
  return at::softmax(scores, -1).flatten(1, 2).mean(1);
}

}  // namespace argosy::model
