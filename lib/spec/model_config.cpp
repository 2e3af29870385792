#include "spec/model_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace argosy::spec {

namespace {

struct Sizes {
  ModelType type;
  std::int64_t width, ff, heads, kv_heads, encoder_layers, decoder_layers;
};

constexpr std::pair<Preset, Sizes> presets[] = {
    {Preset::mt_tiny, {ModelType::encoder_decoder, 96, 384, 2, 2, 2, 2}},
    {Preset::mt_small, {ModelType::encoder_decoder, 192, 768, 4, 4, 3, 3}},
    {Preset::mt_base, {ModelType::encoder_decoder, 512, 2048, 8, 8, 6, 6}},
    {Preset::mt_big, {ModelType::encoder_decoder, 1024, 4096, 16, 16, 6, 6}},
    {Preset::lm_tiny, {ModelType::decoder, 128, 384, 4, 2, 0, 2}},
    {Preset::lm_small, {ModelType::decoder, 288, 768, 6, 2, 0, 6}},
    {Preset::lm_medium, {ModelType::decoder, 1024, 2816, 16, 8, 0, 24}},
    {Preset::lm_1b, {ModelType::decoder, 2048, 8192, 32, 8, 0, 16}},
    {Preset::lm_3b, {ModelType::decoder, 3072, 8192, 24, 8, 0, 28}},
    {Preset::mistral_7b, {ModelType::decoder, 4096, 14336, 32, 8, 0, 32}},
};

/// Of the preset, or zeros.
Sizes sizes_of(const ModelConfig& config) {
  for (const auto& [preset, sizes] : presets)
    if (preset == config.preset) return sizes;
  return {config.type, 0, 0, 0, 0, 0, 0};
}

constexpr std::array side_texts{
    config::KeyText{"layers", "number of blocks"},
    config::KeyText{"position",
                    "sinusoidal, sinusoidal_fairseq (M2M-100) or learned, added to the embeddings; rope, which rotates "
                    "queries and keys; alibi or t5, added to attention scores; or none"},
    config::KeyText{"stacks",
                    "in the place of layers: runs of blocks, each shared by some of the tasks; encoder_decoder only"},
};

constexpr std::array ids_texts{
    config::KeyText{"eos", "id of the end of a text"},
    config::KeyText{"unk", "id of what the tokenizer cannot spell; absent: none"},
    config::KeyText{"bos", "id of the start of a text; absent: none"},
    config::KeyText{"pad", "id that fills rows; absent: none"},
    config::KeyText{"start", "id that the decoder begins with; default: bos, else eos"},
};

constexpr std::array scaling_texts{
    config::KeyText{"type", "llama3: long wavelengths grow by factor, short ones stay, those between are blended"},
    config::KeyText{"factor", "by how much wavelengths grow that exceed original_max_positions/low_freq_factor"},
    config::KeyText{"low_freq_factor", "turns within original_max_positions below which a wavelength is long"},
    config::KeyText{"high_freq_factor", "turns within original_max_positions above which a wavelength is short"},
    config::KeyText{"original_max_positions", "positions that the model was first trained on"},
};

constexpr std::array embeddings_texts{
    config::KeyText{"share",
                    "all: all tasks share them; language: each language of the tasks has its own, for texts that are "
                    "read and written"},
};

constexpr std::array model_texts{
    config::KeyText{"type", "encoder_decoder (translation) or decoder (language model)"},
    config::KeyText{"preset",
                    "sizes by name: mt_tiny, mt_small, mt_base, mt_big, lm_tiny, lm_small, lm_medium, lm_1b, lm_3b, "
                    "mistral_7b; single "
                    "keys override it"},
    config::KeyText{"vocab_size",
                    "number of pieces; default: the tokenizer's; it may be larger: ids beyond the tokenizer's occur in "
                    "no text. Needed only to plan without a tokenizer, and as room for larger ones of languages that "
                    "come later"},
    config::KeyText{"token_ids",
                    "special ids of a tokenizer that Argosy has not trained; absent: those of the model type"},
    config::KeyText{"width", "size of the vector at each position (d_model)"},
    config::KeyText{"ff", "inner size of the feed-forward part"},
    config::KeyText{"heads", "attention heads"},
    config::KeyText{"kv_heads", "key and value heads, shared by heads/kv_heads query heads; default: as many as heads"},
    config::KeyText{"head_size", "size of one head; default width/heads"},
    config::KeyText{"window", "attention window of a decoder: position i attends to i-window+1 … i"},
    config::KeyText{"prefix_lm",
                    "the positions of a document's prompt, which bears no loss, attend to all of the prompt (prefix "
                    "language model); decoder only, for corpora with prompts; default false"},
    config::KeyText{"vocab_multiple", "the model's vocabulary is padded to a multiple of this; the tokenizer's is not"},
    config::KeyText{"rope_theta", "base of the frequencies of rotary positions"},
    config::KeyText{"rope_scaling", "rotary positions for longer inputs, as in Llama 3.1; absent: none"},
    config::KeyText{"max_positions", "most positions (tokens) of an input"},
    config::KeyText{
        "position_shift_max",
        "in training, the positions of an example begin at a random number from 0 to this, each side at its own "
        "(SHAPE, "
        "arXiv:2109.05644): the model learns no absolute places, as for inputs longer than most of the training text; "
        "for positions sinusoidal, sinusoidal_fairseq and learned; 0: off"},
    config::KeyText{"norm", "layer_norm (default of encoder_decoder) or rms_norm (default of decoder)"},
    config::KeyText{"norm_epsilon",
                    "added to the variance under the root; default 1e-5, 1e-6 for rms_norm in encoder_decoder"},
    config::KeyText{"norm_position",
                    "post (Marian shape, default of encoder_decoder) or pre (with final norms; default of decoder)"},
    config::KeyText{"activation",
                    "relu (default of encoder_decoder), swish, gelu, swiglu (default of decoder) or geglu (T5)"},
    config::KeyText{"bias",
                    "biases in linear layers and at the output; default true for encoder_decoder, false for decoder"},
    config::KeyText{"qkv_bias",
                    "biases of queries, keys and values even if model.bias is false (Qwen2); default false"},
    config::KeyText{"output_bias", "bias of the output; default: as model.bias (M2M-100: false)"},
    config::KeyText{
        "tie_embeddings",
        "one matrix for embeddings of the target and output; default true for encoder_decoder, false for decoder"},
    config::KeyText{"tie_inputs",
                    "one matrix for the embeddings of source and target, whatever the output has (T5 v1.1: true with "
                    "tie_embeddings false; false with tie_embeddings true: the source alone has its own); default: as "
                    "tie_embeddings"},
    config::KeyText{"embeddings", "which tasks share the embeddings and the output matrix"},
    config::KeyText{"embedding_scale",
                    "embeddings are multiplied by the root of model.width; default true for encoder_decoder, false for "
                    "decoder and T5"},
    config::KeyText{"dropout", "on residual branches and embeddings; default 0.1 for encoder_decoder, 0 for decoder"},
    config::KeyText{
        "neftune_alpha",
        "noise on embeddings in training (NEFTune): uniform in ±alpha/√(L·width) for an example of L pieces; 0: off"},
    config::KeyText{"encoder", "keys of the encoder alone"},
    config::KeyText{"decoder", "keys of the decoder alone"},
    config::KeyText{"allow_encoder_without_positions",
                    "permits encoder.position none, with which an encoder does not know the order of its input"},
};

std::int64_t layers_of(const std::vector<StackConfig>& stacks) {
  std::int64_t layers = 0;
  for (const StackConfig& stack : stacks) layers += std::clamp<std::int64_t>(stack.layers, 0, most_layers);
  return layers;
}

bool share_all(const std::vector<StackConfig>& stacks) {
  return std::ranges::all_of(stacks, [](const StackConfig& stack) { return stack.share == Share::all; });
}

std::string text_of(const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : "nothing"; }

}  // namespace

