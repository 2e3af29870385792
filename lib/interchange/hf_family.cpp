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
      : shape_(spec.architecture), family_(family), rows_(vocabulary_rows(shape_.vocabulary, family)) {
    for (const spec::Unit& unit : spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) add(parameter);
    }
  }
  [[nodiscard]] std::vector<Mapped> take() { return std::move(list_); }

 private:
  void add(const spec::Parameter& parameter) {
    const std::string& name = parameter.name;
    const bool pairs = translates(family_), t5 = family_ == Family::t5;
    switch (parameter.role) {
      case Role::source_embedding:
        return one("model.encoder.embed_tokens.weight", parameter, rows_);
      case Role::target_embedding:
        if (t5) return one("shared.weight", parameter, rows_);
        if (!pairs) return one("model.embed_tokens.weight", parameter, rows_);
        if (!shape_.tie_inputs) one("model.decoder.embed_tokens.weight", parameter, rows_);
        // A Pegasus with two matrices does not use it, but reports that it is missing.
        if (shape_.tie_inputs || family_ == Family::pegasus) one("model.shared.weight", parameter, rows_);
        return;
      case Role::head_weight:
        return one("lm_head.weight", parameter, rows_);
      case Role::head_bias:
        return one("final_logits_bias", parameter, rows_);
      case Role::position_table:
        return one(name_of_positions(name.starts_with("encoder/")), parameter, parameter.shape.front());
      case Role::relative_bias:
        return one(t5_place(name) + "SelfAttention.relative_attention_bias.weight", parameter, parameter.shape.front());
      case Role::norm_scale:
      case Role::norm_shift:
        return t5 ? t5_norm(parameter) : norm(parameter);
      default:
        break;
    }
    if (t5) return t5_linear(parameter);
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

  /// "encoder.block.3.layer.1.": T5 counts the parts of a block.
  static std::string t5_place(const std::string& name) {
    const std::string side = name.substr(0, name.find('/')), layer_mark = "/layer_";
    const std::size_t digits = side.size() + layer_mark.size(), end = name.find('/', digits);
    const std::string module = name.substr(end + 1, name.find('/', end + 1) - end - 1);
    const int part = module == "self_attention" ? 0 : module == "attention" || side == "encoder" ? 1 : 2;
    return fmt::format("{}.block.{}.layer.{}.", side, name.substr(digits, end - digits), part);
  }
  void t5_norm(const spec::Parameter& parameter) {
    const std::string& name = parameter.name;
    const bool is_final = name.find("/layer_norm/") == name.find('/');
    one(is_final ? name.substr(0, name.find('/')) + ".final_layer_norm.weight" : t5_place(name) + "layer_norm.weight",
        parameter, parameter.shape.front());
  }
  void t5_linear(const spec::Parameter& parameter) {
    const std::string& name = parameter.name;
    const std::string module = module_of(name), layer = layer_of(name), end = ".weight", place = t5_place(name);
    if (module == "ffn") {
      const std::string ffn = place + "DenseReluDense.";
      if (layer == "linear_1") return one(ffn + "wo" + end, parameter, parameter.shape.front());
      return parts(ffn, {{"gate", "wi_0"}, {"up", "wi_1"}}, end, parameter);
    }
    const std::string attention = place + (module == "attention" ? "EncDecAttention." : "SelfAttention.");
    if (!parameter.parts.empty())
      return parts(attention, {{"query", "q"}, {"key", "k"}, {"value", "v"}}, end, parameter);
    const bool is_query = module == "attention" && layer == "linear_0";
    one(attention + (is_query ? "q" : "o") + end, parameter, parameter.shape.front());
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
  if (shape.type == spec::ModelType::encoder_decoder) {
    if (shape.vocabulary.layout == spec::TokenLayout::t5) return Family::t5;
    if (shape.norm_position == spec::NormPosition::post) return Family::marian;
    return shape.uses(spec::Position::sinusoidal_fairseq) ? Family::m2m_100 : Family::pegasus;
  }
  if (shape.qkv_bias) return Family::qwen2;
  return shape.window || shape.head_size * shape.heads != shape.width ? Family::mistral : Family::llama;
}

bool translates(Family family) { return family >= Family::marian; }

bool has_output_bias(Family family) { return family == Family::marian || family == Family::pegasus; }

std::int64_t vocabulary_rows(const spec::Vocabulary& vocabulary, Family family) {
  return has_output_bias(family) && !vocabulary.has_own_ids ? vocabulary.rows : vocabulary.pieces;
}

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
    case Family::m2m_100:
      return "M2M100ForConditionalGeneration";
    case Family::t5:
      return "T5ForConditionalGeneration";
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
  if (family == Family::t5)
    return {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"};
  return {"model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
          "lm_head.weight"};
}

std::string name_of_positions(bool encoder) {
  return encoder ? "model.encoder.embed_positions.weight" : "model.decoder.embed_positions.weight";
}

bool has_positions(Family family) { return has_output_bias(family); }

}  // namespace argosy::interchange
