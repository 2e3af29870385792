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

/// An object of this version.
std::optional<json::object> object_in(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
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

constexpr std::pair<const char*, std::int64_t TextFigures::*> stored_figures[] = {
    {"lines", &TextFigures::lines},
    {"newlines", &TextFigures::newlines},
    {"empty_lines", &TextFigures::empty_lines},
    {"words", &TextFigures::words},
    {"characters", &TextFigures::characters},
    {"longest_line", &TextFigures::longest_line},
    {"invalid_bytes", &TextFigures::invalid_bytes},
};

json::object object_of(const CountRecord& record) {
  json::object object{{"version", cache_version}, {"digest", record.digest.hex()}, {"bytes", record.size_bytes}};
  for (const auto& [key, figure] : stored_figures) object[key] = record.figures.*figure;
  object["block_newlines"] = json::value_from(record.block_newlines);
  if (record.first_invalid) {
    object["first_invalid"] = {{"line", record.first_invalid->line}, {"byte", record.first_invalid->byte_offset}};
  }
  return object;
}

CountRecord record_of(const json::object& object) {
  CountRecord record;
  record.digest = Digest::from_hex(object.at("digest").as_string()).value();
  record.size_bytes = object.at("bytes").to_number<std::uint64_t>();
  for (const auto& [key, figure] : stored_figures) record.figures.*figure = object.at(key).to_number<std::int64_t>();
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

/// Which content a path had at which times.
json::object place_object(const Path& path, const FileStat& stat, const Digest& digest) {
  return {{"version", cache_version},  {"path", replace_invalid_utf8(path.string())},
          {"bytes", stat.size_bytes},  {"mtime_ns", stat.mtime_ns},
          {"ctime_ns", stat.ctime_ns}, {"digest", digest.hex()}};
}

}  // namespace

std::string text_of(const CountRecord& record) {
  json::object object = object_of(record);
  object["check"] = check_of(object).hex();
  return json::serialize(object);
}

std::optional<CountRecord> record_of_text(std::string_view text) {
  const std::optional<json::object> object = object_in(text);
  if (!object) return std::nullopt;
  try {
    if (object->at("check") != json::string{check_of(*object).hex()}) return std::nullopt;
    CountRecord record = record_of(*object);
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
  const std::optional<std::string> text = read(files_, place_of(path));
  const std::optional<json::object> known = text ? object_in(*text) : std::nullopt;
  const json::value* hex = known ? known->if_contains("digest") : nullptr;
  const auto digest = hex != nullptr && hex->is_string() ? Digest::from_hex(hex->get_string()) : std::nullopt;
  if (!digest || *known != place_object(path, stat, *digest)) return std::nullopt;
  std::optional<CountRecord> record = find(*digest);
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
  files_.write_atomically(place_of(path), json::serialize(place_object(path, stat, record.digest)));
}

}  // namespace argosy::data