std::span<const config::KeyText> key_texts(const SideConfig&) { return side_texts; }
std::span<const config::KeyText> key_texts(const EmbeddingsConfig&) { return embeddings_texts; }
std::span<const config::KeyText> key_texts(const TokenIds&) { return ids_texts; }
std::span<const config::KeyText> key_texts(const RopeScaling&) { return scaling_texts; }
std::span<const config::KeyText> key_texts(const ModelConfig&) { return model_texts; }

void validate(const TokenIds& ids, config::Problems& problems) {
  const auto check = [&](const std::optional<std::int64_t>& id, std::string_view pointer) {
    problems.require(!id || (*id >= 0 && *id < most_size), pointer, fmt::format("an id from 0 to {}", most_size - 1),
                     text_of(id));
  };
  check(ids.eos, "/eos");
  check(ids.unk, "/unk");
  check(ids.bos, "/bos");
  check(ids.pad, "/pad");
  check(ids.start, "/start");
}

void validate(const RopeScaling& scaling, config::Problems& problems) {
  constexpr double most = 1e6;
  problems.require(scaling.factor >= 1 && scaling.factor <= most, "/factor", "a number from 1 to 1e6", scaling.factor);
  problems.require(scaling.low_freq_factor > 0 && scaling.low_freq_factor <= most, "/low_freq_factor",
                   "a number above 0, at most 1e6", scaling.low_freq_factor);
  problems.require(scaling.high_freq_factor > scaling.low_freq_factor && scaling.high_freq_factor <= most,
                   "/high_freq_factor",
                   fmt::format("a number above low_freq_factor ({}), at most 1e6", scaling.low_freq_factor),
                   scaling.high_freq_factor);
  problems.require(scaling.original_max_positions > 0 && scaling.original_max_positions <= most_size,
                   "/original_max_positions", fmt::format("an integer from 1 to {}", most_size),
                   std::to_string(scaling.original_max_positions));
}

