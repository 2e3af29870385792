#include "interchange/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <boost/mp11.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "spec/positions.hpp"

namespace argosy::interchange {
namespace {

using boost::json::object;

const char* activation_name(spec::Activation activation) {
  return activation == spec::Activation::relu ? "relu" : activation == spec::Activation::gelu ? "gelu" : "swish";
}

boost::json::value id_or_null(const std::optional<std::int64_t>& id) {
  return id ? boost::json::value(*id) : boost::json::value(nullptr);
}

/// The ids that both configurations name.
object ids_of(const spec::Vocabulary& vocabulary, Family family) {
  // Without a bos of their own, Marian's and Pegasus' classes want one all the same.
  const bool has_bos = vocabulary.bos || !has_output_bias(family);
  object out{{"bos_token_id", id_or_null(has_bos ? vocabulary.bos : vocabulary.eos)},
             {"eos_token_id", vocabulary.eos},
             {"pad_token_id", id_or_null(vocabulary.pad)}};
  if (!translates(family)) return out;
  out["decoder_start_token_id"] = vocabulary.start;
  if (has_output_bias(family)) out["forced_eos_token_id"] = vocabulary.eos;
  return out;
}

}  // namespace

object hf_config(const spec::Architecture& shape, Family family, DType dtype) {
  const spec::Vocabulary& vocabulary = shape.vocabulary;
  const char* const type = dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
  object out = ids_of(vocabulary, family);
  out["model_type"] = boost::describe::enum_to_string(family, "");
  out["architectures"] = boost::json::array{class_of(family)};
  out["torch_dtype"] = type;
  out["dtype"] = type;
  out["use_cache"] = true;
  out["tie_word_embeddings"] = shape.tie_embeddings;
  out["max_position_embeddings"] = shape.max_positions;
  out["vocab_size"] = vocabulary_rows(vocabulary, family);
  if (!translates(family)) {
    out["hidden_size"] = shape.width;
    out["intermediate_size"] = shape.ff;
    out["num_hidden_layers"] = shape.decoder_layers;
    out["num_attention_heads"] = shape.heads;
    out["num_key_value_heads"] = shape.kv_heads;
    out["head_dim"] = shape.head_size;
    out["hidden_act"] = "silu";
    out["rms_norm_eps"] = shape.norm_epsilon;
    out["attention_dropout"] = 0.0;
    out["rope_theta"] = shape.rope_theta;
    object rope{{"rope_type", "default"}, {"rope_theta", shape.rope_theta}};
    if (const auto& scaling = shape.rope_scaling) {
      rope["rope_type"] = "llama3";
      rope["factor"] = scaling->factor;
      rope["low_freq_factor"] = scaling->low_freq_factor;
      rope["high_freq_factor"] = scaling->high_freq_factor;
      rope["original_max_position_embeddings"] = scaling->original_max_positions;
    }
    out["rope_parameters"] = std::move(rope);
    if (family == Family::llama) {
      out["attention_bias"] = false;
      out["mlp_bias"] = false;
    } else if (family == Family::qwen2) {
      out["use_sliding_window"] = false;
    } else {
      out["sliding_window"] = shape.window ? boost::json::value(*shape.window) : boost::json::value(nullptr);
    }
    return out;
  }
  out["d_model"] = shape.width;
  out["is_encoder_decoder"] = true;
  if (family == Family::t5) {
    out["d_kv"] = shape.head_size;
    out["d_ff"] = shape.ff;
    out["num_layers"] = shape.encoder_layers;
    out["num_decoder_layers"] = shape.decoder_layers;
    out["num_heads"] = shape.heads;
    out["relative_attention_num_buckets"] = spec::relative_buckets;
    out["relative_attention_max_distance"] = spec::most_distance;
    out["layer_norm_epsilon"] = shape.norm_epsilon;
    out["feed_forward_proj"] = "gated-gelu";
    out["dropout_rate"] = shape.dropout;
    out["initializer_factor"] = 1.0;
    return out;
  }
  out["encoder_layers"] = shape.encoder_layers;
  out["decoder_layers"] = shape.decoder_layers;
  out["num_hidden_layers"] = shape.encoder_layers;
  for (const char* side : {"encoder", "decoder"}) {
    out[fmt::format("{}_attention_heads", side)] = shape.heads;
    out[fmt::format("{}_ffn_dim", side)] = shape.ff;
    out[fmt::format("{}_layerdrop", side)] = 0.0;
  }
  out["activation_function"] = activation_name(shape.activation);
  out["dropout"] = shape.dropout;
  out["attention_dropout"] = 0.0;
  out["activation_dropout"] = 0.0;
  out["init_std"] = 0.02;
  out["scale_embedding"] = true;
  if (family == Family::m2m_100) return out;
  const bool pre = family == Family::pegasus;
  out["decoder_vocab_size"] = vocabulary_rows(vocabulary, family);
  out["static_position_embeddings"] = true;
  out["normalize_before"] = pre;
  out["normalize_embedding"] = false;
  out["add_final_layer_norm"] = pre;
  out["add_bias_logits"] = false;
  out["share_encoder_decoder_embeddings"] = shape.tie_inputs;
  return out;
}

object hf_generation_config(const spec::Architecture& shape, Family family) {
  object out = ids_of(shape.vocabulary, family);
  out["max_length"] = shape.max_positions;
  if (translates(family)) {
    if (has_output_bias(family))
      out["bad_words_ids"] = boost::json::array{boost::json::array{shape.vocabulary.pad.value()}};
    out["num_beams"] = 4;
  }
  return out;
}

namespace {

/// Reads a config.json by its keys' types, and refuses values that change the mathematics of a model.
class HfKeys {
 public:
  HfKeys(const object& keys, const std::string& where) : keys_(keys), where_(where) {}

