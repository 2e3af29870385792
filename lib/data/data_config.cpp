#include "data/data_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const CorpusConfig&) {
  static constexpr config::KeyText texts[] = {
      {"name", "name of the corpus in logs and file names: letters, digits, - _ ."},
      {"languages",
       "language codes of source and target, or of a language model's text. Two codes make the records of tsv and "
       "jsonl pairs"},
      {"source",
       "text file, or a list of them; * ? [a-z] match parts of a name and ** any folders. Files that are compressed "
       "with gzip or zstd are recognized by their content"},
      {"target",
       "text file whose line i translates line i of the source, or a list of them, one for each source; absent for a "
       "language model, and for tsv and jsonl"},
      {"format",
       "text (a line is an example), tsv (columns between tabs, nothing is quoted) or jsonl (one JSON object a line); "
       "default: by the ending of the first name of source, .tsv, .jsonl or .ndjson, also before .gz and .zst"},
      {"fields", "where records of tsv (\"2\": column 2) or jsonl (\"/text\": a JSON pointer) have their texts"},
      {"directions",
       "both: train on the pairs in both directions, as on a second corpus NAME-reversed whose source is the target of "
       "this one; transforms then see the sides exchanged, {from} and {to} of a prefix too"},
      {"weight", "multiplies the corpus's share of tgt_tokens"},
      {"start",
       "train on this corpus from here on: steps, or with t tgt_tokens, with e epochs; takes effect where a pool "
       "begins"},
      {"end", "train on this corpus up to here; absent: to the end of training"},
      {"documents",
       "language model: what a document is: line (each line), blank_line (lines up to an empty one; line feeds and "
       "indentation are kept), file (a whole file, byte for byte) or record (a record of tsv or jsonl)"},
      {"transforms", "applied in order to each example; lib/data/README.md has a table of them"},
      {"source_prefix",
       "pieces put before each source, after all transforms: [\"<to_{to}>\"]; a tokenizer that is trained gets them"},
      {"prefix_probability", "share of the examples that training gives source_prefix, 0 to 1"},
  };
  return texts;
}

std::span<const config::KeyText> key_texts(const TokenizerTraining&) {
  static constexpr config::KeyText texts[] = {
      {"type", "SentencePiece model: unigram, bpe, char (each character a piece) or word (each word a piece)"},
      {"vocab_size", "pieces, special ones included; the model pads its vocabulary to model.vocab_multiple"},
      {"character_coverage", "share of the characters of the text that become pieces"},
      {"sample_lines", "lines drawn from all corpora, both sides, to train on"},
      {"byte_fallback",
       "256 of the pieces are the bytes, so that no character is unknown; default: true for language models, false for "
       "pairs; not with the type word"},
      {"normalizer",
       "nmt_nfkc: characters that look alike become one, line feeds and tabs become spaces, and only one space is "
       "kept; "
       "identity: with byte_fallback, the text comes back byte for byte; default: identity for language models, "
       "nmt_nfkc for pairs and for the type word"},
      {"symbols", "pieces that are never cut, such as [\"<news>\"]; those that transforms need are added"},
  };
  return texts;
}

std::span<const config::KeyText> key_texts(const SplitConfig&) {
  static constexpr config::KeyText texts[] = {
      {"train", "share of each corpus's tgt_tokens to train on, from its start"},
      {"validation", "share held out after that part; both parts end where a document ends"},
  };
  return texts;
}

