#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "spec/activation.hpp"
#include "spec/sharing.hpp"
#include "spec/vocabulary.hpp"

/// The `model` section of the configuration. Absent sizes come from `preset`; resolve() fills in every number for the
/// rest of the code. Torch-free: it is planned and validated on a login node.
namespace argosy::spec {

enum class ModelType { decoder, encoder_decoder };
BOOST_DESCRIBE_ENUM(ModelType, decoder, encoder_decoder)
enum class Norm { layer_norm, rms_norm };
BOOST_DESCRIBE_ENUM(Norm, layer_norm, rms_norm)
enum class NormPosition { post, pre };
BOOST_DESCRIBE_ENUM(NormPosition, post, pre)
/// How a side tells positions apart. Added to the embeddings: sinusoidal (Marian's), sinusoidal_fairseq (M2M-100's),
/// learned. In self-attention: rope rotates queries and keys; alibi and t5 add to each score a number for the distance
/// of the key (positions.hpp).
enum class Position { sinusoidal, sinusoidal_fairseq, learned, rope, alibi, t5, none };
BOOST_DESCRIBE_ENUM(Position, sinusoidal, sinusoidal_fairseq, learned, rope, alibi, t5, none)
enum class RopeScalingType { llama3 };
BOOST_DESCRIBE_ENUM(RopeScalingType, llama3)
/// What the backward pass of a block recomputes instead of keeping it. activation: the product before the last matrix
/// of the feed-forward part; full: the output of the first matrix as well; block: everything but the block's input.
enum class Recompute { none, activation, full, block };
BOOST_DESCRIBE_ENUM(Recompute, none, activation, full, block)
enum class Preset { none, mt_tiny, mt_small, mt_base, mt_big, lm_tiny, lm_small, lm_medium, lm_1b, lm_3b, mistral_7b };
BOOST_DESCRIBE_ENUM(Preset, none, mt_tiny, mt_small, mt_base, mt_big, lm_tiny, lm_small, lm_medium, lm_1b, lm_3b,
                    mistral_7b)

/// Largest size, number of layers and number of parameters that a configuration may set: far above any existing model,
/// and their products fit 64 bits.
inline constexpr std::int64_t most_size = 1 << 24, most_layers = 1 << 12;
inline constexpr double most_parameters = 0x1p48;

/// all: tasks share the matrices by id. language: each language has its own.
enum class EmbeddingShare { all, language };
BOOST_DESCRIBE_ENUM(EmbeddingShare, all, language)

struct EmbeddingsConfig {
  EmbeddingShare share = EmbeddingShare::all;
  bool operator==(const EmbeddingsConfig&) const = default;
};
BOOST_DESCRIBE_STRUCT(EmbeddingsConfig, (), (share))
std::span<const config::KeyText> key_texts(const EmbeddingsConfig&);

struct SideConfig {
  std::optional<std::int64_t> layers;
  std::optional<Position> position;
  std::vector<StackConfig> stacks{};  // in the place of layers
};
BOOST_DESCRIBE_STRUCT(SideConfig, (), (layers, position, stacks))

/// Slows the rotations of long wavelengths, so that a model trained on original_max_positions reads longer inputs. The
/// defaults are those of Llama 3.1.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::llama3;
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_positions = 8192;
};
BOOST_DESCRIBE_STRUCT(RopeScaling, (), (type, factor, low_freq_factor, high_freq_factor, original_max_positions))

