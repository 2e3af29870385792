#include "model/units.hpp"

#include <fmt/format.h>

namespace argosy::model {

namespace {

using Params = std::vector<partition::ParamSpec>;

void add_norm(Params& params, const ModelShape& shape, const std::string& name) {
  params.push_back({name + "/gamma", {shape.width}, false});
  if (shape.norm == Norm::layer_norm) params.push_back({name + "/beta", {shape.width}, false});
}

void add_linear(Params& params, const ModelShape& shape, const std::string& name, std::int64_t out, std::int64_t in) {
  params.push_back({name + "/weight", {out, in}, true});
  if (shape.bias) params.push_back({name + "/bias", {out}, false});
}

Params block_params(const ModelShape& shape, const std::string& layer, bool cross) {
  const std::int64_t query = shape.heads * shape.head_size, key = shape.kv_heads * shape.head_size;
  Params params;
  add_norm(params, shape, layer + "/self_attention/layer_norm");
  add_linear(params, shape, layer + "/self_attention/linear_0", query + 2 * key, shape.width);
  add_linear(params, shape, layer + "/self_attention/linear_1", shape.width, query);
  if (cross) {
    add_norm(params, shape, layer + "/attention/layer_norm");
    add_linear(params, shape, layer + "/attention/linear_0", query, shape.width);
    add_linear(params, shape, layer + "/attention/linear_1", 2 * key, shape.width);
    add_linear(params, shape, layer + "/attention/linear_2", shape.width, query);
  }
  add_norm(params, shape, layer + "/ffn/layer_norm");
  add_linear(params, shape, layer + "/ffn/linear_0", shape.activation == Activation::swiglu ? 2 * shape.ff : shape.ff,
             shape.width);
  add_linear(params, shape, layer + "/ffn/linear_1", shape.width, shape.ff);
  return params;
}

}  // namespace

std::vector<UnitSpec> unit_specs(const ModelShape& shape) {
  const bool translation = shape.type == ModelType::encoder_decoder, pre = shape.norm_position == NormPosition::pre;
  const std::vector<std::int64_t> matrix{shape.vocab_padded, shape.width};
  Params head;
  if (shape.bias) head.push_back({"decoder/projection/bias", {shape.vocab_padded}, false});
  if (pre) add_norm(head, shape, "decoder/layer_norm");

  std::vector<UnitSpec> units;
  UnitSpec target{translation && !shape.tie_embeddings ? "target_embedding" : "embedding", {}};
  target.params.push_back({"decoder/embeddings/weight", matrix, true});
  if (translation && pre) add_norm(target.params, shape, "encoder/layer_norm");
  if (shape.tie_embeddings) target.params.insert(target.params.end(), head.begin(), head.end());
  if (shape.tie_embeddings) units.push_back(target);
  if (translation && !shape.tie_embeddings)
    units.push_back({"source_embedding", {{"encoder/embeddings_0/weight", matrix, true}}});
  for (std::int64_t i = 0; i < shape.encoder_layers; ++i) {
    units.push_back({fmt::format("encoder.{}", i), block_params(shape, fmt::format("encoder/layer_{}", i), false)});
  }
  if (!shape.tie_embeddings) units.push_back(target);
  for (std::int64_t i = 0; i < shape.decoder_layers; ++i) {
    units.push_back(
        {fmt::format("decoder.{}", i), block_params(shape, fmt::format("decoder/layer_{}", i), translation)});
  }
  if (!shape.tie_embeddings) {
    head.insert(head.begin(), {"decoder/projection/weight", matrix, true});
    units.push_back({"head", std::move(head)});
  }
  return units;
}

}  // namespace argosy::model
