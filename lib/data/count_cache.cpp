#include "data/count_cache.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace argosy::data {
namespace {

namespace json = boost::json;
constexpr std::int64_t kCacheVersion = 1;

std::optional<json::object> read_object(const Files& files, const Path& path) {
  if (!files.exists(path)) return std::nullopt;
  boost::system::error_code error;
  json::value value = json::parse(files.read_text(path), error);
  if (error || !value.is_object()) return std::nullopt;
  const json::value* version = value.as_object().if_contains("version");
  if (version == nullptr || *version != kCacheVersion) return std::nullopt;
  return std::move(value.as_object());
}

json::object object_of(const CountRecord& record) {
  const TextFigures& f = record.figures;
  json::object object{{"version", kCacheVersion},
                      {"digest", record.digest.hex()},
                      {"bytes", record.size_bytes},
                      {"lines", f.lines},
                      {"newlines", f.newlines},
                      {"empty_lines", f.empty_lines},
                      {"words", f.words},
                      {"characters", f.characters},
                      {"longest_line", f.longest_line},
                      {"invalid_bytes", f.invalid_bytes},
                      {"block_newlines", json::value_from(record.block_newlines)}};
  if (record.first_invalid) {
    object["first_invalid"] = {{"line", record.first_invalid->line}, {"byte", record.first_invalid->byte_offset}};
  }
  return object;
}

CountRecord record_of(const json::object& object) {
  const auto number = [&](const char* key) { return object.at(key).to_number<std::int64_t>(); };
  CountRecord record;
  record.digest = Digest::from_hex(object.at("digest").as_string()).value();
  record.size_bytes = object.at("bytes").to_number<std::uint64_t>();
  record.figures = {.lines = number("lines"),
                    .newlines = number("newlines"),
                    .empty_lines = number("empty_lines"),
                    .words = number("words"),
                    .characters = number("characters"),
                    .longest_line = number("longest_line"),
                    .invalid_bytes = number("invalid_bytes")};
  if (const json::value* place = object.if_contains("first_invalid")) {
    record.first_invalid = InvalidPlace{place->as_object().at("line").to_number<std::int64_t>(),
                                        place->as_object().at("byte").to_number<std::int64_t>()};
  }
  record.block_newlines = json::value_to<std::vector<std::uint32_t>>(object.at("block_newlines"));
  return record;
}

}  // namespace

std::string text_of(const CountRecord& record) { return json::serialize(object_of(record)); }

std::optional<CountRecord> record_of_text(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  try {
    CountRecord record = record_of(value.as_object());
    const std::uint64_t blocks = (record.size_bytes + kCountBlockBytes - 1) / kCountBlockBytes;
    if (record.block_newlines.size() == blocks && value.at("version") == kCacheVersion) return record;
  } catch (const std::exception&) {  // a key is missing or of another type: no record of ours
  }
  return std::nullopt;
}

Path CountCache::place_of(const Path& path) const {
  return folder_ / fmt::format("at-{:016x}.json", hash64(std::string_view{path.string()}));
}

Path CountCache::record_path(const Digest& digest) const { return folder_ / (digest.hex() + ".json"); }

std::optional<CountRecord> CountCache::find(const Path& path, const FileStat& stat) const {
  const std::optional<json::object> place = read_object(files_, place_of(path));
  if (!place) return std::nullopt;
  const json::object now{
      {"version", kCacheVersion},  {"path", path.string()},
      {"bytes", stat.size_bytes},  {"mtime_ns", stat.mtime_ns},
      {"ctime_ns", stat.ctime_ns}, {"digest", place->contains("digest") ? place->at("digest") : json::value{}}};
  if (*place != now || !now.at("digest").is_string()) return std::nullopt;
  const std::optional<Digest> digest = Digest::from_hex(now.at("digest").as_string());
  return digest ? find(*digest) : std::nullopt;
}

std::optional<CountRecord> CountCache::find(const Digest& digest) const {
  const Path path = record_path(digest);
  if (!files_.exists(path)) return std::nullopt;
  std::optional<CountRecord> record = record_of_text(files_.read_text(path));
  return record && record->digest == digest ? record : std::nullopt;
}

void CountCache::keep(const Path& path, const FileStat& stat, const CountRecord& record) const {
  files_.make_folders(folder_);
  files_.write_atomically(record_path(record.digest), text_of(record));
  const json::object place{{"version", kCacheVersion},  {"path", path.string()},     {"bytes", stat.size_bytes},
                           {"mtime_ns", stat.mtime_ns}, {"ctime_ns", stat.ctime_ns}, {"digest", record.digest.hex()}};
  files_.write_atomically(place_of(path), json::serialize(place));
}

}  // namespace argosy::data