void validate(const ModelConfig& config, config::Problems& problems) {
  const auto positive = [&](const std::optional<std::int64_t>& value, std::string_view pointer,
                            std::int64_t most = most_size) {
    problems.require(!value || (*value > 0 && *value <= most), pointer, fmt::format("an integer from 1 to {}", most),
                     text_of(value));
  };
  positive(config.vocab_size, "/vocab_size", 1 << 24);
  positive(config.width, "/width");
  positive(config.ff, "/ff");
  positive(config.heads, "/heads");
  positive(config.kv_heads, "/kv_heads");
  positive(config.head_size, "/head_size");
  positive(config.window, "/window");
  positive(config.vocab_multiple, "/vocab_multiple", 1 << 16);
  positive(config.max_positions, "/max_positions");
  positive(config.encoder.layers, "/encoder/layers", most_layers);
  positive(config.decoder.layers, "/decoder/layers", most_layers);
  for (const auto& [side, pointer] : {std::pair{&config.encoder, "/encoder"}, {&config.decoder, "/decoder"}}) {
    problems.require(!side->layers || side->stacks.empty(), fmt::format("{}/layers", pointer),
                     "absent, since stacks says how many layers there are", text_of(side->layers));
    problems.require(layers_of(side->stacks) <= most_layers, fmt::format("{}/stacks", pointer),
                     fmt::format("at most {} layers", most_layers), layers_of(side->stacks));
  }
  constexpr double most_theta = 1e30;  // fp32 holds it
  problems.require(config.rope_theta > 1 && config.rope_theta <= most_theta, "/rope_theta",
                   "a number above 1, at most 1e30", config.rope_theta);
  problems.require(!config.norm_epsilon || (*config.norm_epsilon >= 1e-12 && *config.norm_epsilon <= 1),
                   "/norm_epsilon", "a number from 1e-12 to 1", config.norm_epsilon.value_or(0));
  problems.require(!config.dropout || (*config.dropout >= 0 && *config.dropout < 1), "/dropout", "a number in [0, 1)",
                   std::to_string(config.dropout.value_or(0)));
  problems.require(config.neftune_alpha >= 0 && config.neftune_alpha <= 1000, "/neftune_alpha",
                   "a number from 0 to 1000", config.neftune_alpha);
  const Sizes base = sizes_of(config);
  problems.require(base.type == config.type, "/preset",
                   "a preset of the same model.type (mt_* are encoder_decoder, lm_* and mistral_7b decoder)",
                   "one of the other type");
  if (config.type == ModelType::decoder) {
    problems.require(config.embeddings.share == EmbeddingShare::all, "/embeddings/share",
                     "all, since model.type is decoder", "language");
    problems.require(config.decoder.stacks.empty(), "/decoder/stacks", "absent, since model.type is decoder", "a list",
                     "use model.decoder.layers");
    problems.require(config.encoder.stacks.empty(), "/encoder/stacks", "absent, since model.type is decoder", "a list");
    problems.require(!config.tie_inputs, "/tie_inputs", "absent, since model.type is decoder", "");
    problems.require(!config.encoder.layers && !config.encoder.position, "/encoder",
                     "absent, since model.type is decoder", "");
  } else {
    problems.require(!config.window, "/window", "absent, since model.type is encoder_decoder", "");
    problems.require(!config.prefix_lm, "/prefix_lm",
                     "false, since model.type is encoder_decoder, whose encoder reads the source in both directions",
                     "true", "use model.type decoder, or remove the key");
    problems.require(config.encoder.position != Position::none || config.allow_encoder_without_positions,
                     "/encoder/position",
                     "positions in the encoder, which does not know the order of its input without them", "none",
                     "choose sinusoidal, or set model.allow_encoder_without_positions");
  }
  const Position usual = config.type == ModelType::decoder ? Position::rope : Position::sinusoidal;
  problems.require(!config.rope_scaling || config.encoder.position == Position::rope ||
                       config.decoder.position.value_or(usual) == Position::rope,
                   "/rope_scaling", "absent, since no position is rope", "");
  problems.require(config.position_shift_max >= 0 && config.position_shift_max < config.max_positions,
                   "/position_shift_max", fmt::format("0, or less than model.max_positions ({})", config.max_positions),
                   std::to_string(config.position_shift_max));
  const auto counts_from_the_start = [&](std::optional<Position> position) {
    const Position own = position.value_or(usual);
    return own == Position::sinusoidal || own == Position::sinusoidal_fairseq || own == Position::learned;
  };
  problems.require(config.position_shift_max == 0 ||
                       (counts_from_the_start(config.decoder.position) &&
                        (config.type == ModelType::decoder || counts_from_the_start(config.encoder.position))),
                   "/position_shift_max", "0 unless all positions are sinusoidal, sinusoidal_fairseq or learned",
                   std::to_string(config.position_shift_max),
                   "remove it: other positions do not change when they are shifted");
  if (!problems.all().empty()) return;
  const std::int64_t width = config.width.value_or(base.width), heads = config.heads.value_or(base.heads);
  const std::int64_t kv_heads = config.kv_heads.value_or(config.heads ? heads : base.kv_heads);
  if (width == 0 || heads == 0) return;  // resolve() names what is missing
  problems.require(config.head_size || width % heads == 0, "/heads",
                   fmt::format("a divisor of model.width ({}), unless model.head_size is set", width), text_of(heads));
  problems.require(kv_heads == 0 || heads % kv_heads == 0, "/kv_heads",
                   fmt::format("a divisor of model.heads ({})", heads), text_of(kv_heads));
  problems.require(width % 2 == 0, "/width", "an even number", text_of(width));
  problems.require(config.head_size.value_or(width / heads) % 2 == 0, "/head_size", "an even number",
                   text_of(config.head_size.value_or(width / heads)));
  problems.require(heads * config.head_size.value_or(width / heads) <= most_size, "/head_size",
                   fmt::format("at most {} when multiplied by model.heads", most_size),
                   text_of(heads * config.head_size.value_or(width / heads)));
}