std::span<const config::KeyText> key_texts(const DataConfig&) {
  static constexpr config::KeyText texts[] = {
      {"tokenizer",
       "a SentencePiece model, which preprocess makes if tokenizer_training is set, or a tokenizer.json of Hugging "
       "Face; with {language} in its name, one for each language, for a model with model.embeddings by language"},
      {"shards", "folder of the token shards that preprocess writes and train reads"},
      {"mode",
       "prepared: preprocess tokenizes the text, and train reads ids; online: train tokenizes the text that it draws, "
       "which stays in its files, and begins with what preprocess does where that is not done yet. Both give the same "
       "batches"},
      {"cache",
       "folder for counts, trained tokenizers and the texts of compressed files, which later calls reuse for the same "
       "text; default: <run_dir>/cache"},
      {"workers", "number of threads with which each rank tokenizes, and assembles batches while it trains"},
      {"temperature",
       "a corpus's share is its weight times its tgt_tokens^(1/temperature); 1: proportional to its size; large: "
       "nearly equal shares"},
      {"corpora", "the texts"},
      {"invalid_utf8",
       "reject: stop at the first invalid byte and report its place; replace: put U+FFFD in place of each invalid "
       "byte"},
      {"broken_records",
       "reject: stop at the first record of tsv or jsonl that cannot be read, and report its place; skip: leave such "
       "records out and count them as broken"},
      {"unpacked_limit",
       "bytes that the text of a compressed file may have; default: 1000 times the size of the file, and 1 GiB"},
      {"tokenizer_training", "train the tokenizer on the corpora; absent: the file must exist"},
      {"split", "hold out the end of each corpus; absent: train on all of it"},
  };
  return texts;
}

std::span<const config::KeyText> key_texts(const BatchConfig&) {
  static constexpr config::KeyText texts[] = {
      {"unit", "unit of global_size and micro_size: padded_tokens (rows x width) or examples (rows)"},
      {"global_size", "size of a step over all ranks"},
      {"micro_size",
       "size of a micro-batch: one forward and backward on one rank; auto: the largest that divides global_size and "
       "whose forecast, with rows as long as the model allows, stays 10 % below the memory of a rank"},
      {"accumulation", "micro-batches of a step on each rank"},
      {"pool",
       "number of examples that are sorted together by length; if 64 steps, or 32 micro-batches of each route through "
       "the model, have more examples, that number is used"},
      {"width_multiple",
       "widths of rows are rounded up to a multiple of this; default: 8 where attention adds numbers to its scores "
       "(positions t5 and alibi), else 1"},
      {"sequence_length", "language model: width of a row"},
      {"packing",
       "language model: true (default): documents end to end in a row; false: one document, or a part of one, in each "
       "row"},
      {"documents",
       "packed rows: split: a document is cut where its row is full; whole: a document that fits in one row is not "
       "cut"},
      {"oversized",
       "a pair that alone exceeds micro_size: skip: leave it out; truncate: cut its longer side, or both; error: stop"},
  };
  return texts;
}

namespace {

constexpr std::size_t longest_given_name_bytes = 200;  // more is put behind it: recipe, number, ending

/// Pieces that a trained tokenizer has in any case.
constexpr std::string_view special_pieces[] = {"<unk>", "<s>", "</s>", "<pad>"};

bool is_special_piece(std::string_view piece) { return std::ranges::count(special_pieces, piece) > 0; }

constexpr const char* stages_in_order = "transforms of text first, then at most one subword, then transforms of pieces";

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= longest_given_name_bytes && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
             std::string::npos;
}

/// Sizes have an upper bound where they are configured, so that sums and products of them cannot overflow later.
constexpr std::int64_t most_pieces = std::numeric_limits<std::int32_t>::max();  // of a row: shards count in 32 bits
constexpr std::int64_t most_vocabulary = 1 << 24, most_micro_batches = 1 << 30;
constexpr std::int64_t most_accumulation = 1 << 14;  // a step is planned operation by operation
constexpr std::int64_t most_examples = std::int64_t{1} << 53, most_step_size = std::int64_t{1} << 40;

void require_between(config::Problems& problems, std::string_view pointer, std::int64_t value, std::int64_t least,
                     std::int64_t most) {
  problems.require(value >= least && value <= most, pointer, fmt::format("{} to {}", least, most),
                   fmt::format("{}", value));
}

std::string reversed_name(const CorpusConfig& corpus) { return corpus.name + "-reversed"; }