  /// The value, or null if it is absent or null.
  [[nodiscard]] const boost::json::value* find(std::string_view key) const {
    const boost::json::value* const value = keys_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  /// Whether it is there, be it null.
  [[nodiscard]] bool has(std::string_view key) const { return keys_.contains(key); }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::int64_t size(std::string_view key) const {
    const boost::json::value* const value = find(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < 1 || value->get_int64() > spec::most_size)
      wrong(key, fmt::format("a whole number from 1 to {}", spec::most_size), value);
    return value->get_int64();
  }
  [[nodiscard]] std::int64_t size(std::string_view key, std::int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : size(key);
  }
  [[nodiscard]] double real(std::string_view key, double otherwise) const {
    const boost::json::value* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) wrong(key, "a number", value);
    return value->to_number<double>();
  }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
    const boost::json::value* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) wrong(key, "true or false", value);
    return value->get_bool();
  }
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise) const {
    const boost::json::value* const value = find(key);
    if (value == nullptr) return std::string{otherwise};
    if (!value->is_string()) wrong(key, "a text", value);
    return std::string{value->get_string()};
  }
  /// Refuses any other value than the one that Argosy's models have. `otherwise`: what an absent key means.
  void need(std::string_view key, bool wanted, bool otherwise) const {
    if (flag(key, otherwise) != wanted) unlike(key, wanted ? "true" : "false");
  }
  void need(std::string_view key, std::int64_t wanted, std::int64_t otherwise) const {
    if (size(key, otherwise) != wanted) unlike(key, fmt::format("{}", wanted));
  }
  /// An id. Of a list of ids the first, which is the one that ends documents in training.
  [[nodiscard]] std::optional<std::int64_t> id(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_array() && !value->get_array().empty()) value = &value->get_array().front();
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() >= spec::most_size)
      wrong(key, fmt::format("an id from 0 to {}", spec::most_size - 1), value);
    return value->get_int64();
  }
  /// The value of a key is not one that Argosy's models can have.
  [[noreturn]] void unlike(std::string_view key, const std::string& wanted) const {
    const boost::json::value* const value = find(key);
    const std::string got = value == nullptr ? "nothing" : boost::json::serialize(*value);
    throw_claim(Fault::usage, fmt::format("{}: {} is {}, but Argosy reads only {}", where_, key, got, wanted), where_,
                wanted, got, "choose another model");
  }

 private:
  [[noreturn]] void wrong(std::string_view key, const std::string& wanted, const boost::json::value* value) const {
    throw_error(Fault::data, fmt::format("{}, {}", where_, key), wanted,
                value == nullptr ? "nothing" : boost::json::serialize(*value),
                "give a folder that save_pretrained() has written");
  }

  const object& keys_;
  const std::string& where_;
};

