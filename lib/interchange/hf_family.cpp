#include "interchange/hf_family.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace argosy::interchange {
namespace {

using spec::Role;

/// The words between the side and the leaf of our names, as theirs. Attention ends with the projection that follows.
std::string place_of(const spec::Parameter& parameter, Family family) {
  const std::string& name = parameter.name;
  const std::string side = name.substr(0, name.find('/'));
  const std::string root = translates(family) ? "model." + side + "." : "model.";
  const std::string layer_mark = "/layer_";
  const std::size_t layer = name.find(layer_mark);
  ARGOSY_CHECK(layer != std::string::npos && layer == side.size(), "{} is in no layer", name);
  const std::size_t digits = layer + layer_mark.size(), end = name.find('/', digits);
  return root + "layers." + name.substr(digits, end - digits) + ".";
}

/// The module in a layer: "self_attention", "attention" (cross), "ffn".
std::string module_of(const std::string& name) {
  const std::size_t leaf = name.rfind('/'), last = name.rfind('/', leaf - 1), before = name.rfind('/', last - 1);
  return name.substr(before + 1, last - before - 1);
}

/// "linear_0", "layer_norm" …
std::string layer_of(const std::string& name) {
  const std::size_t leaf = name.rfind('/'), last = name.rfind('/', leaf - 1);
  return name.substr(last + 1, leaf - last - 1);
}

class Names {
 public:
  Names(const spec::ModelSpec& spec, Family family)
      : shape_(spec.architecture),
        family_(family),
        rows_(translates(family) ? shape_.vocabulary.rows : shape_.vocabulary.pieces) {
    for (const spec::Unit& unit : spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) add(parameter);
    }
  }
  [[nodiscard]] std::vector<Mapped> take() { return std::move(list_); }

 private:
  void add(const spec::Parameter& parameter) {
    const std::string& name = parameter.name;
    const bool pairs = translates(family_);
    switch (parameter.role) {
      case Role::source_embedding:
        return one("model.encoder.embed_tokens.weight", parameter, rows_);
      case Role::target_embedding:
        if (!pairs) return one("model.embed_tokens.weight", parameter, rows_);
        if (!shape_.tie_embeddings) one("model.decoder.embed_tokens.weight", parameter, rows_);
        // An untied Pegasus does not use it, but reports that it is missing.
        if (shape_.tie_embeddings || family_ == Family::pegasus) one("model.shared.weight", parameter, rows_);
        return;
      case Role::head_weight:
        return one("lm_head.weight", parameter, rows_);
      case Role::head_bias:
        return one("final_logits_bias", parameter, rows_);
      case Role::norm_scale:
      case Role::norm_shift:
        return norm(parameter);
      default:
        break;
    }
    const std::string leaf = name.substr(name.rfind('/'));  // "/weight"
    const std::string module = module_of(name), layer = layer_of(name);
    const std::string end = "." + leaf.substr(1), place = place_of(parameter, family_);
    if (module == "ffn") {
      if (pairs) return one(place + (layer == "linear_0" ? "fc1" : "fc2") + end, parameter, parameter.shape.front());
      if (layer == "linear_1") return one(place + "mlp.down_proj" + end, parameter, parameter.shape.front());
      return parts(place + "mlp.", {{"gate", "gate_proj"}, {"up", "up_proj"}}, end, parameter);
    }
    const std::string attention = place + (module == "attention" ? "encoder_attn." : "self_attn.");
    if (!parameter.parts.empty())
      return parts(attention, {{"query", "q_proj"}, {"key", "k_proj"}, {"value", "v_proj"}}, end, parameter);
    const bool is_query = module == "attention" && layer == "linear_0";
    one(attention + (is_query ? "q_proj" : pairs ? "out_proj" : "o_proj") + end, parameter, parameter.shape.front());
  }

  void norm(const spec::Parameter& parameter) {
    const std::string& name = parameter.name;
    const std::string end = parameter.role == Role::norm_scale ? ".weight" : ".bias";
    const bool pairs = translates(family_);
    if (name.find("/layer_norm/") == name.find('/')) {  // the final one of a side
      const std::string side = name.substr(0, name.find('/'));
      return one(pairs ? "model." + side + ".layer_norm" + end : "model.norm" + end, parameter,
                 parameter.shape.front());
    }
    const std::string module = module_of(name);
    const char* theirs = "";
    if (module == "self_attention") theirs = pairs ? "self_attn_layer_norm" : "input_layernorm";
    if (module == "attention") theirs = "encoder_attn_layer_norm";
    if (module == "ffn") theirs = pairs ? "final_layer_norm" : "post_attention_layernorm";
    one(place_of(parameter, family_) + theirs + end, parameter, parameter.shape.front());
  }

  void one(std::string theirs, const spec::Parameter& parameter, std::int64_t rows) {
    list_.push_back({std::move(theirs), &parameter, 0, rows});
  }
  void parts(const std::string& before, std::initializer_list<std::pair<const char*, const char*>> names,
             const std::string& end, const spec::Parameter& parameter) {
    std::int64_t begin = 0;
    for (const spec::Part& part : parameter.parts) {
      for (const auto& [ours, theirs] : names) {
        if (part.name == ours)
          list_.push_back({fmt::format("{}{}{}", before, theirs, end), &parameter, begin, part.rows});
      }
      begin += part.rows;
    }
  }

  const spec::Architecture& shape_;
  const Family family_;
  const std::int64_t rows_;
  std::vector<Mapped> list_;
};

}  // namespace

Family family_of(const spec::Architecture& shape) {
  if (shape.type == spec::ModelType::encoder_decoder)
    return shape.norm_position == spec::NormPosition::post ? Family::marian : Family::pegasus;
  if (shape.qkv_bias) return Family::qwen2;
  return shape.window || shape.head_size * shape.heads != shape.width ? Family::mistral : Family::llama;
}

bool translates(Family family) { return family == Family::marian || family == Family::pegasus; }

const char* class_of(Family family) {
  switch (family) {
    case Family::llama:
      return "LlamaForCausalLM";
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::qwen2:
      return "Qwen2ForCausalLM";
    case Family::marian:
      return "MarianMTModel";
    case Family::pegasus:
      return "PegasusForConditionalGeneration";
  }
  ARGOSY_CHECK(false, "unknown family");
}

std::vector<std::int64_t> Mapped::shape() const {
  std::vector<std::int64_t> extents = parameter->shape;
  extents.front() = rows;
  if (parameter->role == Role::head_bias) extents.insert(extents.begin(), 1);
  return extents;
}

std::vector<Mapped> mapped_tensors(const spec::ModelSpec& spec, Family family) { return Names(spec, family).take(); }

std::vector<std::string> names_of_tied_matrix(Family family) {
  if (!translates(family)) return {"model.embed_tokens.weight", "lm_head.weight"};
  return {"model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
          "lm_head.weight"};
}

std::vector<std::string> names_of_positions(Family family) {
  if (!translates(family)) return {};
  return {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
}

}  // namespace argosy::interchange