CorpusConfig reversed(CorpusConfig corpus) {
  const TextFormat format = rules_of(corpus, {}).format;
  corpus.name = reversed_name(corpus);
  std::ranges::reverse(corpus.languages);
  if (corpus.target) {
    std::swap(corpus.source, *corpus.target);
  } else {
    const bool columns = format == TextFormat::tsv;
    corpus.format = format;
    corpus.fields.source = std::exchange(corpus.fields.target, corpus.fields.source.value_or(columns ? "1" : "/source"))
                               .value_or(columns ? "2" : "/target");
  }
  for (TransformConfig& transform : corpus.transforms)  // the scripts of the languages
    if (auto* script = std::get_if<Script>(&transform.value)) std::swap(script->source, script->target);
  return corpus;
}

/// Says which multiples of `of` are next to `size`.
std::string try_neighbors(std::int64_t size, std::int64_t of) {
  const std::int64_t below = size / of * of;
  return below > 0 ? fmt::format("try {} or {}", below, below + of) : fmt::format("try {}", of);
}

}  // namespace

namespace {

/// Whether a transform is for corpora with source and target only.
template <class T>
constexpr bool needs_pairs = requires {
  T::needs_pairs;
};

/// What only the whole corpus shows: its languages, and whether it has a source.
void validate_prefixes(const CorpusConfig& config, config::Problems& problems) {
  for (std::size_t i = 0; i < config.source_prefix.size(); ++i)
    require_piece(problems, fmt::format("/source_prefix/{}", i), config.source_prefix[i]);
  require_in(problems, "/prefix_probability", config.prefix_probability, 0., 1.);
  bool names_languages = false, before_source = false;
  for (const TransformConfig& transform : transforms_of(config)) {
    const auto* prefix = std::get_if<Prefix>(&transform.value);
    names_languages = names_languages || (prefix != nullptr && prefix->names_languages());
    before_source = before_source || (prefix != nullptr && !prefix->source.empty());
  }
  if (names_languages && config.languages.empty())
    problems.add("/languages", "the codes that {from} and {to} of a prefix stand for", "none");
  if (before_source && !has_pairs(config))
    problems.add("/source_prefix", "a prefix of the target, since a corpus without target has no source",
                 "a prefix of the source", "use the transform prefix with its key target");
}

}  // namespace

void validate(const CorpusConfig& config, config::Problems& problems) {
  problems.require(is_file_name(config.name), "/name", "a name of at most 200 letters, digits, '-', '_' and '.'",
                   config.name);
  const TextRules rules = rules_of(config, {});
  validate_text(rules, config.source, config.target, problems);
  constexpr double least_weight = 1e-9, most_weight = 1e9;  // powers and sums of them stay finite and above 0
  problems.require(config.weight >= least_weight && config.weight <= most_weight, "/weight",
                   fmt::format("a number from {} to {}", least_weight, most_weight), fmt::format("{}", config.weight));
  problems.require(!config.end || config.end->unit != config.start.unit || config.end->count > config.start.count,
                   "/end", fmt::format("after start ({})", config.start.text()),
                   config.end ? config.end->text() : "none");
  problems.require(rules.pairs || config.directions == Directions::forward, "/directions",
                   "forward, since the corpus has no target", "both");
  problems.require(config.languages.empty() || config.languages.size() == (rules.pairs ? 2 : 1), "/languages",
                   rules.pairs ? "two codes: source and target" : "one code",
                   fmt::format("{}", config.languages.size()));
  validate_prefixes(config, problems);
  Stage last = Stage::text;
  bool tokenizes = false;
  for (std::size_t i = 0; i < config.transforms.size(); ++i) {
    const auto [stage, type, pairs_only] = std::visit(
        []<class T>(const T&) {
          return std::tuple{T::stage, T::type, needs_pairs<T>};
        },
        config.transforms[i].value);
    if (pairs_only && !rules.pairs)
      problems.add(fmt::format("/transforms/{}", i), "a transform for one side, since the corpus has no target", type,
                   "remove it from the list");
    if (stage < last || (stage == Stage::tokenize && tokenizes))
      problems.add(fmt::format("/transforms/{}", i), stages_in_order, type, "move it to its place in the list");
    last = std::max(last, stage);
    tokenizes = tokenizes || stage == Stage::tokenize;
  }
}

