#include "data/tokenizer_training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <set>
#include <unordered_map>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/random.hpp"
#include "data/line_reader.hpp"
#include "data/preprocess.hpp"
#include "data/record_line.hpp"
#include "data/tokenizer_files.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t sample_seed = 20240901;  // fixed: the tokenizer does not depend on the run's seed
constexpr int training_threads = 4;              // fixed: sums over threads decide bits of the scores

/// Hands lines that somebody else owns to the library.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> lines_;
  std::size_t at_ = 0;
};

namespace json = boost::json;

/// `<tokenizer>.recipe`: what a trained model file was made from, and its digest.
struct Recipe {
  std::string training, model;  // digests, hex
  bool operator==(const Recipe&) const = default;
};

Path recipe_path(const Path& tokenizer) { return tokenizer.string() + ".recipe"; }

std::string check_of(const Recipe& recipe) { return digest_of(recipe.training + recipe.model).hex(); }

std::string text_of(const Recipe& recipe) {
  return json::serialize(
             json::object{{"training", recipe.training}, {"model", recipe.model}, {"check", check_of(recipe)}}) +
         "\n";
}

std::optional<Recipe> read_recipe(const Files& files, const Path& tokenizer) {
  if (!files.exists(recipe_path(tokenizer))) return std::nullopt;
  try {
    const json::value value = json::parse(files.read_text(recipe_path(tokenizer)));
    const auto text = [&](const char* key) { return std::string{std::string_view{value.at(key).as_string()}}; };
    Recipe recipe{text("training"), text("model")};
    const bool guarded = value.as_object().size() > 2;  // recipes of the first versions carry no digest
    if (!guarded || text("check") == check_of(recipe)) return recipe;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // no JSON, or a member is missing or of another type
  }
  throw_error(Fault::corrupt, recipe_path(tokenizer).string(), "the recipe of a tokenizer, as preprocess wrote it",
              "a damaged file", "restore it, or leave data.tokenizer_training out to use the tokenizer as it is");
}

