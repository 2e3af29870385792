#include <fmt/format.h>

#include <boost/json.hpp>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "data/preprocess.hpp"
#include "data/tokenizer_training.hpp"

namespace argosy::data {
namespace {

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
  throw Error{Fault::corrupt,
              {.wanted = "the recipe of a tokenizer, as preprocess wrote it",
               .got = "a damaged file",
               .where = recipe_path(tokenizer).string(),
               .remedy = "restore it, or leave data.tokenizer_training out to use the tokenizer as it is"}};
}

std::string cached_name(const Digest& training, std::string_view model) {
  return fmt::format("{}-{}.model", training.hex(), digest_of(model).hex());
}

/// The model of a training digest, from the cache or trained now.
std::string cached_model(const Files& files, const Log& log, const PreprocessSettings& settings,
                         std::span<const CountedFile> texts, const Digest& training, bool& trained) {
  // The name tells both digests, so that a damaged model is not taken for what was trained.
  const Path folder = settings.cache / "tokenizers";
  try {
    files.make_folders(folder);
    for (const std::string& name : files.list(folder)) {
      if (!name.starts_with(training.hex() + "-") || name_of_partial(name)) continue;
      std::string model = files.read_text(folder / name);
      if (name == cached_name(training, model)) return model;
      log.warn("{} is damaged; the tokenizer is trained again", (folder / name).string());
    }
  } catch (const Error& error) {  // only time is lost
    log.warn("no tokenizer is taken from the cache: {}", error.what());
  }
  const TokenizerTraining& wanted = *settings.data.tokenizer_training;
  const std::vector<std::string> lines = sample_lines(files, texts, wanted.sample_lines, settings.data.invalid_utf8);
  log.info("training a tokenizer of {} pieces on {} lines", wanted.vocab_size, lines.size());
  std::string model = train_tokenizer(wanted, lines, settings.vocabulary.layout);
  trained = true;
  try {
    files.write_atomically(folder / cached_name(training, model), model);
  } catch (const Error& error) {
    log.warn("the tokenizer is not kept in the cache: {}", error.what());
  }
  return model;
}

[[noreturn]] void refuse_other(const Path& tokenizer) {
  throw Error{Fault::config,
              {.wanted = "a tokenizer trained on these corpora by data.tokenizer_training",
               .got = "one trained on other text or with other settings, which checkpoints may depend on",
               .where = tokenizer.string(),
               .remedy = "leave tokenizer_training out to keep it, name another file and data.shards, or replace it "
                         "with --retrain-tokenizer"}};
}

/// Rank 0's part: the file as the configuration wants it. The recipe is written before the model, and a model that is
/// replaced goes first, so that a kill at any point leaves a state from which the same command goes on. Of several jobs
/// that make one tokenizer at once, the first to write its recipe decides what it is.
std::string train_into_place(const Files& files, const Log& log, const PreprocessSettings& settings,
                             std::span<const CountedFile> texts, bool& trained) {
  const Path path = settings.data.tokenizer;
  const Digest training = digest_of_training(*settings.data.tokenizer_training, texts, settings.vocabulary.layout,
                                             settings.data.invalid_utf8);
  const std::optional<Recipe> recipe = read_recipe(files, path);
  if (files.exists(path)) {
    std::string model = files.read_text(path);
    if (!recipe || recipe->model != digest_of(model).hex()) {
      throw Error{Fault::config,
                  {.wanted = "a tokenizer trained by data.tokenizer_training, or none yet",
                   .got = "a file of other origin",
                   .where = path.string(),
                   .remedy = "leave tokenizer_training out to use it, or name another file"}};
    }
    if (recipe->training == training.hex()) return model;
  }
  const bool replaces = recipe && recipe->training != training.hex();
  if (replaces && !settings.retrain_tokenizer) refuse_other(path);
  if (replaces) log.warn("{} was trained on other text or with other settings and is replaced", path.string());
  std::string model = cached_model(files, log, settings, texts, training, trained);
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

PreparedTokenizer prepare_tokenizer(const comm::Communicator& world, const Files& files, const Log& log,
                                    const PreprocessSettings& settings, std::span<const CountedFile> texts) {
  std::string model;
  bool trained = false;
  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    if (settings.data.tokenizer_training) {
      model = train_into_place(files, log, settings, texts, trained);
    } else {
      model = Tokenizer::read(files, settings.data.tokenizer, settings.vocabulary).model_bytes();
    }
  });
  model = world.broadcast(std::move(model));
  trained = comm::any_of(world, trained);
  return {Tokenizer::load(std::move(model), settings.vocabulary, settings.data.tokenizer), trained};
}

}  // namespace argosy::data
