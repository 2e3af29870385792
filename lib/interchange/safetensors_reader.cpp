#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/safetensors.hpp"

namespace argosy::interchange {
namespace {

constexpr std::uint64_t most_header_bytes = 100'000'000;
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> element_bytes{{{"F64", 8},
                                                                                    {"F32", 4},
                                                                                    {"F16", 2},
                                                                                    {"BF16", 2},
                                                                                    {"I64", 8},
                                                                                    {"I32", 4},
                                                                                    {"I16", 2},
                                                                                    {"I8", 1},
                                                                                    {"U64", 8},
                                                                                    {"U32", 4},
                                                                                    {"U16", 2},
                                                                                    {"U8", 1},
                                                                                    {"BOOL", 1},
                                                                                    {"F8_E4M3", 1},
                                                                                    {"F8_E5M2", 1}}};

[[noreturn]] void broken(const Path& path, const std::string& where, std::string wanted, std::string got) {
  throw_error(Fault::corrupt, where.empty() ? path.string() : fmt::format("{}, {}", path.string(), where),
              std::move(wanted), std::move(got), "the file is damaged or not safetensors; get it again");
}

/// Strict JSON: one object, no name twice, no deep nesting.
boost::json::object object_of(const Path& path, std::string_view text) {
  try {
    boost::json::value value = config::Document::parse(text, path.string()).root();
    if (value.is_object()) return std::move(value.get_object());
  } catch (const Error& error) {
    if (error.fault() != Fault::config) throw;
    broken(path, "", "JSON without repeated names", error.problem());
  }
  broken(path, "", "a JSON object", "another value");
}

std::optional<std::uint64_t> whole(const boost::json::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  return std::nullopt;
}

std::vector<std::uint64_t> whole_numbers(const boost::json::value* list, const Path& path, const std::string& where) {
  std::vector<std::uint64_t> numbers;
  if (list == nullptr || !list->is_array()) broken(path, where, "a list of numbers", "none");
  for (const boost::json::value& item : list->get_array()) {
    const std::optional<std::uint64_t> number = whole(item);
    if (!number) broken(path, where, "whole numbers that are not negative", boost::json::serialize(item));
    numbers.push_back(*number);
  }
  return numbers;
}

/// A tensor of a header, and its bytes relative to the end of the header.
struct Described {
  Safetensors::Entry entry;
  std::uint64_t begin = 0, end = 0;
};

Described described(const Path& path, const std::string& name, const boost::json::value& value) {
  const std::string where = fmt::format("tensor \"{}\"", name);
  if (!value.is_object()) broken(path, where, "dtype, shape and data_offsets", boost::json::serialize(value));
  const boost::json::object& object = value.get_object();
  const boost::json::value* const type = object.if_contains("dtype");
  if (type == nullptr || !type->is_string()) broken(path, where, "a dtype", "none");
  Described out;
  out.entry.type = std::string{type->get_string()};
  const auto size = std::ranges::find(element_bytes, out.entry.type, [](const auto& known) { return known.first; });
  if (size == element_bytes.end()) broken(path, where, "a dtype of safetensors", out.entry.type);
  std::uint64_t bytes = size->second;
  for (const std::uint64_t extent : whole_numbers(object.if_contains("shape"), path, where + ", shape")) {
    if (extent > std::uint64_t{std::numeric_limits<std::int64_t>::max()} ||
        (extent != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / 2 / extent))
      broken(path, where, "a shape whose bytes fit 64 bits", boost::json::serialize(object.at("shape")));
    bytes *= extent;
    out.entry.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const std::vector<std::uint64_t> offsets =
      whole_numbers(object.if_contains("data_offsets"), path, where + ", data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] - offsets[0] != bytes)
    broken(path, where, fmt::format("data_offsets that are {} bytes apart, as dtype and shape say", bytes),
           fmt::format("[{}]", fmt::join(offsets, ", ")));
  out.begin = offsets[0];
  out.end = offsets[1];
  return out;
}

/// The names of the files that an index lists, each once, and the file of each tensor.
std::map<std::string, std::string, std::less<>> read_index(const Files& files, const Path& path) {
  const boost::json::object index = object_of(path, files.read_text(path, most_header_bytes));
  const boost::json::value* const map = index.if_contains("weight_map");
  if (map == nullptr || !map->is_object()) broken(path, "", "a weight_map", "none");
  std::map<std::string, std::string, std::less<>> file_of;
  for (const auto& [name, file] : map->get_object()) {
    const std::string text = file.is_string() ? std::string{file.get_string()} : std::string{};
    const bool plain = text.ends_with(".safetensors") && text.find('/') == std::string::npos &&
                       !text.starts_with('.') && text.find('\0') == std::string::npos;
    if (!plain)
      broken(path, fmt::format("tensor \"{}\"", std::string_view{name}),
             "the name of a .safetensors file of this folder", boost::json::serialize(file));
    file_of.emplace(name, text);
  }
  if (file_of.empty()) broken(path, "", "at least one tensor", "none");
  return file_of;
}

}  // namespace

std::int64_t Safetensors::Entry::elements() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Safetensors::Safetensors(const Files& files, const Path& folder, const std::string& stem) : files_(files) {
  const std::string one_file = stem + ".safetensors", index_file = one_file + ".index.json";
  Hasher hasher;
  if (files.exists(folder / one_file)) {
    add(folder / one_file, hasher);
  } else if (files.exists(folder / index_file)) {
    const auto file_of = read_index(files, folder / index_file);
    std::set<std::string> names;
    for (const auto& [tensor, file] : file_of) names.insert(file);
    for (const std::string& name : names) add(folder / name, hasher);
    for (const auto& [tensor, file] : file_of) {
      const auto found = tensors_.find(tensor);
      if (found == tensors_.end() || paths_[found->second.file].filename() != file)
        broken(folder / index_file, fmt::format("tensor \"{}\"", tensor), "a tensor of " + file,
               "none of that name there");
    }
    for (const auto& [tensor, entry] : tensors_) {
      if (!file_of.contains(tensor))
        broken(folder / index_file, "", fmt::format("the tensor \"{}\" of {}", tensor, paths_[entry.file].string()),
               "no entry for it");
    }
  } else {
    const bool pickled =
        files.exists(folder / "pytorch_model.bin") || files.exists(folder / "pytorch_model.bin.index.json");
    if (pickled)
      throw_claim(Fault::data,
                  fmt::format("{} holds its weights in pytorch_model.bin, a format that can run code when it is read",
                              folder.string()),
                  folder.string(), one_file, "pytorch_model.bin",
                  "convert it where transformers is installed: from_pretrained(DIR).save_pretrained(NEW_DIR) writes "
                  "safetensors");
    throw_error(Fault::data, folder.string(), fmt::format("{} or {}", one_file, index_file), "neither",
                "give a folder that save_pretrained() or apps/export --format hf has written");
  }
  digest_ = hasher.digest();
}

void Safetensors::add(const Path& path, Hasher& hasher) {
  const File file = files_.open(path);
  const std::uint64_t file_bytes = file.stat().size_bytes;
  std::uint64_t header_bytes = 0;
  if (file_bytes < sizeof header_bytes) broken(path, "", "a header", fmt::format("{} bytes", file_bytes));
  file.read_at(std::as_writable_bytes(std::span{&header_bytes, 1}), 0);
  if (header_bytes > most_header_bytes || header_bytes > file_bytes - sizeof header_bytes)
    broken(path, "", fmt::format("a header of at most {} bytes that the file holds", most_header_bytes),
           fmt::format("{} bytes", header_bytes));
  std::string text(header_bytes, '\0');
  file.read_at(std::as_writable_bytes(std::span{text.data(), text.size()}), sizeof header_bytes);
  if (!text.starts_with('{')) broken(path, "", "a header that begins with {", "another character");
  hasher.update(text);

  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  const std::uint64_t data = sizeof header_bytes + header_bytes;
  for (const auto& [key, value] : object_of(path, text)) {
    const std::string name{key};
    if (name == "__metadata__") {
      const bool strings = value.is_object() && std::ranges::all_of(value.get_object(), [](const auto& member) {
                             return member.value().is_string();
                           });
      if (!strings) broken(path, "__metadata__", "texts", boost::json::serialize(value));
      continue;
    }
    Described tensor = described(path, name, value);
    tensor.entry.file = paths_.size();
    tensor.entry.begin = data + tensor.begin;
    ranges.emplace_back(tensor.begin, tensor.end);
    const auto [at, is_new] = tensors_.emplace(name, std::move(tensor.entry));
    if (!is_new)
      broken(path, fmt::format("tensor \"{}\"", name), "a name that no other file has",
             paths_[at->second.file].string());
  }
  std::ranges::sort(ranges);
  std::uint64_t end = 0;
  for (const auto& [from, to] : ranges) {
    if (from != end)
      broken(path, "", "tensors one after another, without holes or overlaps",
             fmt::format("one that begins at byte {}, where the one before ends at {}", from, end));
    end = to;
  }
  if (end != file_bytes - data)
    broken(path, "", fmt::format("{} bytes of tensors, as the header says", end), fmt::format("{}", file_bytes - data));
  paths_.push_back(path);
}

void Safetensors::read(const std::string& name, std::int64_t begin, std::span<float> to) const {
  const Entry& entry = tensors_.at(name);
  const Path& path = paths_[entry.file];
  ARGOSY_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(to.size()) <= entry.elements(), "{} of {}", begin, name);
  const File file = files_.open(path);
  const auto at = static_cast<std::uint64_t>(begin);
  if (entry.type == "F32") return file.read_at(std::as_writable_bytes(to), entry.begin + at * sizeof(float));
  if (entry.type != "F16" && entry.type != "BF16")
    throw_error(Fault::data, fmt::format("{}, tensor \"{}\"", path.string(), name), "F32, F16 or BF16", entry.type,
                "convert the weights to one of these types");
  std::vector<std::uint16_t> halves(to.size());
  file.read_at(std::as_writable_bytes(std::span{halves}), entry.begin + at * sizeof(std::uint16_t));
  std::ranges::transform(halves, to.begin(), entry.type == "BF16" ? f32_from_bf16 : f32_from_f16);
}

void read_ranges(const Safetensors& tensors, const std::vector<ParameterRange>& ranges, std::int64_t begin,
                 std::span<float> to) {
  const std::int64_t end = begin + std::ssize(to);
  for (const ParameterRange& range : ranges) {
    const std::int64_t from = std::max(begin, range.begin), until = std::min(end, range.begin + range.elements);
    if (from >= until) continue;
    tensors.read(range.tensor, from - range.begin,
                 to.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(until - from)));
  }
}

}  // namespace argosy::interchange
