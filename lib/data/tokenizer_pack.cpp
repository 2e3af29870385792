#include "data/tokenizer_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <utility>

#include "core/error.hpp"

namespace argosy::data {
namespace {

constexpr std::string_view several_mark = "{\"argosy_tokenizers\":";
constexpr std::int64_t several_version = 1;

[[noreturn]] void refuse_pack(std::string_view name, std::string wanted, std::string got) {
  throw_error(Fault::data, std::string{name}, std::move(wanted), std::move(got),
              "get the checkpoint or the tokenizer again");
}

}  // namespace

bool is_several(std::string_view bytes) { return bytes.starts_with(several_mark); }

std::string pack_several(const TokenizerPack& several) {
  boost::json::object sizes;
  std::string bytes;
  for (const auto& [part, file] : several.files) {
    sizes[part] = file.size();
    bytes += file;
  }
  const boost::json::object head{{"argosy_tokenizers", several_version},
                                 {"by", several.by_language ? "language" : "side"},
                                 {"sizes", std::move(sizes)}};
  return boost::json::serialize(head) + "\n" + bytes;
}

TokenizerPack unpack_several(std::string_view bytes, std::string_view name) {
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  boost::json::error_code error;
  const boost::json::value head = boost::json::parse(bytes.substr(0, line), error);
  const boost::json::object* const said = !error && head.is_object() ? &head.get_object() : nullptr;
  const auto member = [&](const char* key) { return said == nullptr ? nullptr : said->if_contains(key); };
  const boost::json::value *const made = member("argosy_tokenizers"), *const by = member("by"),
                                  *const sizes = member("sizes");
  if (made != nullptr && *made != boost::json::value(several_version))
    throw_error(Fault::data, std::string{name},
                fmt::format("version {} of several tokenizers in one file", several_version),
                "version " + boost::json::serialize(*made), "use a newer Argosy");
  TokenizerPack several{.by_language = by != nullptr && *by == boost::json::value("language"), .files = {}};
  const bool by_side = by != nullptr && *by == boost::json::value("side");
  if (made == nullptr || sizes == nullptr || !sizes->is_object() || several.by_language == by_side)
    refuse_pack(name, "a first line that says the sizes of tokenizers, by language or by side", "another one");
  std::string_view left = bytes.substr(std::min(line + 1, bytes.size()));
  for (const auto& [part, size] : sizes->get_object()) {
    const bool fits = size.is_int64() && size.get_int64() >= 0 && std::cmp_less_equal(size.get_int64(), left.size());
    if (!fits)
      refuse_pack(name, fmt::format("{} bytes of {}", boost::json::serialize(size), std::string_view{part}),
                  fmt::format("{}", left.size()));
    const auto count = static_cast<std::size_t>(size.get_int64());
    several.files[std::string{part}] = left.substr(0, count);
    left.remove_prefix(count);
  }
  if (!left.empty()) refuse_pack(name, "the bytes that the first line says", fmt::format("{} more", left.size()));
  const bool has_sides =
      several.files.size() == 2 && several.files.contains("source") && several.files.contains("target");
  if (several.files.empty() || (by_side && !has_sides))
    refuse_pack(name, by_side ? "a source and a target" : "a tokenizer for each language",
                several.files.empty() ? "none" : several.files.begin()->first);
  return several;
}

}  // namespace argosy::data
