#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "core/file.hpp"
#include "data/compressed.hpp"
#include "data/text_config.hpp"
#include "data/transforms/character_noise.hpp"
#include "data/transforms/concatenate.hpp"
#include "data/transforms/context.hpp"
#include "data/transforms/denoise.hpp"
#include "data/transforms/duplicate_target.hpp"
#include "data/transforms/length_ratio.hpp"
#include "data/transforms/letter_case.hpp"
#include "data/transforms/max_length.hpp"
#include "data/transforms/numerals.hpp"
#include "data/transforms/prefix.hpp"
#include "data/transforms/punctuation.hpp"
#include "data/transforms/repetition.hpp"
#include "data/transforms/script.hpp"
#include "data/transforms/subword.hpp"
#include "data/transforms/switchout.hpp"
#include "data/transforms/terminal_punctuation.hpp"
#include "data/transforms/token_drop.hpp"
#include "data/transforms/token_mask.hpp"

/// Sections `data` and `batch` of the configuration, which count, preprocess and train read alike. Plain values, no
/// torch, no MPI. Paths are as typed (relative to the working directory).
namespace argosy::data {

enum class TokenizerType { unigram, bpe, char_, word };  // NOLINT(readability-identifier-naming): `char` is a keyword
BOOST_DESCRIBE_ENUM(TokenizerType, unigram, bpe, char_, word)
enum class Normalizer { nmt_nfkc, identity };
BOOST_DESCRIBE_ENUM(Normalizer, nmt_nfkc, identity)
enum class BatchUnit { padded_tokens, examples };
BOOST_DESCRIBE_ENUM(BatchUnit, padded_tokens, examples)
enum class DocumentCut { split, whole };
BOOST_DESCRIBE_ENUM(DocumentCut, split, whole)

enum class DataMode { prepared, online };
BOOST_DESCRIBE_ENUM(DataMode, prepared, online)
enum class Oversized { skip, truncate, error };
BOOST_DESCRIBE_ENUM(Oversized, skip, truncate, error)
enum class Directions { forward, both };
BOOST_DESCRIBE_ENUM(Directions, forward, both)

/// All that can be configured, each by its name and with keys of its own.
using TransformConfig = config::Tagged<MaxLength, Subword, LengthRatio, Repetition, TerminalPunctuation, Numerals,
                                       Punctuation, Script, DuplicateTarget, LetterCase, CharacterNoise, Concatenate,
                                       Prefix, Switchout, TokenDrop, TokenMask, Denoise, Context>;

struct CorpusConfig {
  std::string name{};
  std::vector<std::string> languages{};
  config::StringOrList source{};
  std::optional<config::StringOrList> target{};  // of pairs in two files
  std::optional<TextFormat> format{};
  FieldsConfig fields{};
  Directions directions = Directions::forward;
  double weight = 1.0;
  config::Period start{};                       // drawn from here on
  std::optional<config::Period> end{};          // and up to here
  DocumentUnit documents = DocumentUnit::line;  // language models only
  std::vector<TransformConfig> transforms{};
  std::vector<std::string> source_prefix{};  // as the transform prefix, after the listed ones
  double prefix_probability = 1;
};
BOOST_DESCRIBE_STRUCT(CorpusConfig, (),
                      (name, languages, source, target, format, fields, directions, weight, start, end, documents,
                       transforms, source_prefix, prefix_probability))

struct TokenizerTraining {
  TokenizerType type = TokenizerType::unigram;
  std::int64_t vocab_size = 8000;
  double character_coverage = 1.0;
  std::int64_t sample_lines = 60000;
  std::optional<bool> byte_fallback{};
  std::optional<Normalizer> normalizer{};
  std::vector<std::string> symbols{};  // pieces that are never cut, besides those of the transforms
};
BOOST_DESCRIBE_STRUCT(TokenizerTraining, (),
                      (type, vocab_size, character_coverage, sample_lines, byte_fallback, normalizer, symbols))

struct SplitConfig {
  double train = 0.99, validation = 0.01;  // shares of tgt_tokens, cut at document ends
};
BOOST_DESCRIBE_STRUCT(SplitConfig, (), (train, validation))

struct DataConfig {
  std::string tokenizer;  // SentencePiece model file
  std::string shards;     // folder of token shards
  DataMode mode = DataMode::prepared;
  std::optional<std::string> cache;  // <run_dir>/cache
  std::int64_t workers = 2;
  double temperature = 1.0;
  std::vector<CorpusConfig> corpora;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::reject;
  BrokenRecords broken_records = BrokenRecords::reject;
  std::optional<std::int64_t> unpacked_limit{};  // bytes
  std::optional<TokenizerTraining> tokenizer_training;
  std::optional<SplitConfig> split;
};
BOOST_DESCRIBE_STRUCT(DataConfig, (),
                      (tokenizer, shards, mode, cache, workers, temperature, corpora, invalid_utf8, broken_records,
                       unpacked_limit, tokenizer_training, split))

struct BatchConfig {
  BatchUnit unit = BatchUnit::padded_tokens;
  std::optional<std::int64_t> global_size{};
  config::OrAuto<std::int64_t> micro_size{};   // auto: plan::choose_micro_size
  std::optional<std::int64_t> accumulation{};  // two of the three suffice
  std::int64_t pool = 100000;                  // examples
  std::optional<std::int64_t> width_multiple;  // absent: 8 if attention adds a bias to scores, else 1
  std::int64_t sequence_length = 2048;         // language models: row width
  std::optional<bool> packing;                 // true for language models, false for pairs
  DocumentCut documents = DocumentCut::split;
  Oversized oversized = Oversized::skip;
};
BOOST_DESCRIBE_STRUCT(BatchConfig, (),
                      (unit, global_size, micro_size, accumulation, pool, width_multiple, sequence_length, packing,
                       documents, oversized))

std::span<const config::KeyText> key_texts(const CorpusConfig&);
std::span<const config::KeyText> key_texts(const TokenizerTraining&);
std::span<const config::KeyText> key_texts(const SplitConfig&);
std::span<const config::KeyText> key_texts(const DataConfig&);
std::span<const config::KeyText> key_texts(const BatchConfig&);
void validate(const CorpusConfig&, config::Problems&);
void validate(const TokenizerTraining&, config::Problems&);
void validate(const SplitConfig&, config::Problems&);
void validate(const DataConfig&, config::Problems&);
void validate(const BatchConfig&, config::Problems&);

/// Whether the corpus has a source and a target side; else it is text for a language model. It has both if a target
/// file is named, or if its records (tsv, jsonl) are in two languages.
[[nodiscard]] bool has_pairs(const CorpusConfig& corpus);
/// Puts two corpora in the place of each with directions `both`: itself, and after it `<name>-reversed`, with the sides
/// of the same files exchanged.
void expand_directions(DataConfig& config);
/// What the texts of a corpus say.
[[nodiscard]] TextRules rules_of(const CorpusConfig& corpus, const DataConfig& data);
/// The transforms of a corpus, with the one that its key source_prefix stands for.
[[nodiscard]] std::vector<TransformConfig> transforms_of(const CorpusConfig& corpus);
/// Whole pieces before each line of a side.
struct Prefixes {
  std::vector<std::string> source{}, target{};
  bool operator==(const Prefixes&) const = default;
};
/// Those that the transforms of a corpus put there, with its languages filled in.
[[nodiscard]] Prefixes prefixes_of(const CorpusConfig& corpus);
/// What a tokenizer that is trained has as whole pieces: tokenizer_training.symbols and the pieces that transforms
/// need, in ascending order. Special pieces are not among them: it has these anyway.
[[nodiscard]] std::vector<std::string> symbols_of(const DataConfig& config);
/// data.cache, or <run_dir>/cache, or the user's cache folder where neither is named.
[[nodiscard]] Path cache_folder(const DataConfig& config, const Path& run_dir);
/// The training with byte_fallback and normalizer decided: what the corpora need.
[[nodiscard]] TokenizerTraining resolve_training(TokenizerTraining training, bool pairs);
/// How texts of compressed files are unpacked, in that folder.
[[nodiscard]] UnpackSettings unpack_settings(const DataConfig& config, const Path& cache);
/// ${XDG_CACHE_HOME:-~/.cache}/argosy.
[[nodiscard]] Path user_cache_folder();

/// Sizes of a step on a given world, all in `unit` of the configuration.
struct StepSizes {
  std::int64_t global_size = 0, micro_size = 0;
  int micro_batches = 0;  // of a step, over all ranks: global_size / micro_size
  int accumulation = 0;   // micro-batches of a step on one rank: ceil(micro_batches / world)
  double idle_share = 0;  // of the ranks' slots, empty because world does not divide micro_batches
};

/// Completes global_size = micro_size · accumulation · world. Throws Error{config} when fewer than two of the three are
/// given, when the three disagree, or when global_size is no multiple of micro_size (naming the nearest values that
/// are).
[[nodiscard]] StepSizes resolve_sizes(const BatchConfig& config, int world);

}  // namespace argosy::data
