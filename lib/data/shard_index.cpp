#include "data/shard_index.hpp"

#include <boost/json.hpp>
#include <numeric>

#include "config/config.hpp"
#include "core/error.hpp"

namespace argosy::data {
namespace {

namespace json = boost::json;
constexpr std::int64_t kIndexVersion = 1;

Digest digest_at(const json::value& value) { return Digest::from_hex(std::string_view{value.as_string()}).value(); }

ShardIndex::Corpus corpus_of(const json::object& object) {
  ShardIndex::Corpus corpus;
  corpus.name = object.at("name").as_string();
  corpus.languages = json::value_to<std::vector<std::string>>(object.at("languages"));
  for (const char* side : {"source", "target"}) {
    if (const json::value* text = object.if_contains(side)) {
      corpus.texts.push_back({digest_at(text->at("digest")), text->at("lines").to_number<std::int64_t>()});
    }
  }
  corpus.src_tokens = object.at("src_tokens").to_number<std::int64_t>();
  corpus.tgt_tokens = object.at("tgt_tokens").to_number<std::int64_t>();
  corpus.unknown = object.at("unknown").to_number<std::int64_t>();
  corpus.dropped = json::value_to<std::map<std::string, std::int64_t>>(object.at("dropped"));
  for (const json::value& shard : object.at("shards").as_array()) {
    corpus.shards.push_back({std::string{shard.at("file").as_string()}, shard.at("examples").to_number<std::uint64_t>(),
                             shard.at("bytes").to_number<std::uint64_t>(), digest_at(shard.at("digest"))});
  }
  return corpus;
}

json::object object_of(const ShardIndex::Corpus& corpus) {
  json::object object{{"name", corpus.name},
                      {"languages", json::value_from(corpus.languages)},
                      {"examples", corpus.examples()},
                      {"src_tokens", corpus.src_tokens},
                      {"tgt_tokens", corpus.tgt_tokens},
                      {"unknown", corpus.unknown},
                      {"dropped", json::value_from(corpus.dropped)}};
  for (std::size_t side = 0; side < corpus.texts.size(); ++side) {
    const ShardIndex::Text& text = corpus.texts[side];
    object[side == 0 ? "source" : "target"] = {{"digest", text.digest.hex()}, {"lines", text.lines}};
  }
  json::array& shards = object["shards"].emplace_array();
  for (const ShardIndex::Shard& shard : corpus.shards) {
    shards.push_back({{"file", shard.file},
                      {"examples", shard.examples},
                      {"bytes", shard.size_bytes},
                      {"digest", shard.digest.hex()}});
  }
  return object;
}

}  // namespace

std::uint64_t ShardIndex::Corpus::examples() const {
  return std::accumulate(shards.begin(), shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Shard& shard) { return sum + shard.examples; });
}

Path shard_index_path(const Path& folder) { return folder / "index.json"; }

std::string text_of(const ShardIndex& index) {
  json::object object{{"version", kIndexVersion},
                      {"tokenizer", {{"digest", index.tokenizer.hex()}, {"pieces", index.pieces}}},
                      {"recipe", index.recipe.hex()}};
  json::array& corpora = object["corpora"].emplace_array();
  for (const ShardIndex::Corpus& corpus : index.corpora) corpora.push_back(object_of(corpus));
  return config::text_of(object) + "\n";
}

ShardIndex read_shard_index(const Files& files, const Path& folder) {
  const Path path = shard_index_path(folder);
  if (!files.exists(path)) {
    throw Error{Fault::data,
                {.wanted = "token shards",
                 .got = "none, or an unfinished folder",
                 .where = folder.string(),
                 .remedy = "run preprocess with the same configuration"}};
  }
  const auto refuse = [&](std::string got) {
    throw Error{Fault::corrupt,
                {.wanted = "an index of token shards, version 1",
                 .got = std::move(got),
                 .where = path.string(),
                 .remedy = "remove the folder and run preprocess"}};
  };
  try {
    const json::value value = json::parse(files.read_text(path));
    if (value.at("version") != kIndexVersion) refuse("version " + json::serialize(value.at("version")));
    ShardIndex index;
    index.tokenizer = digest_at(value.at("tokenizer").at("digest"));
    index.pieces = value.at("tokenizer").at("pieces").to_number<std::int64_t>();
    index.recipe = digest_at(value.at("recipe"));
    for (const json::value& corpus : value.at("corpora").as_array())
      index.corpora.push_back(corpus_of(corpus.as_object()));
    return index;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace argosy::data
