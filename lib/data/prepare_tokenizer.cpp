#include <boost/json.hpp>

#include "core/error.hpp"
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

std::optional<Recipe> read_recipe(const Files& files, const Path& tokenizer) {
  if (!files.exists(recipe_path(tokenizer))) return std::nullopt;
  boost::system::error_code error;
  const json::value value = json::parse(files.read_text(recipe_path(tokenizer)), error);
  const json::object* object = error ? nullptr : value.if_object();
  if (object == nullptr || !object->contains("training") || !object->contains("model")) return std::nullopt;
  const json::string* training = object->at("training").if_string();
  const json::string* model = object->at("model").if_string();
  if (training == nullptr || model == nullptr) return std::nullopt;
  return Recipe{std::string{*training}, std::string{*model}};
}

/// The model of a training digest, from the cache or trained now.
std::string cached_model(const Files& files, const Log& log, const PreprocessSettings& settings,
                         std::span<const CountedFile> texts, const Digest& training, bool& trained) {
  const Path cached = settings.cache / "tokenizers" / (training.hex() + ".model");
  if (files.exists(cached)) return files.read_text(cached);
  const TokenizerTraining& wanted = *settings.data.tokenizer_training;
  const std::vector<std::string> lines = sample_lines(files, texts, wanted.sample_lines, settings.data.invalid_utf8);
  log.info("training a tokenizer of {} pieces on {} lines", wanted.vocab_size, lines.size());
  std::string model = train_tokenizer(wanted, lines, settings.shape);
  files.make_folders(cached.parent_path());
  files.write_atomically(cached, model);
  trained = true;
  return model;
}

/// Rank 0's part: the file as the configuration wants it. The recipe is written before the model, and a model that is
/// replaced goes first, so that a kill at any point leaves a state from which the same command goes on.
std::string train_into_place(const Files& files, const Log& log, const PreprocessSettings& settings,
                             std::span<const CountedFile> texts, bool& trained) {
  const Path path = settings.data.tokenizer;
  const Digest training =
      digest_of_training(*settings.data.tokenizer_training, texts, settings.shape, settings.data.invalid_utf8);
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
    log.warn("{} was trained on other text or settings and is replaced", path.string());
  }
  std::string model = cached_model(files, log, settings, texts, training, trained);
  files.remove(path);
  if (path.has_parent_path()) files.make_folders(path.parent_path());
  files.write_atomically(
      recipe_path(path),
      json::serialize(json::object{{"training", training.hex()}, {"model", digest_of(model).hex()}}) + "\n");
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
      model = Tokenizer::read(files, settings.data.tokenizer, settings.shape).model_bytes();
    }
  });
  model = world.broadcast(std::move(model));
  trained = comm::any_of(world, trained);
  return {Tokenizer::load(std::move(model), settings.shape, settings.data.tokenizer), trained};
}

}  // namespace argosy::data