void validate(const TokenizerTraining& config, config::Problems& problems) {
  require_between(problems, "/vocab_size", config.vocab_size, 8, most_vocabulary);
  problems.require(config.character_coverage > 0 && config.character_coverage <= 1, "/character_coverage",
                   "a share above 0, at most 1", fmt::format("{}", config.character_coverage));
  problems.require(config.sample_lines >= 1, "/sample_lines", "at least 1", fmt::format("{}", config.sample_lines));
  const bool words = config.type == TokenizerType::word;
  problems.require(!words || !config.byte_fallback.value_or(false), "/byte_fallback", "false with the type word",
                   "true");
  problems.require(!words || config.normalizer != Normalizer::identity, "/normalizer", "nmt_nfkc with the type word",
                   "identity");
  for (std::size_t i = 0; i < config.symbols.size(); ++i) {
    const std::string pointer = fmt::format("/symbols/{}", i);
    require_piece(problems, pointer, config.symbols[i]);
    problems.require(!is_special_piece(config.symbols[i]), pointer, "a piece that is not special", config.symbols[i]);
  }
}

void validate(const SplitConfig& config, config::Problems& problems) {
  problems.require(config.train > 0 && config.train <= 1, "/train", "a share above 0, at most 1",
                   fmt::format("{}", config.train));
  const double most = config.train > 0 && config.train <= 1 ? 1 - config.train : 1;
  problems.require(config.validation >= 0 && config.validation <= most + 1e-9, "/validation",
                   fmt::format("a share from 0 to {:.6g} (1 - train)", most), fmt::format("{}", config.validation));
}

void validate(const DataConfig& config, config::Problems& problems) {
  problems.require(!config.tokenizer.empty(), "/tokenizer", "a SentencePiece model or a tokenizer.json", "none");
  problems.require(Path{config.tokenizer}.filename().native().size() <= longest_given_name_bytes, "/tokenizer",
                   "a file name of at most 200 bytes", Path{config.tokenizer}.filename().string());
  problems.require(!config.shards.empty(), "/shards", "a folder for token shards", "none");
  require_between(problems, "/workers", config.workers, 1, 256);
  constexpr double least_temperature = 0.1;  // the tenth power of 2^53 target tokens is finite
  problems.require(std::isfinite(config.temperature) && config.temperature >= least_temperature, "/temperature",
                   fmt::format("a number of at least {}", least_temperature), fmt::format("{}", config.temperature));
  problems.require(config.unpacked_limit.value_or(1) >= 1, "/unpacked_limit", "at least 1",
                   fmt::format("{}", config.unpacked_limit.value_or(1)));
  std::set<std::string> names;
  for (std::size_t i = 0; i < config.corpora.size(); ++i) {
    const CorpusConfig& corpus = config.corpora[i];
    std::vector<std::string> own{corpus.name};
    if (corpus.directions == Directions::both) own.push_back(reversed_name(corpus));
    for (const std::string& name : own)
      problems.require(names.insert(name).second, fmt::format("/corpora/{}/name", i), "a name that no other corpus has",
                       name);
    problems.require(has_pairs(corpus) == has_pairs(config.corpora.front()), fmt::format("/corpora/{}", i),
                     "of pairs in all corpora or in none (a target, or two languages in tsv and jsonl)", "a mixture");
  }
}