struct ModelConfig {
  ModelType type = ModelType::encoder_decoder;
  Preset preset = Preset::none;
  std::optional<std::int64_t> vocab_size;  // number of pieces; at least the tokenizer's
  std::optional<TokenIds> token_ids;
  std::optional<std::int64_t> width, ff, heads, kv_heads, head_size;
  std::optional<std::int64_t> window;  // attention window, decoder only
  bool prefix_lm = false;              // prompts are attended in both directions; decoder only
  std::int64_t vocab_multiple = 64;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  std::int64_t max_positions = 2048;
  std::int64_t position_shift_max = 0;  // of the positions of an example in training (SHAPE)
  std::optional<Norm> norm;
  std::optional<double> norm_epsilon;
  std::optional<NormPosition> norm_position;
  std::optional<Activation> activation;
  std::optional<bool> bias;
  bool qkv_bias = false;            // of queries, keys and values even without `bias`
  std::optional<bool> output_bias;  // of the output; default: as `bias`
  std::optional<bool> tie_embeddings;
  std::optional<bool> tie_inputs;  // default: as tie_embeddings
  EmbeddingsConfig embeddings;
  std::optional<bool> embedding_scale;
  std::optional<double> dropout;  // 0 LM, 0.1 MT: residual branches and embeddings
  double neftune_alpha = 0;       // noise on embeddings in training
  SideConfig encoder, decoder;
  bool allow_encoder_without_positions = false;
};
BOOST_DESCRIBE_STRUCT(ModelConfig, (),
                      (type, preset, vocab_size, token_ids, width, ff, heads, kv_heads, head_size, window, prefix_lm,
                       vocab_multiple, rope_theta, rope_scaling, max_positions, position_shift_max, norm, norm_epsilon,
                       norm_position, activation, bias, qkv_bias, output_bias, tie_embeddings, tie_inputs, embeddings,
                       embedding_scale, dropout, neftune_alpha, encoder, decoder, allow_encoder_without_positions))

std::span<const config::KeyText> key_texts(const SideConfig&);
std::span<const config::KeyText> key_texts(const TokenIds&);
std::span<const config::KeyText> key_texts(const RopeScaling&);
std::span<const config::KeyText> key_texts(const ModelConfig&);
void validate(const TokenIds&, config::Problems&);
void validate(const RopeScaling&, config::Problems&);
void validate(const ModelConfig&, config::Problems&);

/// A model whose numbers are all decided.
struct Architecture {
  ModelType type = ModelType::encoder_decoder;
  Vocabulary vocabulary;
  std::int64_t width = 0, ff = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t encoder_layers = 0, decoder_layers = 0;          // that an example passes
  std::vector<StackConfig> encoder_stacks{}, decoder_stacks{};  // of which these layers consist; empty: none
  std::optional<std::int64_t> window;
  bool prefix_lm = false;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  std::int64_t max_positions = 2048, position_shift_max = 0;
  Norm norm = Norm::layer_norm;
  double norm_epsilon = 1e-5;
  NormPosition norm_position = NormPosition::post;
  Activation activation = Activation::relu;
  Position encoder_position = Position::sinusoidal, decoder_position = Position::sinusoidal;
  bool bias = true, qkv_bias = false, output_bias = true, scales_embeddings = true;
  bool tie_embeddings = true;  // target and output
  bool tie_inputs = true;      // source and target
  bool embeddings_by_language = false;
  double dropout = 0.0, neftune_alpha = 0.0;

  [[nodiscard]] Position position(bool encoder) const noexcept { return encoder ? encoder_position : decoder_position; }
  /// Whether a side's positions are of this kind.
  [[nodiscard]] bool uses(Position position) const noexcept;
  [[nodiscard]] double embedding_scale() const;  // √width or 1
  /// What the products of queries and keys of a side are multiplied by: head_size^-½; 1 in T5.
  [[nodiscard]] double attention_scale(bool encoder) const;
  /// What the input of the output layer is multiplied by: width^-½ in T5 if embeddings are tied, else 1.
  [[nodiscard]] double output_scale() const;
};

/// The rule for the ids of a model: Llama (decoder-only); T5 (with all that makes T5 v1.1: rms_norm, pre, geglu, no
/// biases, t5 on both sides); else Marian (post-norm) or Pegasus (pre-norm).
[[nodiscard]] VocabularyRule vocabulary_rule(const ModelConfig& config);

/// Of the configuration or its preset; 0 if neither has one.
[[nodiscard]] std::int64_t width_of(const ModelConfig& config);

/// Those of a type, by size.
[[nodiscard]] std::vector<Preset> presets_of(ModelType type);
/// The same with the sizes of a preset.
[[nodiscard]] ModelConfig with_sizes(ModelConfig config, Preset preset);

/// Whether all tasks share all of it.
[[nodiscard]] bool is_plain(const ModelConfig& config);
[[nodiscard]] bool is_plain(const Architecture& shape);
/// What one task computes.
[[nodiscard]] Architecture as_plain(Architecture shape);
[[nodiscard]] ModelConfig as_plain(ModelConfig config);

/// Fills in defaults by type and preset. pieces: of the tokenizer. Throws Error{config} if sizes are missing, or if the
/// model would have more than most_parameters.
[[nodiscard]] Architecture resolve(const ModelConfig& config, std::int64_t pieces);

}  // namespace argosy::spec