namespace {

/// In fp64, which cannot overflow. Counts matrices alone, since all else is small.
double parameters_of(const Architecture& shape) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double width = real(shape.width), heads = real(shape.heads) * real(shape.head_size),
               kv_heads = real(shape.kv_heads) * real(shape.head_size), ff = real(shape.ff),
               layers = real(shape.encoder_layers) + 2 * real(shape.decoder_layers);
  const double learned = shape.uses(Position::learned) ? 2 * real(shape.max_positions) : 0;
  return width * (3 * real(shape.vocabulary.rows) + learned + layers * (2 * heads + 2 * kv_heads + 3 * ff));
}

void require_ids(const std::optional<TokenIds>& ids, std::int64_t pieces) {
  if (!ids) return;
  const std::pair<const char*, std::optional<std::int64_t>> all[] = {
      {"eos", ids->eos}, {"unk", ids->unk}, {"bos", ids->bos}, {"pad", ids->pad}, {"start", ids->start}};
  for (const auto& [key, id] : all) {
    if (id && *id >= pieces)
      throw_error(Fault::config, fmt::format("model.token_ids.{}", key),
                  fmt::format("an id below {}, the number of pieces", pieces), std::to_string(*id),
                  "correct it, or use the tokenizer of this model");
  }
}

/// Whether it has all that makes T5 v1.1.
bool is_t5(const ModelConfig& config) {
  return config.type == ModelType::encoder_decoder && config.norm == Norm::rms_norm &&
         config.norm_position == NormPosition::pre && config.activation == Activation::geglu && config.bias == false &&
         !config.qkv_bias && !config.output_bias.value_or(false) && config.encoder.position == Position::t5 &&
         config.decoder.position == Position::t5;
}

}  // namespace

