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
constexpr std::int64_t cache_version = 3;

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

constexpr std::pair<const char*, std::optional<BytePlace> CountRecord::*> stored_places[] = {
    {"first_invalid", &CountRecord::first_invalid},
    {"first_zero", &CountRecord::first_zero},
};

json::object object_of(const CountRecord& record) {
  json::object object{{"version", cache_version}, {"digest", record.digest.hex()}, {"bytes", record.size_bytes}};
  for (const auto& [key, figure] : stored_figures) object[key] = record.figures.*figure;
  object["block_newlines"] = json::value_from(record.block_newlines);
  object["byte_order_mark"] = record.has_byte_order_mark;
  for (const auto& [key, place] : stored_places)
    if (record.*place) object[key] = {{"line", (record.*place)->line}, {"byte", (record.*place)->byte_offset}};
  return object;
}

CountRecord record_of(const json::object& object) {
  CountRecord record;
  record.digest = Digest::from_hex(object.at("digest").as_string()).value();
  record.size_bytes = object.at("bytes").to_number<std::uint64_t>();
  for (const auto& [key, figure] : stored_figures) record.figures.*figure = object.at(key).to_number<std::int64_t>();
  record.has_byte_order_mark = object.at("byte_order_mark").as_bool();
  for (const auto& [key, place] : stored_places)
    if (const json::value* value = object.if_contains(key))
      record.*place = BytePlace{value->as_object().at("line").to_number<std::int64_t>(),
                                value->as_object().at("byte").to_number<std::int64_t>()};
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
         std::ranges::all_of(stored_places, [&](const auto& stored) {
           const std::optional<BytePlace>& place = record.*stored.second;
           return !place || (within(place->line, f.lines) && within(place->byte_offset, size));
         });
}

/// Which content a path had at which times.
json::object place_object(const Path& path, const FileStat& stat, const Digest& digest,
                          const std::optional<Digest>& packed) {
  json::object object{{"version", cache_version},  {"path", replace_invalid_utf8(path.string())},
                      {"bytes", stat.size_bytes},  {"mtime_ns", stat.mtime_ns},
                      {"ctime_ns", stat.ctime_ns}, {"digest", digest.hex()}};
  if (packed) object["packed"] = packed->hex();
  return object;
}

std::optional<Digest> digest_in(const json::object& object, const char* key) {
  const json::value* hex = object.if_contains(key);
  return hex != nullptr && hex->is_string() ? Digest::from_hex(hex->get_string()) : std::nullopt;
}

}  // namespace

std::string text_of(const CountRecord& record) {
  json::object object = object_of(record);
  object["check"] = check_of(object).hex();
  return json::serialize(object);
}

namespace {

std::optional<CountRecord> checked_record(const json::object& object) {
  try {
    if (object.at("check") != json::string{check_of(object).hex()}) return std::nullopt;
    CountRecord record = record_of(object);
    if (is_possible(record)) return record;
  } catch (const std::exception&) {  // a key is missing or of another type: no record of ours
  }
  return std::nullopt;
}

}  // namespace

std::optional<CountRecord> record_of_text(std::string_view text) {
  const std::optional<json::object> object = object_in(text);
  return object ? checked_record(*object) : std::nullopt;
}

CountCache::CountCache(Files files, Path folder, std::span<const Path> paths)
    : files_(files), folder_(std::move(folder)), paths_(paths.begin(), paths.end()) {}

Path CountCache::place_of(const Path& path) const {
  return folder_ / fmt::format("at-{:016x}.json", hash64(std::string_view{path.string()}));
}

Path CountCache::record_path(const Digest& digest) const { return folder_ / (digest.hex() + ".json"); }

Path CountCache::list_path() const {
  Hasher hasher;
  for (const Path& path : paths_) hasher.update(path.native()).update(std::string_view{"\0", 1});
  return folder_ / fmt::format("list-{}.json", hasher.digest().hex());
}

void CountCache::load() {
  list_.resize(paths_.size());
  const std::optional<std::string> text = read(files_, list_path());
  const std::optional<json::object> known = text ? object_in(*text) : std::nullopt;
  const json::value* list = known ? known->if_contains("files") : nullptr;
  if (list != nullptr && list->is_array() && list->get_array().size() == paths_.size()) list_ = list->get_array();
}

std::optional<KnownFile> CountCache::find(std::size_t i, const FileStat& stat) const {
  std::optional<json::object> place;
  std::optional<CountRecord> record;
  if (is_list()) {
    const json::value& entry = list_.at(i);
    if (!entry.is_array() || entry.get_array().size() != 2) return std::nullopt;
    const json::array& parts = entry.get_array();
    if (!parts[0].is_object() || !parts[1].is_object()) return std::nullopt;
    place = parts[0].get_object();
    record = checked_record(parts[1].get_object());
  } else {
    const std::optional<std::string> text = read(files_, place_of(paths_[i]));
    place = text ? object_in(*text) : std::nullopt;
  }
  const std::optional<Digest> digest = place ? digest_in(*place, "digest") : std::nullopt;
  if (!digest) return std::nullopt;
  const std::optional<Digest> packed = digest_in(*place, "packed");
  if (*place != place_object(paths_[i], stat, *digest, packed)) return std::nullopt;
  if (!is_list()) {
    const std::optional<std::string> text = read(files_, record_path(*digest));
    record = text ? record_of_text(*text) : std::nullopt;
  }
  if (!record || record->digest != *digest || (!packed && record->size_bytes != stat.size_bytes)) return std::nullopt;
  return KnownFile{*std::move(record), packed};
}

void CountCache::keep(std::size_t i, const FileStat& stat, const KnownFile& known) {
  const json::object place = place_object(paths_[i], stat, known.record.digest, known.packed);
  if (is_list()) {
    json::object record = object_of(known.record);
    record["check"] = check_of(record).hex();
    list_.at(i) = json::array{place, std::move(record)};
    return;
  }
  files_.make_folders(folder_);
  files_.write_atomically(record_path(known.record.digest), text_of(known.record));
  files_.write_atomically(place_of(paths_[i]), json::serialize(place));
}

void CountCache::flush() {
  if (!is_list()) return;
  files_.make_folders(folder_);
  files_.write_atomically(list_path(), json::serialize(json::object{{"version", cache_version}, {"files", list_}}));
}

}  // namespace argosy::data