void validate(const BatchConfig& config, config::Problems& problems) {
  constexpr std::int64_t most_multiple = 1 << 16;
  const auto positive = [&](const char* pointer, const std::optional<std::int64_t>& value, std::int64_t most) {
    if (value) require_between(problems, pointer, *value, 1, most);
  };
  positive("/global_size", config.global_size, most_step_size);
  positive("/micro_size", config.micro_size, most_pieces);
  positive("/accumulation", config.accumulation, most_accumulation);
  positive("/width_multiple", config.width_multiple, most_multiple);
  require_between(problems, "/pool", config.pool, 1, most_examples);
  require_between(problems, "/sequence_length", config.sequence_length, 2, most_pieces);
  if (config.micro_size.is_auto) {
    problems.require(config.global_size.has_value(), "/global_size", "a number, since batch.micro_size is auto",
                     "none");
    problems.require(!config.accumulation, "/accumulation",
                     "absent, since batch.micro_size is auto and decides how many micro-batches make up global_size",
                     fmt::format("{}", config.accumulation.value_or(0)));
  }
  if (config.global_size && config.micro_size) {
    const std::int64_t global = *config.global_size, micro = *config.micro_size;
    const bool possible = global >= 1 && global <= most_step_size && micro >= 1 && micro <= most_pieces;
    if (possible && global % micro != 0)
      problems.add("/global_size", fmt::format("a multiple of batch.micro_size ({})", micro), fmt::format("{}", global),
                   try_neighbors(global, micro));
  }
}

void expand_directions(DataConfig& config) {
  std::vector<CorpusConfig> corpora;
  corpora.reserve(2 * config.corpora.size());
  for (CorpusConfig& corpus : config.corpora) {
    const bool both = std::exchange(corpus.directions, Directions::forward) == Directions::both;
    corpora.push_back(std::move(corpus));
    if (both) corpora.push_back(reversed(corpora.back()));
  }
  config.corpora = std::move(corpora);
}

std::vector<TransformConfig> transforms_of(const CorpusConfig& corpus) {
  std::vector<TransformConfig> transforms = corpus.transforms;
  if (!corpus.source_prefix.empty())
    transforms.push_back({Prefix{.source = corpus.source_prefix, .probability = corpus.prefix_probability}});
  return transforms;
}

Prefixes prefixes_of(const CorpusConfig& corpus) {
  Prefixes prefixes;
  for (const TransformConfig& transform : transforms_of(corpus)) {
    const auto* prefix = std::get_if<Prefix>(&transform.value);
    if (prefix == nullptr) continue;
    const Prefix filled = prefix->filled(corpus.languages);
    prefixes.source.insert(prefixes.source.begin(), filled.source.begin(), filled.source.end());
    prefixes.target.insert(prefixes.target.begin(), filled.target.begin(), filled.target.end());
  }
  return prefixes;
}

std::vector<std::string> symbols_of(const DataConfig& config) {
  std::set<std::string> symbols;
  if (config.tokenizer_training)
    symbols.insert(config.tokenizer_training->symbols.begin(), config.tokenizer_training->symbols.end());
  const auto add = [&](const auto& transform, const std::vector<std::string>& languages) {
    if constexpr (requires { transform.pieces(languages); })
      for (const std::string& piece : transform.pieces(languages)) symbols.insert(piece);
  };
  for (const CorpusConfig& corpus : config.corpora)
    for (const TransformConfig& transform : transforms_of(corpus))
      std::visit([&](const auto& chosen) { add(chosen, corpus.languages); }, transform.value);
  std::erase_if(symbols, is_special_piece);
  return {symbols.begin(), symbols.end()};
}

Path cache_folder(const DataConfig& config, const Path& run_dir) {
  if (config.cache) return *config.cache;
  return run_dir.empty() ? user_cache_folder() : run_dir / "cache";
}

TokenizerTraining resolve_training(TokenizerTraining training, bool pairs) {
  const bool exact = !pairs && training.type != TokenizerType::word;
  if (!training.byte_fallback) training.byte_fallback = exact;
  if (!training.normalizer) training.normalizer = exact ? Normalizer::identity : Normalizer::nmt_nfkc;
  return training;
}