/// What a key says of rotary positions: rope_parameters, or the older rope_scaling.
void read_rope(const HfKeys& keys, const char* key, spec::ModelConfig& model) {
  const boost::json::value* const value = keys.find(key);
  if (value == nullptr) return;
  if (!value->is_object()) keys.unlike(key, "an object");
  const HfKeys rope{value->get_object(), keys.where()};
  model.rope_theta = rope.real("rope_theta", model.rope_theta);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "llama3") keys.unlike(key, "the types default and llama3");
  model.rope_scaling = spec::RopeScaling{.type = spec::RopeScalingType::llama3,
                                         .factor = rope.real("factor", 8),
                                         .low_freq_factor = rope.real("low_freq_factor", 1),
                                         .high_freq_factor = rope.real("high_freq_factor", 4),
                                         .original_max_positions = rope.size("original_max_position_embeddings")};
}

void read_language_model(const HfKeys& keys, HfDescription& out) {
  spec::ModelConfig& model = out.model;
  model.type = spec::ModelType::decoder;
  model.width = keys.size("hidden_size");
  model.ff = keys.size("intermediate_size");
  model.decoder.layers = keys.size("num_hidden_layers");
  model.heads = keys.size("num_attention_heads");
  const bool mistral = out.family == Family::mistral;
  model.kv_heads = keys.size("num_key_value_heads", mistral ? 8 : *model.heads);
  model.head_size = keys.size("head_dim", *model.width / *model.heads);
  model.max_positions = keys.size("max_position_embeddings", mistral ? 131072 : 2048);
  if (mistral) {
    const bool is_set = keys.has("sliding_window");
    if (!is_set)
      model.window = 4096;
    else if (keys.find("sliding_window") != nullptr)
      model.window = keys.size("sliding_window");
  }
  if (keys.text("hidden_act", "silu") != "silu") keys.unlike("hidden_act", "silu");
  if (out.family == Family::qwen2) {
    model.qkv_bias = true;
    keys.need("use_sliding_window", false, false);
  } else {
    keys.need("attention_bias", false, false);
    keys.need("mlp_bias", false, false);
  }
  model.norm_epsilon = keys.real("rms_norm_eps", 1e-6);
  model.rope_theta = keys.real("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) read_rope(keys, key, model);
  model.tie_embeddings = keys.flag("tie_word_embeddings", false);
  model.bias = false;
}

void read_t5(const HfKeys& keys, HfDescription& out) {
  spec::ModelConfig& model = out.model;
  model.type = spec::ModelType::encoder_decoder;
  model.norm = spec::Norm::rms_norm;
  model.norm_position = spec::NormPosition::pre;
  model.norm_epsilon = keys.real("layer_norm_epsilon", 1e-6);
  model.activation = spec::Activation::geglu;
  model.bias = false;
  model.encoder.position = model.decoder.position = spec::Position::t5;
  model.width = keys.size("d_model");
  model.ff = keys.size("d_ff");
  model.heads = keys.size("num_heads");
  model.head_size = keys.size("d_kv");
  model.encoder.layers = keys.size("num_layers");
  model.decoder.layers = keys.size("num_decoder_layers", *model.encoder.layers);
  model.dropout = keys.real("dropout_rate", 0.1);
  model.max_positions = keys.size("max_position_embeddings", model.max_positions);  // T5 itself has no limit
  if (keys.text("feed_forward_proj", "relu") != "gated-gelu") keys.unlike("feed_forward_proj", "gated-gelu");
  keys.need("relative_attention_num_buckets", spec::relative_buckets, spec::relative_buckets);
  keys.need("relative_attention_max_distance", spec::most_distance, spec::most_distance);
  // transformers 5 writes tie_word_embeddings true for every T5, and what it means under another name.
  model.tie_embeddings = keys.flag("scale_decoder_outputs", keys.flag("tie_word_embeddings", true));
  model.tie_inputs = true;
}

void read_translation_model(const HfKeys& keys, HfDescription& out) {
  spec::ModelConfig& model = out.model;
  const bool m2m = out.family == Family::m2m_100, pre = m2m || out.family == Family::pegasus;
  model.type = spec::ModelType::encoder_decoder;
  model.norm_position = pre ? spec::NormPosition::pre : spec::NormPosition::post;
  model.width = keys.size("d_model");
  model.encoder.layers = keys.size("encoder_layers");
  model.decoder.layers = keys.size("decoder_layers");
  model.heads = keys.size("encoder_attention_heads");
  if (keys.size("decoder_attention_heads") != *model.heads)
    keys.unlike("decoder_attention_heads", fmt::format("{}, as in the encoder", *model.heads));
  model.ff = keys.size("encoder_ffn_dim");
  if (keys.size("decoder_ffn_dim") != *model.ff)
    keys.unlike("decoder_ffn_dim", fmt::format("{}, as in the encoder", *model.ff));
  const std::string activation = keys.text("activation_function", m2m ? "relu" : "gelu");
  if (activation == "relu")
    model.activation = spec::Activation::relu;
  else if (activation == "gelu")
    model.activation = spec::Activation::gelu;
  else if (activation == "swish" || activation == "silu")
    model.activation = spec::Activation::swish;
  else
    keys.unlike("activation_function", "relu, gelu, swish or silu");
  keys.need("scale_embedding", true, m2m);
  model.max_positions = keys.size("max_position_embeddings", 1024);
  model.dropout = keys.real("dropout", 0.1);
  if (m2m) {
    model.encoder.position = model.decoder.position = spec::Position::sinusoidal_fairseq;
    model.output_bias = false;
    keys.need("tie_word_embeddings", true, true);
    if (out.ids.pad != 1) keys.unlike("pad_token_id", "1");
    return;
  }
  keys.need("static_position_embeddings", true, true);
  keys.need("normalize_before", pre, pre);
  keys.need("add_final_layer_norm", pre, pre);
  keys.need("normalize_embedding", false, false);
  keys.need("add_bias_logits", false, false);
  if (keys.size("decoder_vocab_size", out.rows) != out.rows)
    keys.unlike("decoder_vocab_size", fmt::format("{}, as vocab_size", out.rows));
  model.tie_embeddings = keys.flag("tie_word_embeddings", true);
  model.tie_inputs = keys.flag("share_encoder_decoder_embeddings", true);
  if (!out.ids.pad) keys.unlike("pad_token_id", "an id");
}

}  // namespace