/// Adds the parts of a text between `ends`.
void add_parts(std::string_view text, const char* ends, std::vector<std::string>& to) {
  while (!text.empty()) {
    const std::size_t end = text.find_first_of(ends);
    if (end != 0) to.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// What a line of a text says. A broken record says nothing: where records are read, it is refused or counted. A
/// language model's text is cut at tabs too: SentencePiece trains on no line that has one.
void add_texts(const std::string& line, const TrainingText& text, std::vector<std::string>& to) {
  Record record;
  const TextRules& rules = text.corpus->rules;
  const char* const ends = rules.pairs ? "\n" : "\n\t";
  if (rules.format == TextFormat::text) return add_parts(line, ends, to);
  if (parse_record(line, rules, record)) return;
  if (text.source) add_parts(record.source, ends, to);
  if (text.target) add_parts(record.target, ends, to);
}

/// The files that hold a text.
std::vector<CountedFile> files_of(const TrainingText& text) {
  const CountedCorpus& corpus = *text.corpus;
  std::vector<CountedFile> found;
  if (text.source || corpus.target.empty()) found = corpus.source;  // records hold both sides
  if (text.target) found.insert(found.end(), corpus.target.begin(), corpus.target.end());
  return found;
}

/// Calls visit(text, file) for the files of all texts, for each file once.
template <class Visit>
void for_each_file(std::span<const TrainingText> texts, Visit&& visit) {
  std::set<Path> seen;
  for (const TrainingText& text : texts)
    for (const CountedFile& file : files_of(text))
      if (seen.insert(file.path).second) visit(text, file);
}

std::string cached_name(const Digest& training, std::string_view model) {
  return fmt::format("{}-{}.model", training.hex(), digest_of(model).hex());
}

/// A tokenizer to be trained.
struct Wanted {
  Path path;
  std::vector<TrainingText> texts;
  bool is_one_of_many = false;  // of a language: one that is there is kept, since others may be added
};

/// The model of a training digest, from the cache or trained now.
std::string cached_model(const Files& files, const Log& log, const PreprocessSettings& settings, const Wanted& wanted,
                         const Digest& digest, bool& trained) {
  // The name tells both digests, so that a damaged model is not taken for what was trained.
  const Path folder = settings.cache / "tokenizers";
  try {
    files.make_folders(folder);
    for (const std::string& name : files.list(folder)) {
      if (!name.starts_with(digest.hex() + "-") || name_of_partial(name)) continue;
      std::string model = files.read_text(folder / name);
      if (name == cached_name(digest, model)) return model;
      log.warn("{} is damaged; the tokenizer is trained again", (folder / name).string());
    }
  } catch (const Error& error) {  // only time is lost
    log.warn("no tokenizer is taken from the cache: {}", error.what());
  }
  const TokenizerTraining training =
      resolve_training(*settings.data.tokenizer_training, wanted.texts.front().corpus->rules.pairs);
  const std::vector<std::string> lines = sample_lines(files, wanted.texts, training.sample_lines);
  if (lines.empty())
    throw_error(Fault::data, "data.tokenizer_training", "text in the corpora", "none in the sampled lines",
                "correct data.corpora or the files, or raise data.tokenizer_training.sample_lines");
  log.info("training {}: {} pieces, on {} lines", wanted.path.string(), training.vocab_size, lines.size());
  std::string model = train_tokenizer(training, lines, settings.vocabulary.layout, symbols_of(settings.data));
  trained = true;
  try {
    files.write_atomically(folder / cached_name(digest, model), model);
  } catch (const Error& error) {
    log.warn("the tokenizer is not kept in the cache: {}", error.what());
  }
  return model;
}

[[noreturn]] void refuse_other(const Path& tokenizer) {
  throw_claim(Fault::config,
              tokenizer.string() + " is trained on other text or with other settings, and checkpoints may need it",
              tokenizer.string(), "a tokenizer trained on these corpora by data.tokenizer_training",
              "one trained on other text or with other settings",
              "leave data.tokenizer_training out to keep it, set data.tokenizer and data.shards to other paths, or "
              "replace it with --retrain-tokenizer");
}

/// Rank 0's part: the file as the configuration wants it. The recipe is written before the model, and a model that is
/// replaced goes first, so that a kill at any point leaves a state from which the same command goes on. Of several jobs
/// that make one tokenizer at once, the first to write its recipe decides what it is.
std::string train_into_place(const Files& files, const Log& log, const PreprocessSettings& settings,
                             const Wanted& wanted, bool& trained) {
  const Path& path = wanted.path;
  const Digest training = digest_of_training(*settings.data.tokenizer_training, symbols_of(settings.data), wanted.texts,
                                             settings.vocabulary.layout);
  const std::optional<Recipe> recipe = read_recipe(files, path);
  if (files.exists(path)) {
    std::string model = files.read_text(path);
    const bool is_own = recipe && recipe->model == digest_of(model).hex();
    const bool is_other = !is_own || recipe->training != training.hex();
    if (wanted.is_one_of_many && is_other && !settings.retrain_tokenizer) {
      log.warn("{} is used as it is, though this configuration would train another one", path.string());
      return model;
    }
    if (!is_own)
      throw_claim(Fault::config, path.string() + " exists, but preprocess did not train it", path.string(),
                  "a tokenizer trained by data.tokenizer_training, or none yet", "a file of other origin",
                  "leave data.tokenizer_training out to use it, or set data.tokenizer to another file");
    if (recipe->training == training.hex()) return model;
  }
  const bool replaces = recipe && recipe->training != training.hex();
  if (replaces && !settings.retrain_tokenizer) refuse_other(path);
  if (replaces) log.warn("{} was trained on other text or with other settings and is replaced", path.string());
  std::string model = cached_model(files, log, settings, wanted, training, trained);
  const Recipe own{training.hex(), digest_of(model).hex()};
  if (path.has_parent_path()) files.make_folders(path.parent_path());
  if (replaces) {
    files.remove(path);
    files.write_atomically(recipe_path(path), text_of(own));
  } else if (!files.write_if_absent(recipe_path(path), text_of(own)) && read_recipe(files, path) != own) {
    refuse_other(path);
  }
  files.write_atomically(path, model);
  return model;
}

}  // namespace

std::vector<TrainingText> training_texts(std::span<const CountedCorpus> corpora) {
  std::vector<TrainingText> texts;
  for (const CountedCorpus& corpus : corpora) texts.push_back({&corpus});
  return texts;
}

std::vector<TrainingText> training_texts(std::span<const CountedCorpus> corpora, const std::string& language) {
  std::vector<TrainingText> texts;
  for (const CountedCorpus& corpus : corpora) {
    const TrainingText text{&corpus, corpus.languages.front() == language, corpus.languages.back() == language};
    if (text.source || text.target) texts.push_back(text);
  }
  return texts;
}

Digest digest_of_training(const TokenizerTraining& training, std::span<const std::string> symbols,
                          std::span<const TrainingText> texts, spec::TokenLayout layout) {
  // Pegasus has Marian's ids.
  if (layout == spec::TokenLayout::pegasus) layout = spec::TokenLayout::marian;
  Hasher hasher;
  hasher.update(fmt::format("tokenizer 1 {} {} {} {} {} {}", static_cast<int>(training.type), training.vocab_size,
                            training.character_coverage, training.sample_lines, static_cast<int>(layout),
                            static_cast<int>(texts.front().corpus->rules.invalid_utf8)));
  const TokenizerTraining resolved = resolve_training(training, texts.front().corpus->rules.pairs);
  if (*resolved.byte_fallback) hasher.update(" byte_fallback");
  if (resolved.normalizer == Normalizer::identity) hasher.update(" identity");
  for (const std::string& symbol : symbols) hasher.update(" " + symbol);
  for (const TrainingText& text : texts) {
    if (text.corpus->rules.format == TextFormat::text) continue;
    hasher.update(recipe_of(text.corpus->rules));
    if (!text.source || !text.target) hasher.update(text.source ? " source" : " target");
  }
  for_each_file(texts, [&](const TrainingText&, const CountedFile& file) {
    hasher.update(std::as_bytes(std::span{file.record.digest.bytes}));
  });
  return hasher.digest();
}

std::vector<std::string> sample_lines(const Files& files, std::span<const TrainingText> texts, std::int64_t count) {
  std::uint64_t total = 0;
  for_each_file(texts, [&](const TrainingText&, const CountedFile& file) {
    total += static_cast<std::uint64_t>(file.record.figures.lines);
  });
  std::vector<std::uint64_t> wanted(std::min(total, static_cast<std::uint64_t>(count)));
  const Permutation order{std::max<std::uint64_t>(total, 1), sample_seed, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = order(i);
  std::sort(wanted.begin(), wanted.end());

  std::vector<std::string> sample;
  sample.reserve(wanted.size());
  auto next = wanted.begin();
  std::uint64_t at = 0;
  for_each_file(texts, [&](const TrainingText& text, const CountedFile& file) {
    const InvalidUtf8 invalid = text.corpus->rules.invalid_utf8;
    LineReader reader{files.open(file.text), 0, 0, invalid, CarriageReturns::drop, file.path};
    for (std::string line; next != wanted.end() && reader.next(line); ++at) {
      if (*next != at) continue;
      ++next;
      add_texts(line, text, sample);
    }
  });
  return sample;
}

std::string train_tokenizer(const TokenizerTraining& wanted, std::span<const std::string> lines,
                            spec::TokenLayout layout, std::span<const std::string> symbols) {
  constexpr std::array types{"unigram", "bpe", "char", "word"};  // by TokenizerType
  const TokenizerTraining training = resolve_training(wanted, true);
  const spec::Vocabulary ids = spec::vocabulary_of({layout}, training.vocab_size);
  const bool pad_is_piece = layout == spec::TokenLayout::t5;
  std::unordered_map<std::string, std::string> settings{
      {"model_type", types.at(static_cast<std::size_t>(training.type))},
      {"vocab_size", fmt::format("{}", training.vocab_size)},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"num_threads", fmt::format("{}", training_threads)},
      {"max_sentence_length", "65536"},
      {"unk_id", fmt::format("{}", ids.unk.value())},
      {"eos_id", fmt::format("{}", ids.eos)},
      {"bos_id", fmt::format("{}", ids.bos.value_or(-1))},
      {"pad_id", fmt::format("{}", pad_is_piece ? *ids.pad : -1)},
      {"minloglevel", "2"},
      {"byte_fallback", *training.byte_fallback ? "true" : "false"},
      // Words and characters are as many as the text has.
      {"hard_vocab_limit", training.type == TokenizerType::word ? "false" : "true"},
  };
  if (training.normalizer == Normalizer::identity) {
    settings["normalization_rule_name"] = "identity";
    settings["add_dummy_prefix"] = "false";
    settings["remove_extra_whitespaces"] = "false";
    settings["allow_whitespace_only_pieces"] = "true";  // for indentation
  }
  if (!symbols.empty()) settings["user_defined_symbols"] = fmt::format("{}", fmt::join(symbols, ","));
  std::string model;
  Lines iterator{lines};
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (!status.ok()) {
    const std::string text = status.ToString();
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    const bool too_few = says("smaller than required_chars") || says("(vocab_size) >= (0)");  // pieces for characters
    const bool too_many = says("ocabulary size") || says("vocab_size");                       // pieces for the text
    throw_error(too_few || too_many ? Fault::config : Fault::data, "data.tokenizer_training",
                fmt::format("a tokenizer of {} pieces", training.vocab_size),
                fmt::format("none from {} lines (SentencePiece: {})", lines.size(), text),
                too_few    ? "raise vocab_size, or lower character_coverage"
                : too_many ? "lower vocab_size, or give more text"
                           : "check the corpora");
  }
  return model;
}

PreparedTokenizer prepare_tokenizer(const comm::Communicator& world, const Files& files, const Log& log,
                                    const PreprocessSettings& settings, std::span<const CountedCorpus> corpora) {
  std::string model;
  bool trained = false;
  comm::at_root(world, [&] {
    if (!settings.data.tokenizer_training) {
      model = read_tokenizer(files, settings.data, settings.vocabulary).model_bytes();
    } else if (!has_language_tokenizers(settings.data)) {
      model =
          train_into_place(files, log, settings, {settings.data.tokenizer, training_texts(corpora), false}, trained);
    } else {
      TokenizerFiles made;
      for (const auto& [language, path] : tokenizer_paths(settings.data))
        made.emplace(language,
                     train_into_place(files, log, settings,
                                      {path, training_texts(corpora, language), /*is_one_of_many=*/true}, trained));
      model = Tokenizer::by_language(made, settings.vocabulary, settings.data.tokenizer).model_bytes();
    }
  });
  model = world.broadcast(std::move(model));
  trained = comm::any_of(world, trained);
  return {Tokenizer::load(std::move(model), settings.vocabulary, settings.data.tokenizer), trained};
}

}  // namespace argosy::data
