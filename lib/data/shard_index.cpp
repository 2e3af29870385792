#include "data/shard_index.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <numeric>
#include <stdexcept>

#include "config/config.hpp"
#include "core/error.hpp"

namespace argosy::data {
namespace {

namespace json = boost::json;
constexpr std::int64_t index_version = 4;

Digest digest_at(const json::value& value) { return Digest::from_hex(std::string_view{value.as_string()}).value(); }

/// A count; those of real corpora, and their sums, stay far below the limit.
template <class Number>
Number count_at(const json::value& value, const char* key) {
  constexpr std::int64_t most = std::int64_t{1} << 48;
  const auto count = value.at(key).to_number<std::int64_t>();
  if (count < 0 || count > most) throw std::out_of_range{fmt::format("{} {}", key, count)};
  return static_cast<Number>(count);
}

/// The index lies in the folder of its shards.
std::string file_at(const json::value& shard) {
  const std::string_view name = shard.at("file").as_string();
  if (!name.ends_with(".tokens") || name.starts_with('.') || name.find_first_of({"/\0", 2}) != std::string_view::npos)
    throw std::invalid_argument{fmt::format("the file {}", name)};
  return std::string{name};
}

/// What guards an index: the digest of its canonical text without this member.
Digest digest_of_index(json::object object) {
  object.erase("digest");
  return digest_of(config::text_of(object, false));
}

ShardIndex::Corpus corpus_of(const json::object& object) {
  ShardIndex::Corpus corpus;
  corpus.name = object.at("name").as_string();
  corpus.languages = json::value_to<std::vector<std::string>>(object.at("languages"));
  for (const char* side : {"source", "target"}) {
    if (const json::value* text = object.if_contains(side)) {
      corpus.texts.push_back({digest_at(text->at("digest")), count_at<std::int64_t>(*text, "lines")});
    }
  }
  corpus.transforms = object.at("transforms").as_string();
  corpus.src_tokens = count_at<std::int64_t>(object, "src_tokens");
  corpus.tgt_tokens = count_at<std::int64_t>(object, "tgt_tokens");
  corpus.unknown = count_at<std::int64_t>(object, "unknown");
  corpus.dropped = json::value_to<std::map<std::string, std::int64_t>>(object.at("dropped"));
  for (const json::value& shard : object.at("shards").as_array()) {
    corpus.shards.push_back({file_at(shard), count_at<std::uint64_t>(shard, "examples"),
                             count_at<std::uint64_t>(shard, "bytes"), digest_at(shard.at("digest"))});
  }
  return corpus;
}

json::object object_of(const ShardIndex::Corpus& corpus) {
  json::object object{{"name", corpus.name},
                      {"languages", json::value_from(corpus.languages)},
                      {"examples", corpus.examples()},
                      {"transforms", corpus.transforms},
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

void throw_old_shards(const Path& path, std::int64_t version) {
  throw_error(Fault::data, path.string(), fmt::format("token shards of version {}", index_version),
              fmt::format("version {}", version), "run preprocess again with the same configuration");
}

std::string text_of(const ShardIndex& index) {
  json::object object{{"version", index_version},
                      {"tokenizer", {{"digest", index.tokenizer.hex()}, {"pieces", index.pieces}}},
                      {"recipe", index.recipe.hex()}};
  json::array& corpora = object["corpora"].emplace_array();
  for (const ShardIndex::Corpus& corpus : index.corpora) corpora.push_back(object_of(corpus));
  object["digest"] = digest_of_index(object).hex();
  return config::text_of(object) + "\n";
}

ShardIndex read_shard_index(const Files& files, const Path& folder) {
  const Path path = shard_index_path(folder);
  if (!files.exists(path))
    throw_error(Fault::data, folder.string(), "token shards", "none, or an unfinished folder",
                "run preprocess with the same configuration");
  const auto refuse = [&](std::string got) {
    throw_error(Fault::corrupt, path.string(), fmt::format("an index of token shards, version {}", index_version),
                std::move(got), "remove its folder and run preprocess");
  };
  try {
    const json::value value = json::parse(files.read_text(path));
    const std::int64_t version = count_at<std::int64_t>(value, "version");
    if (version < index_version) throw_old_shards(path, version);
    if (version != index_version) refuse("version " + json::serialize(value.at("version")));
    if (value.at("digest") != json::string{digest_of_index(value.as_object()).hex()}) refuse("another digest");
    ShardIndex index;
    index.tokenizer = digest_at(value.at("tokenizer").at("digest"));
    index.pieces = count_at<std::int64_t>(value.at("tokenizer"), "pieces");
    index.recipe = digest_at(value.at("recipe"));
    for (const json::value& corpus : value.at("corpora").as_array())
      index.corpora.push_back(corpus_of(corpus.as_object()));
    return index;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(fmt::format("one that cannot be read ({})", error.what()));
  }
  return {};
}

}  // namespace argosy::data
