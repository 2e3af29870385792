#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <numeric>

#include "config/config.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"
#include "data/count.hpp"

namespace argosy::data {
namespace {

namespace json = boost::json;
constexpr std::int64_t cache_version = 2;

/// Text of a file; none where there is none, or none that a record could be.
std::optional<std::string> read(const Files& files, const Path& path) {
  if (!files.exists(path)) return std::nullopt;
  try {
    return files.read_text(path);
  } catch (const Error& error) {
    if (error.fault() == Fault::io) throw;
    return std::nullopt;
  }
}

std::optional<json::object> read_object(const Files& files, const Path& path) {
  const std::optional<std::string> text = read(files, path);
  if (!text) return std::nullopt;
  boost::system::error_code error;
  json::value value = json::parse(*text, error);
  if (error || !value.is_object()) return std::nullopt;
  const json::value* version = value.as_object().if_contains("version");
  if (version == nullptr || *version != cache_version) return std::nullopt;
  return std::move(value.as_object());
}

/// What guards a record: the digest of its canonical text without this member.
Digest check_of(json::object object) {
  object.erase("check");
  return digest_of(config::text_of(object, false));
}

json::object object_of(const CountRecord& record) {
  const TextFigures& f = record.figures;
  json::object object{{"version", cache_version},
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

/// Whether a text could have such a record: what uses it need not fear for its sums and offsets.
bool is_possible(const CountRecord& record) {
  const TextFigures& f = record.figures;
  const auto size = static_cast<std::int64_t>(record.size_bytes);
  const std::uint64_t blocks =
      record.size_bytes / count_block_bytes + (record.size_bytes % count_block_bytes > 0 ? 1 : 0);
  const auto within = [](std::int64_t number, std::int64_t most) { return number >= 0 && number <= most; };
  const auto& newlines = record.block_newlines;
  return record.size_bytes <= 1ULL << 59 && newlines.size() == blocks &&
         std::ranges::all_of(newlines, [](std::uint32_t count) { return count <= count_block_bytes; }) &&
         std::accumulate(newlines.begin(), newlines.end(), std::int64_t{0}) == f.newlines && f.newlines <= size &&
         (f.lines == f.newlines || f.lines == f.newlines + 1) && within(f.empty_lines, f.lines) &&
         within(f.words, size) && within(f.characters, size) && within(f.longest_line, 8 * size) &&
         within(f.invalid_bytes, size) && record.first_invalid.has_value() == (f.invalid_bytes > 0) &&
         (!record.first_invalid ||
          (within(record.first_invalid->line, f.lines) && within(record.first_invalid->byte_offset, size)));
}

}  // namespace

std::string text_of(const CountRecord& record) {
  json::object object = object_of(record);
  object["check"] = check_of(object).hex();
  return json::serialize(object);
}

std::optional<CountRecord> record_of_text(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  try {
    if (value.at("version") != cache_version) return std::nullopt;
    if (value.at("check") != json::string{check_of(value.as_object()).hex()}) return std::nullopt;
    CountRecord record = record_of(value.as_object());
    if (is_possible(record)) return record;
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
      {"version", cache_version},  {"path", replace_invalid_utf8(path.string())},
      {"bytes", stat.size_bytes},  {"mtime_ns", stat.mtime_ns},
      {"ctime_ns", stat.ctime_ns}, {"digest", place->contains("digest") ? place->at("digest") : json::value{}}};
  if (*place != now || !now.at("digest").is_string()) return std::nullopt;
  const std::optional<Digest> digest = Digest::from_hex(now.at("digest").as_string());
  std::optional<CountRecord> record = digest ? find(*digest) : std::nullopt;
  return record && record->size_bytes == stat.size_bytes ? record : std::nullopt;
}

std::optional<CountRecord> CountCache::find(const Digest& digest) const {
  const std::optional<std::string> text = read(files_, record_path(digest));
  std::optional<CountRecord> record = text ? record_of_text(*text) : std::nullopt;
  return record && record->digest == digest ? record : std::nullopt;
}

void CountCache::keep(const Path& path, const FileStat& stat, const CountRecord& record) const {
  files_.make_folders(folder_);
  files_.write_atomically(record_path(record.digest), text_of(record));
  const json::object place{{"version", cache_version},  {"path", replace_invalid_utf8(path.string())},
                           {"bytes", stat.size_bytes},  {"mtime_ns", stat.mtime_ns},
                           {"ctime_ns", stat.ctime_ns}, {"digest", record.digest.hex()}};
  files_.write_atomically(place_of(path), json::serialize(place));
}

}  // namespace argosy::data
