#include "unit/model/reference.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <numbers>

#include "spec/positions.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {

namespace {

struct Reference {
  const spec::Architecture& shape;
  const Weights& weights;
  const model::Inputs& inputs;

  [[nodiscard]] bool pre() const { return shape.norm_position == spec::NormPosition::pre; }

  [[nodiscard]] at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const bool of_qkv = name.ends_with("/linear_0") || name.ends_with("/attention/linear_1");
    const bool has_bias = shape.bias || (shape.qkv_bias && of_qkv && name.find("/ffn/") == std::string::npos &&
                                         !name.ends_with("/self_attention/linear_1"));
    return has_bias ? at::linear(x, weights.at(name + "/weight"), weights.at(name + "/bias"))
                    : at::linear(x, weights.at(name + "/weight"));
  }

  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor gamma = weights.at(name + "/gamma");
    if (shape.norm == spec::Norm::layer_norm)
      return at::layer_norm(x, {shape.width}, gamma, weights.at(name + "/beta"), shape.norm_epsilon);
    return x * at::rsqrt(x.square().mean(-1, true) + shape.norm_epsilon) * gamma;
  }

  template <class Function>
  [[nodiscard]] at::Tensor branch(const at::Tensor& x, const std::string& name, Function&& f) const {
    return pre() ? x + f(norm(x, name)) : norm(x + f(x), name);
  }

  [[nodiscard]] at::Tensor rotate(const at::Tensor& x) const {  // [rows, heads, T, D]
    const std::int64_t half = shape.head_size / 2;
    at::Tensor frequency = at::pow(shape.rope_theta, at::arange(half, at::kDouble) / static_cast<double>(-half));
    if (shape.rope_scaling) {
      const auto& [type, factor, low, high, most] = *shape.rope_scaling;
      const at::Tensor turns = frequency * (static_cast<double>(most) / (2 * std::numbers::pi));
      const at::Tensor blended = (turns - low) / (high - low);
      frequency = at::where(turns.lt(low), frequency / factor,
                            at::where(turns.gt(high), frequency, frequency * ((1 - blended) / factor + blended)));
    }
    const at::Tensor position = inputs.positions.defined() ? inputs.positions.to(at::kDouble).unsqueeze(1).unsqueeze(-1)
                                                           : at::arange(x.size(2), at::kDouble).view({1, 1, -1, 1});
    const at::Tensor angle = position * frequency;
    const at::Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 3);
  }

  /// Of a side's self-attention: [heads, T, T], dense.
  [[nodiscard]] at::Tensor bias(bool encoder, std::int64_t length) const {
    const at::Tensor distance = at::arange(length) - at::arange(length).unsqueeze(1);
    if (shape.position(encoder) == spec::Position::alibi)
      return at::tensor(spec::alibi_slopes(shape.heads), at::kDouble).view({-1, 1, 1}) * -distance.abs();
    at::Tensor buckets = at::empty({length, length}, at::kLong);
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j) buckets[i][j] = spec::relative_bucket(j - i, encoder);
    const std::string name =
        std::string(encoder ? "encoder" : "decoder") + "/layer_0/self_attention/relative_attention_bias";
    return weights.at(name).index_select(0, buckets.view(-1)).view({length, length, shape.heads}).permute({2, 0, 1});
  }

  /// position: none in cross-attention.
  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& seen,
                                  bool encoder, spec::Position position) const {
    const auto heads = [&](const at::Tensor& x) {
      return x.reshape({x.size(0), x.size(1), -1, shape.head_size}).transpose(1, 2);
    };
    at::Tensor query = heads(q), key = heads(k), value = heads(v);
    if (position == spec::Position::rope) {
      query = rotate(query);
      key = rotate(key);
    }
    const std::int64_t group = shape.heads / shape.kv_heads;
    key = key.repeat_interleave(group, 1);
    value = value.repeat_interleave(group, 1);
    at::Tensor scores = at::matmul(query, key.transpose(2, 3));
    if (shape.position(encoder) != spec::Position::t5)
      scores = scores / std::sqrt(static_cast<double>(shape.head_size));
    if (position == spec::Position::alibi || position == spec::Position::t5)
      scores = scores + bias(encoder, scores.size(2));
    const at::Tensor probabilities = at::softmax(scores.masked_fill(seen.logical_not(), -1e30), -1);
    return at::matmul(probabilities, value).transpose(1, 2).reshape({q.size(0), q.size(1), -1});
  }

  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& x, const std::string& name) const {
    return linear(activated(linear(x, name + "/linear_0")), name + "/linear_1");
  }

  [[nodiscard]] at::Tensor activated(const at::Tensor& u) const {
    switch (shape.activation) {
      case spec::Activation::relu:
        return at::relu(u);
      case spec::Activation::swish:
        return at::silu(u);
      case spec::Activation::gelu:
        return at::gelu(u);
      case spec::Activation::swiglu:
        return at::silu(u.narrow(-1, 0, shape.ff)) * u.narrow(-1, shape.ff, shape.ff);
      case spec::Activation::geglu:
        break;
    }
    return at::gelu(u.narrow(-1, 0, shape.ff), "tanh") * u.narrow(-1, shape.ff, shape.ff);
  }

  [[nodiscard]] at::Tensor block(at::Tensor x, const std::string& name, const at::Tensor& seen,
                                 const at::Tensor& memory, const at::Tensor& memory_seen) const {
    const bool encoder = name.starts_with("encoder");
    const std::int64_t query = shape.heads * shape.head_size, key = shape.kv_heads * shape.head_size;
    x = branch(x, name + "/self_attention/layer_norm", [&](const at::Tensor& h) {
      const at::Tensor packed = linear(h, name + "/self_attention/linear_0");
      const at::Tensor out = attend(packed.narrow(-1, 0, query), packed.narrow(-1, query, key),
                                    packed.narrow(-1, query + key, key), seen, encoder, shape.position(encoder));
      return linear(out, name + "/self_attention/linear_1");
    });
    if (memory.defined()) {
      x = branch(x, name + "/attention/layer_norm", [&](const at::Tensor& h) {
        const at::Tensor kv = linear(memory, name + "/attention/linear_1");
        const at::Tensor out = attend(linear(h, name + "/attention/linear_0"), kv.narrow(-1, 0, key),
                                      kv.narrow(-1, key, key), memory_seen, encoder, spec::Position::none);
        return linear(out, name + "/attention/linear_2");
      });
    }
    return branch(x, name + "/ffn/layer_norm", [&](const at::Tensor& h) { return feed_forward(h, name + "/ffn"); });
  }

  [[nodiscard]] at::Tensor embed(const at::Tensor& ids, const std::string& table, bool encoder) const {
    const double scale = shape.scales_embeddings ? std::sqrt(static_cast<double>(shape.width)) : 1.0;
    const at::Tensor x =
        weights.at(table).index_select(0, ids.reshape({-1})).view({ids.size(0), ids.size(1), shape.width}) * scale;
    const at::Tensor& given = encoder ? inputs.source_positions : inputs.positions;
    const at::Tensor positions = given.defined() ? given : at::arange(ids.size(1)).unsqueeze(0);
    const std::int64_t half = shape.width / 2;
    const auto sinusoids = [&](std::int64_t first, std::int64_t span) {
      const at::Tensor rates = at::pow(10000.0, at::arange(half, at::kDouble) / static_cast<double>(-span));
      const at::Tensor angle = (positions + first).to(at::kDouble).unsqueeze(-1) * rates;
      return at::cat({angle.sin(), angle.cos()}, -1);
    };
    switch (shape.position(encoder)) {
      case spec::Position::sinusoidal:
        return x + sinusoids(0, half);
      case spec::Position::sinusoidal_fairseq:
        return x + sinusoids(2, half - 1);
      case spec::Position::learned: {
        const std::string side = encoder ? "encoder" : "decoder";
        const at::Tensor own =
            weights.at(side + "/position_encodings/encodings").index_select(0, positions.reshape({-1}));
        return x + own.view({positions.size(0), positions.size(1), shape.width});
      }
      default:
        return x;
    }
  }

  [[nodiscard]] at::Tensor loss(const model::Pass& pass) const {
    const std::string target = "decoder/embeddings/weight";
    at::Tensor memory, source_seen;
    if (shape.type == spec::ModelType::encoder_decoder) {
      at::Tensor x = embed(inputs.source, shape.tie_inputs ? target : "encoder/embeddings_0/weight", true);
      source_seen = at::arange(inputs.source.size(1)).view({1, 1, 1, -1}).lt(inputs.source_lengths.view({-1, 1, 1, 1}));
      for (std::int64_t i = 0; i < shape.encoder_layers; ++i)
        x = block(x, "encoder/layer_" + std::to_string(i), source_seen, {}, {});
      memory = pre() ? norm(x, "encoder/layer_norm") : x;
    }
    const std::int64_t width = inputs.target_in.size(1);
    const at::Tensor distance = at::arange(width).unsqueeze(1) - at::arange(width);
    at::Tensor seen = distance.ge(0).view({1, 1, width, width});
    if (shape.prefix_lm && inputs.prompts.defined())
      seen = seen.logical_or(at::arange(width).lt(inputs.prompts.view({-1, 1, width, 1})));
    if (shape.window) seen = seen.logical_and(distance.abs().lt(*shape.window));
    if (inputs.segments.defined())
      seen = seen.logical_and(inputs.segments.view({-1, 1, width, 1}).eq(inputs.segments.view({-1, 1, 1, width})));
    at::Tensor x = embed(inputs.target_in, target, false);
    for (std::int64_t i = 0; i < shape.decoder_layers; ++i)
      x = block(x, "decoder/layer_" + std::to_string(i), seen, memory, source_seen);
    if (pre()) x = norm(x, "decoder/layer_norm");
    if (shape.vocabulary.layout == spec::TokenLayout::t5 && shape.tie_embeddings)
      x = x / std::sqrt(static_cast<double>(shape.width));
    at::Tensor logits = at::linear(x, weights.at(shape.tie_embeddings ? target : "decoder/projection/weight"));
    if (shape.output_bias) logits = logits + weights.at("decoder/projection/bias");
    logits = logits.narrow(-1, 0, shape.vocabulary.pieces);
    const at::Tensor log_p = at::log_softmax(logits, -1), lse = (logits - log_p).select(-1, 0);
    const at::Tensor nll = -log_p.gather(2, inputs.target_labels.clamp_min(0).unsqueeze(2)).squeeze(2);
    const double e = pass.loss.label_smoothing;
    const at::Tensor each = nll * (1 - e) - log_p.mean(-1) * e + lse.square() * pass.loss.z;
    return (each * inputs.target_labels.ge(0)).sum() * pass.loss_scale;
  }
};

}  // namespace

Weights leaves_of(model::Model& model) {
  Weights weights;
  for (const model::Parameter* parameter : parameters_of(model))
    weights[parameter->name] = parameter->weight.to(at::kDouble).detach().clone().set_requires_grad(true);
  return weights;
}

at::Tensor reference_loss(const spec::Architecture& shape, const Weights& weights, const model::Inputs& inputs,
                          const model::Pass& pass) {
  return Reference{shape, weights, inputs}.loss(pass);
}

}  // namespace argosy::test