bool is_plain(const Architecture& shape) {
  return share_all(shape.encoder_stacks) && share_all(shape.decoder_stacks) && !shape.embeddings_by_language;
}

bool is_plain(const ModelConfig& config) {
  return share_all(config.encoder.stacks) && share_all(config.decoder.stacks) &&
         config.embeddings.share == EmbeddingShare::all;
}

Architecture as_plain(Architecture shape) {
  shape.encoder_stacks.clear();
  shape.decoder_stacks.clear();
  if (std::exchange(shape.embeddings_by_language, false)) shape.tie_inputs = false;
  return shape;
}

ModelConfig as_plain(ModelConfig config) {
  for (SideConfig* side : {&config.encoder, &config.decoder}) {
    if (!side->stacks.empty()) side->layers = layers_of(side->stacks);
    side->stacks.clear();
  }
  if (std::exchange(config.embeddings, {}).share == EmbeddingShare::language) config.tie_inputs = false;
  return config;
}

bool Architecture::uses(Position position) const noexcept {
  return decoder_position == position || (type == ModelType::encoder_decoder && encoder_position == position);
}

double Architecture::embedding_scale() const { return scales_embeddings ? std::sqrt(static_cast<double>(width)) : 1.0; }

double Architecture::attention_scale(bool encoder) const {
  return position(encoder) == Position::t5 ? 1.0 : 1 / std::sqrt(static_cast<double>(head_size));
}

double Architecture::output_scale() const {
  return vocabulary.layout == TokenLayout::t5 && tie_embeddings ? 1 / std::sqrt(static_cast<double>(width)) : 1.0;
}

VocabularyRule vocabulary_rule(const ModelConfig& config) {
  const bool pre = config.norm_position.value_or(NormPosition::post) == NormPosition::pre;
  const TokenLayout layout = config.type == ModelType::decoder ? TokenLayout::llama
                             : is_t5(config)                   ? TokenLayout::t5
                             : pre                             ? TokenLayout::pegasus
                                                               : TokenLayout::marian;
  return {layout, config.vocab_multiple, config.token_ids, config.vocab_size.value_or(0)};
}

std::vector<Preset> presets_of(ModelType type) {
  std::vector<Preset> found;
  for (const auto& [preset, sizes] : presets)
    if (sizes.type == type) found.push_back(preset);
  return found;
}

ModelConfig with_sizes(ModelConfig config, Preset preset) {
  config.preset = preset;
  for (std::optional<std::int64_t>* size : {&config.width, &config.ff, &config.heads, &config.kv_heads,
                                            &config.head_size, &config.encoder.layers, &config.decoder.layers})
    size->reset();
  for (SideConfig* side : {&config.encoder, &config.decoder}) side->stacks.clear();
  return config;
}

std::int64_t width_of(const ModelConfig& config) { return config.width.value_or(sizes_of(config).width); }

