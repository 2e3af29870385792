/// The format hf: a Hugging Face folder with safetensors, config.json, generation_config.json and tokenizer files.
/// Classes: LlamaForCausalLM, MistralForCausalLM, MarianMTModel, PegasusForConditionalGeneration.
#include <boost/json.hpp>
#include <optional>
#include <set>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/formats.hpp"
#include "interchange/hf_tokenizer.hpp"
#include "interchange/safetensors.hpp"
#include "model/stored_model.hpp"

namespace argosy::interchange {
namespace {

using boost::json::object;
using spec::Activation;
using spec::Architecture;
using spec::ModelType;
using spec::Role;

enum class Family { llama, mistral, marian, pegasus };

Family family_of(const Architecture& shape) {
  if (shape.type == ModelType::encoder_decoder)
    return shape.norm_position == spec::NormPosition::post ? Family::marian : Family::pegasus;
  return shape.window || shape.head_size * shape.heads != shape.width ? Family::mistral : Family::llama;
}

bool translates(Family family) { return family == Family::marian || family == Family::pegasus; }

const char* class_of(Family family) {
  switch (family) {
    case Family::llama:
      return "LlamaForCausalLM";
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::marian:
      return "MarianMTModel";
    case Family::pegasus:
      return "PegasusForConditionalGeneration";
  }
  ARGOSY_CHECK(false, "unknown family");
}

std::optional<Facts> hf_limit(const Architecture& shape) {
  struct Need {
    bool met;
    const char *key, *wanted;
  };
  const bool sinusoidal =
      shape.encoder_position == spec::Position::sinusoidal && shape.decoder_position == spec::Position::sinusoidal;
  const Need of_translation[] = {
      {shape.norm == spec::Norm::layer_norm, "model.norm", "layer_norm"},
      {shape.bias, "model.bias", "true"},
      {shape.activation != Activation::swiglu, "model.activation", "relu, swish or gelu"},
      {sinusoidal, "model.encoder.position and model.decoder.position", "sinusoidal"},
      {shape.kv_heads == shape.heads, "model.kv_heads", "as many as model.heads"},
      {shape.head_size * shape.heads == shape.width, "model.head_size", "model.width/model.heads"}};
  const Need of_language[] = {{shape.norm == spec::Norm::rms_norm, "model.norm", "rms_norm"},
                              {shape.norm_position == spec::NormPosition::pre, "model.norm_position", "pre"},
                              {shape.activation == Activation::swiglu, "model.activation", "swiglu"},
                              {shape.decoder_position == spec::Position::rope, "model.decoder.position", "rope"},
                              {!shape.bias, "model.bias", "false"}};
  const Family family = family_of(shape);
  const std::span<const Need> needs =
      translates(family) ? std::span<const Need>{of_translation} : std::span<const Need>{of_language};
  for (const Need& need : needs) {
    if (need.met) continue;
    const std::string remedy = "use --format ct2";
    return Facts{.sentence = fmt::format("--format hf writes {}, which needs {} to be {}; {}", class_of(family),
                                         need.key, need.wanted, remedy),
                 .wanted = need.wanted,
                 .got = "another value",
                 .where = need.key,
                 .remedy = remedy};
  }
  return std::nullopt;
}

/// A tensor of theirs: rows of a parameter of ours.
struct Mapped {
  std::string name;
  const spec::Parameter* parameter;
  std::int64_t begin, rows;
};

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