HfDescription description_of(const object& config, const std::string& where) {
  const HfKeys keys{config, where};
  const std::string type = keys.text("model_type", "");
  HfDescription out;
  if (type == "mt5") {  // as T5 v1.1
    out.family = Family::t5;
  } else if (!boost::describe::enum_from_string(type.c_str(), out.family)) {
    std::vector<std::string_view> types;
    boost::mp11::mp_for_each<boost::describe::describe_enumerators<Family>>(
        [&](auto family) { types.emplace_back(family.name); });
    const std::string known = fmt::format("{}", fmt::join(types, ", "));
    throw_claim(Fault::usage, fmt::format("{}: Argosy cannot read models of the type \"{}\"", where, type), where,
                "one of " + known, type, "the types it reads are " + known);
  }
  out.rows = keys.size("vocab_size");
  const std::optional<std::int64_t> eos = keys.id("eos_token_id");
  if (!eos) keys.unlike("eos_token_id", "an id");
  out.ids = {.eos = *eos, .bos = keys.id("bos_token_id"), .pad = keys.id("pad_token_id")};
  if (translates(out.family)) {
    out.ids.start = keys.id("decoder_start_token_id");
    if (out.family == Family::t5 && !out.ids.start) out.ids.start = out.ids.pad;
    if (!out.ids.start) keys.unlike("decoder_start_token_id", "an id");
  }
  if (out.family == Family::t5)
    read_t5(keys, out);
  else if (translates(out.family))
    read_translation_model(keys, out);
  else
    read_language_model(keys, out);
  return out;
}

}  // namespace argosy::interchange