Architecture resolve(const ModelConfig& config, std::int64_t pieces) {
  const bool translation = config.type == ModelType::encoder_decoder;
  const Sizes base = sizes_of(config);
  const auto need = [](std::optional<std::int64_t> value, std::int64_t preset, const char* key) {
    const std::int64_t result = value.value_or(preset);
    if (result <= 0)
      throw_claim(Fault::config, fmt::format("model.{} is missing", key), fmt::format("model.{}", key),
                  "a positive size", "none", "set it, or choose a model.preset that defines it");
    return result;
  };
  if (config.vocab_size && *config.vocab_size < pieces)
    throw_claim(
        Fault::config,
        fmt::format("model.vocab_size ({}) is below the tokenizer's number of pieces ({})", *config.vocab_size, pieces),
        "model.vocab_size", fmt::format("at least {} pieces, as in the tokenizer", pieces),
        std::to_string(*config.vocab_size), "raise or remove model.vocab_size");
  pieces = std::max(pieces, config.vocab_size.value_or(0));
  Architecture shape;
  shape.type = config.type;
  if (pieces <= 0) pieces = need(config.vocab_size, config.preset == Preset::mistral_7b ? 32000 : 0, "vocab_size");
  if (pieces > most_size)
    throw_error(Fault::config, "model.vocab_size", fmt::format("a vocabulary of at most {} pieces", most_size),
                std::to_string(pieces));
  shape.vocabulary = vocabulary_of(vocabulary_rule(config), pieces);
  require_ids(config.token_ids, pieces);
  shape.width = need(config.width, base.width, "width");
  shape.ff = need(config.ff, base.ff, "ff");
  shape.heads = need(config.heads, base.heads, "heads");
  shape.kv_heads = config.kv_heads.value_or(config.heads || base.kv_heads == 0 ? shape.heads : base.kv_heads);
  shape.head_size = config.head_size.value_or(shape.width / shape.heads);
  shape.encoder_stacks = config.encoder.stacks;
  shape.decoder_stacks = config.decoder.stacks;
  const auto layers = [&](const SideConfig& side, std::int64_t preset, const char* key) {
    return side.stacks.empty() ? need(side.layers, preset, key) : layers_of(side.stacks);
  };
  shape.encoder_layers = translation ? layers(config.encoder, base.encoder_layers, "encoder.layers") : 0;
  shape.decoder_layers = layers(config.decoder, base.decoder_layers, "decoder.layers");
  shape.window = config.window;
  if (config.preset == Preset::mistral_7b && !shape.window) shape.window = 4096;
  shape.prefix_lm = config.prefix_lm;
  shape.rope_theta = config.rope_theta;
  shape.rope_scaling = config.rope_scaling;
  shape.max_positions = config.max_positions;
  shape.position_shift_max = config.position_shift_max;
  shape.norm = config.norm.value_or(translation ? Norm::layer_norm : Norm::rms_norm);
  shape.norm_epsilon = config.norm_epsilon.value_or(translation && shape.norm == Norm::rms_norm ? 1e-6 : 1e-5);
  shape.norm_position = config.norm_position.value_or(translation ? NormPosition::post : NormPosition::pre);
  shape.activation = config.activation.value_or(translation ? Activation::relu : Activation::swiglu);
  const Position position = translation ? Position::sinusoidal : Position::rope;
  shape.encoder_position = config.encoder.position.value_or(position);
  shape.decoder_position = config.decoder.position.value_or(position);
  shape.bias = config.bias.value_or(translation);
  shape.qkv_bias = config.qkv_bias;
  shape.output_bias = config.output_bias.value_or(shape.bias);
  shape.tie_embeddings = config.tie_embeddings.value_or(translation);
  shape.tie_inputs = config.tie_inputs.value_or(shape.tie_embeddings);
  shape.embeddings_by_language = config.embeddings.share == EmbeddingShare::language;
  shape.scales_embeddings = config.embedding_scale.value_or(translation && shape.vocabulary.layout != TokenLayout::t5);
  shape.dropout = config.dropout.value_or(translation ? 0.1 : 0.0);
  shape.neftune_alpha = config.neftune_alpha;
  if (const double parameters = parameters_of(shape); !(parameters <= most_parameters))
    throw_error(Fault::config, "model", fmt::format("a model of at most {:.1e} parameters", most_parameters),
                fmt::format("about {:.1e}", parameters), "choose smaller sizes");
  constexpr std::int64_t most_angles = std::int64_t{1} << 31;
  if ((shape.uses(Position::sinusoidal) || shape.uses(Position::sinusoidal_fairseq)) &&
      shape.max_positions > most_angles / shape.width) {
    throw_error(
        Fault::config, "model.max_positions",
        fmt::format("at most {} for sinusoidal positions at model.width {}", most_angles / shape.width, shape.width),
        std::to_string(shape.max_positions), "lower model.max_positions");
  }
  return shape;
}

}  // namespace argosy::spec