UnpackSettings unpack_settings(const DataConfig& config, const Path& cache) {
  return {.folder = cache / "unpacked", .limit = config.unpacked_limit};
}

bool has_pairs(const CorpusConfig& corpus) {
  const bool records = format_of(corpus.format, corpus.source, corpus.target.has_value()) != TextFormat::text;
  return corpus.target.has_value() || (records && corpus.languages.size() == 2);
}

TextRules rules_of(const CorpusConfig& corpus, const DataConfig& data) {
  return {.format = format_of(corpus.format, corpus.source, corpus.target.has_value()),
          .pairs = has_pairs(corpus),
          .fields = corpus.fields,
          .documents = corpus.documents,
          .invalid_utf8 = data.invalid_utf8,
          .broken_records = data.broken_records};
}

Path user_cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return Path{cache} / "argosy";
  const char* home = std::getenv("HOME");
  return Path{home != nullptr ? home : "."} / ".cache" / "argosy";
}

StepSizes resolve_sizes(const BatchConfig& config, int world) {
  const auto refuse = [&](std::string wanted, std::string got, std::string remedy) {
    throw_error(Fault::config, "batch", std::move(wanted), std::move(got), std::move(remedy));
  };
  const int given = config.global_size.has_value() + config.micro_size.has_value() + config.accumulation.has_value();
  if (given < 2) refuse("two of global_size, micro_size and accumulation", fmt::format("{}", given), "set one more");

  // In fp64, which cannot overflow; everything below stays under these bounds.
  const auto require_at_most = [&](double size, std::int64_t most, const char* what) {
    if (size <= static_cast<double>(most)) return;
    refuse(fmt::format("a step of at most {} {}", most, what), fmt::format("{:.0f}", size),
           "correct batch.global_size, batch.micro_size and batch.accumulation");
  };
  const auto real = [](const std::optional<std::int64_t>& value) { return static_cast<double>(value.value_or(1)); };
  if (config.accumulation) {
    require_at_most(real(config.accumulation) * world, most_micro_batches, "micro-batches");
    if (!config.global_size)
      require_at_most(real(config.micro_size) * real(config.accumulation) * world, most_step_size, "positions");
  }

  const std::int64_t slots = config.accumulation.value_or(1) * world;
  if (config.global_size) {
    const std::int64_t global = *config.global_size, of = config.micro_size.value_or(slots);
    if (global % of != 0)
      throw_error(Fault::config, "batch.global_size",
                  config.micro_size
                      ? fmt::format("a multiple of batch.micro_size ({})", of)
                      : fmt::format("a multiple of batch.accumulation x ranks ({} x {})", *config.accumulation, world),
                  fmt::format("{}", global), try_neighbors(global, of));
  }
  StepSizes sizes;
  sizes.micro_size = config.micro_size ? *config.micro_size : *config.global_size / slots;
  sizes.global_size = config.global_size ? *config.global_size : sizes.micro_size * slots;
  const std::int64_t micro_batches = sizes.global_size / sizes.micro_size;
  require_at_most(static_cast<double>(micro_batches), most_micro_batches, "micro-batches");
  sizes.micro_batches = narrow<int>(micro_batches);
  sizes.accumulation = (sizes.micro_batches + world - 1) / world;
  require_at_most(sizes.accumulation, most_accumulation, "micro-batches on a rank");
  sizes.idle_share = 1.0 - static_cast<double>(sizes.micro_batches) / (static_cast<double>(sizes.accumulation) * world);
  if (config.accumulation && *config.accumulation != sizes.accumulation)
    refuse(fmt::format("global_size {} = micro_size {} x accumulation x {} ranks, so accumulation {}",
                       sizes.global_size, sizes.micro_size, world, sizes.accumulation),
           fmt::format("accumulation {}", *config.accumulation),
           fmt::format("try accumulation {} or global_size {}, or leave one of the three out", sizes.accumulation,
                       sizes.micro_size * *config.accumulation * world));
  return sizes;
}

}  // namespace argosy::data