  const Architecture& shape_;
  const Family family_;
  const std::int64_t rows_;
  std::vector<Mapped> list_;
};

DType type_of(Quantization quantization) {
  switch (quantization) {
    case Quantization::float32:
      return DType::f32;
    case Quantization::float16:
      return DType::f16;
    case Quantization::bfloat16:
      return DType::bf16;
    case Quantization::int8:
      break;
  }
  throw_claim(Fault::usage, "--format hf has no int8 weights", "--quantization", "float32, float16 or bfloat16", "int8",
              "choose one of these, or use --format ct2");
}

std::vector<Tensor> tensors_of(const checkpoint::Reader& reader, const spec::ModelSpec& spec, Family family,
                               DType dtype, std::int64_t& parameters) {
  const Architecture& shape = spec.architecture;
  std::vector<Tensor> tensors;
  std::set<std::pair<const spec::Parameter*, std::int64_t>> counted;
  for (const Mapped& mapped : Names(spec, family).take()) {
    std::vector<std::int64_t> extents = mapped.parameter->shape;
    extents.front() = mapped.rows;
    const bool is_bias_of_head = mapped.parameter->role == Role::head_bias;
    if (is_bias_of_head) extents.insert(extents.begin(), 1);
    const auto values = [&reader, mapped, is_bias_of_head, live = shape.vocabulary.pieces] {
      std::vector<float> rows = finite_rows(reader, *mapped.parameter, mapped.begin, mapped.begin + mapped.rows);
      if (is_bias_of_head) std::fill(rows.begin() + live, rows.end(), -1e4F);  // dead ids
      return rows;
    };
    tensors.push_back({mapped.name, dtype, extents,
                       [values, name = mapped.name, dtype] { return as_floats(values(), dtype, name); }});
    if (counted.emplace(mapped.parameter, mapped.begin).second)
      parameters += mapped.rows * (mapped.parameter->numel() / mapped.parameter->shape.front());
  }
  if (family == Family::pegasus) {  // which computes them as well, but reports them as missing
    for (const char* side : {"encoder", "decoder"}) {
      const std::string name = fmt::format("model.{}.embed_positions.weight", side);
      tensors.push_back({name,
                         dtype,
                         {shape.max_positions, shape.width},
                         [positions = shape.max_positions, width = shape.width, dtype, name] {
                           return as_floats(sinusoids(positions, width), dtype, name);
                         }});
    }
  }
  return tensors;
}

const char* activation_name(Activation activation) {
  return activation == Activation::relu ? "relu" : activation == Activation::gelu ? "gelu" : "swish";
}

/// The ids that both configurations name.
object ids_of(const spec::Vocabulary& vocabulary, Family family) {
  object out{{"bos_token_id", vocabulary.bos.value_or(vocabulary.eos)}, {"eos_token_id", vocabulary.eos}};
  if (!translates(family)) return out;
  out["pad_token_id"] = vocabulary.pad.value();
  out["decoder_start_token_id"] = vocabulary.start;
  out["forced_eos_token_id"] = vocabulary.eos;
  return out;
}

object config_of(const Architecture& shape, Family family, DType dtype) {
  const spec::Vocabulary& vocabulary = shape.vocabulary;
  const char* const type = dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
  object out = ids_of(vocabulary, family);
  out["architectures"] = boost::json::array{class_of(family)};
  out["torch_dtype"] = type;
  out["dtype"] = type;
  out["use_cache"] = true;
  out["tie_word_embeddings"] = shape.tie_embeddings;
  out["max_position_embeddings"] = shape.max_positions;
  if (!translates(family)) {
    out["model_type"] = family == Family::llama ? "llama" : "mistral";
    out["vocab_size"] = vocabulary.pieces;
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
    out["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", shape.rope_theta}};
    out["pad_token_id"] = nullptr;
    if (family == Family::llama) {
      out["attention_bias"] = false;
      out["mlp_bias"] = false;
    } else {
      out["sliding_window"] = shape.window ? boost::json::value(*shape.window) : boost::json::value(nullptr);
    }
    return out;
  }
  const bool pre = family == Family::pegasus;
  out["model_type"] = pre ? "pegasus" : "marian";
  out["vocab_size"] = vocabulary.rows;
  out["decoder_vocab_size"] = vocabulary.rows;
  out["d_model"] = shape.width;
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
  out["static_position_embeddings"] = true;
  out["normalize_before"] = pre;
  out["normalize_embedding"] = false;
  out["add_final_layer_norm"] = pre;
  out["add_bias_logits"] = false;
  out["share_encoder_decoder_embeddings"] = shape.tie_embeddings;
  out["is_encoder_decoder"] = true;
  return out;
}

object generation_config_of(const Architecture& shape, Family family) {
  object out = ids_of(shape.vocabulary, family);
  out["max_length"] = shape.max_positions;
  if (translates(family)) {
    out["bad_words_ids"] = boost::json::array{boost::json::array{shape.vocabulary.pad.value()}};
    out["num_beams"] = 4;
  }
  return out;
}

void write_tokenizer(OutputFolder& output, const data::Tokenizer& tokenizer, const Architecture& shape, Family family) {
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  object special{{"eos_token", tokenizer.piece(vocabulary.eos)}, {"unk_token", tokenizer.piece(vocabulary.unk)}};
  if (vocabulary.pad) special["pad_token"] = tokenizer.piece(*vocabulary.pad);
  if (vocabulary.bos) special["bos_token"] = tokenizer.piece(*vocabulary.bos);
  object config = special;
  config["model_max_length"] = shape.max_positions;
  if (family == Family::marian) {
    config["tokenizer_class"] = "MarianTokenizer";
    config["source_lang"] = "source";
    config["target_lang"] = "target";
    config["separate_vocabs"] = false;
    object ids;
    for (std::int64_t id = 0; id < vocabulary.rows; ++id) ids[tokenizer.piece(id)] = id;
    output.write("vocab.json", pretty(ids));
    output.write("source.spm", tokenizer.model_bytes());
    output.write("target.spm", tokenizer.model_bytes());
  } else {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    config["clean_up_tokenization_spaces"] = false;
    output.write("tokenizer.json",
                 pretty(tokenizer_json(tokenizer, vocabulary.bos ? Wrapping::bos_before : Wrapping::eos_after)));
    output.write("tokenizer.model", tokenizer.model_bytes());
  }
  output.write("tokenizer_config.json", pretty(config));
  output.write("special_tokens_map.json", pretty(special));
}

ExportReport write_hf(comm::Context& context, const checkpoint::Reader& reader, const Path& folder,
                      const ExportOptions& options) {
  const double begin_s = context.clock.monotonic_s();
  std::optional<model::StoredModel> stored;
  std::vector<Tensor> tensors;
  Family family{};
  DType dtype{};
  ExportReport report{.folder = folder};
  comm::agree(context.world, [&] {
    dtype = type_of(options.quantization);
    stored.emplace(model::stored_model(reader));
    if (auto facts = hf_limit(stored->spec.architecture)) throw Error{Fault::usage, std::move(*facts)};
    family = family_of(stored->spec.architecture);
    (void)distinct_pieces(stored->tokenizer);
    tensors = tensors_of(reader, stored->spec, family, dtype, report.parameters);
  });
  const Architecture& shape = stored->spec.architecture;
  OutputFolder output{context, folder};
  report.bytes = write_safetensors(context.world, context.files, output.path(), tensors, options.max_shard_bytes);
  // Compact: pretty() writes 1.0 as 1, which transformers refuses where it wants a float.
  output.write("config.json", boost::json::serialize(config_of(shape, family, dtype)) + "\n");
  output.write("generation_config.json", pretty(generation_config_of(shape, family)));
  write_tokenizer(output, stored->tokenizer, shape, family);
  output.commit();
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

}  // namespace

Format hugging_face() {
  return {"hf", "a Hugging Face folder (Llama, Mistral, Marian, Pegasus) with safetensors", hf_limit, write_hf};
}

}  // namespace argosy::interchange
