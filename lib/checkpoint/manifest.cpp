#include "checkpoint/manifest.hpp"

#include <hdf5.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <iterator>
#include <map>
#include <utility>

#include "checkpoint/fields.hpp"
#include "checkpoint/manifest_layout.hpp"
#include "comm/launcher.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"
#include "core/version.hpp"

namespace argosy::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::string_view format_name = "argosy-checkpoint";
constexpr std::string_view self_key = "\"self\":\"", self_end = "\"\n}\n";
constexpr std::size_t self_line_bytes = self_key.size() + 32 + self_end.size();

/// The columns of /index in creation order.
constexpr std::pair<const char*, DType> index_columns[] = {
    {"param_id", DType::u32}, {"begin", DType::u64}, {"end", DType::u64}, {"offset", DType::u64}, {"unit", DType::u32}};

/// The members of Sections under their names in the file, in its order.
constexpr std::pair<const char*, json::object Sections::*> section_members[] = {
    {"model", &Sections::model},       {"optimizer", &Sections::optimizer}, {"schedule", &Sections::schedule},
    {"counters", &Sections::counters}, {"data", &Sections::data},           {"rng", &Sections::rng},
    {"metrics", &Sections::metrics},   {"best", &Sections::best},           {"soup", &Sections::soup}};

bool contains(const std::vector<spec::StateTensor>& tensors, std::string_view name) {
  return std::ranges::find(tensors, name, &spec::StateTensor::name) != tensors.end();
}

/// Minor version from which on readers understand what is stored.
int needs_reader(const Manifest& manifest) {
  if (manifest.minor() > usual_minor) return manifest.minor();
  std::vector<std::string_view> known{spec::weights_tensor};
  if (manifest.has_optimizer_state()) known.insert(known.end(), spec::adam_moments.begin(), spec::adam_moments.end());
  if (manifest.has_mean()) known.emplace_back(spec::mean_tensor);
  const bool alike = std::ranges::all_of(manifest.tensors, [&](const std::vector<spec::StateTensor>& tensors) {
    return std::ranges::equal(tensors, known, {}, &spec::StateTensor::name);
  });
  return !alike ? 3 : manifest.has_mean() ? 2 : manifest.weights != DType::f32 ? 1 : 0;
}

json::object document_of(const Manifest& manifest) {
  const int for_minor = needs_reader(manifest);
  json::object document{{"format", format_name},
                        {"format_version", {{"major", format_major}, {"minor", manifest.minor()}}},
                        {"min_reader", {{"major", format_major}, {"minor", for_minor}}},
                        {"writer", {{"version", version()}, {"git", revision()}, {"hdf5", H5_VERS_INFO}}},
                        {"run_uuid", manifest.run_uuid},
                        {"save_nonce", manifest.save_nonce},
                        {"kind", manifest.kind == Kind::temp ? "temp" : "export"},
                        {"complete", manifest.has_optimizer_state()},
                        {"ema", manifest.has_mean()},
                        {"finite", manifest.finite},
                        {"step", manifest.step},
                        {"wall_time", timestamp_text(manifest.wall_time_s)},
                        {"slurm",
                         {{"job", comm::environment_variable("SLURM_JOB_ID").value_or("")},
                          {"restart", comm::environment_variable("SLURM_RESTART_COUNT").value_or("")}}}};
  for (const auto& [name, member] : section_members) {
    if (!(manifest.sections.*member).empty()) document[name] = manifest.sections.*member;
  }
  if (!manifest.sections.history.empty()) document["history"] = manifest.sections.history;
  json::object bits = take_float_bits(document);
  document["float_bits"] = std::move(bits);
  for (auto& member : layout_sections(manifest)) document[member.key()] = std::move(member.value());

  json::object datasets;
  const std::vector<DatasetSpec> specs = manifest.specs(0);
  auto spec = specs.begin();
  const auto add = [&](const char* per_rank) -> json::object& {
    datasets[spec->name] = {{"dtype", name_of(spec->dtype)}, {"per_rank", per_rank}};
    return datasets[(spec++)->name].get_object();
  };
  for (const std::vector<spec::StateTensor>& tensors : manifest.tensors) {
    for (const spec::StateTensor& tensor : tensors) {
      json::object& entry = add("slices owned");
      if (tensor.block != 1) entry["block"] = tensor.block;
      if (tensor.covers != spec::Covers::all) entry["decay"] = tensor.covers == spec::Covers::with_decay;
    }
  }
  while (spec != specs.end()) add("intervals");
  json::array shards, files;
  std::uint64_t bytes = 0;
  for (const Manifest::Shard& shard : manifest.shards) {
    bytes += shard.size_bytes;
    shards.push_back({{"file", shard_name(narrow<int>(shards.size()), manifest.world())},
                      {"bytes", shard.size_bytes},
                      {"root_digest", shard.root.hex()}});
  }
  for (const Manifest::Attached& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.size_bytes}, {"xxh3", file.digest.hex()}});
  document["datasets"] = std::move(datasets);
  document["shards"] = std::move(shards);
  document["files"] = std::move(files);
  document["save"] = {{"bytes", bytes}, {"seconds", manifest.save_seconds}};
  return document;
}

void check_version(const Fields& fields, const std::string& where) {
  fields.require(fields.text("format") == format_name, "format", std::string(format_name));
  const Fields version = fields.object("format_version"), wanted = fields.object("min_reader");
  const std::int64_t major = version.count("major"), minor = version.count("minor");
  const std::int64_t wanted_major = wanted.count("major"), wanted_minor = wanted.count("minor");
  if (major == format_major && wanted_major <= format_major && wanted_minor <= format_minor) return;
  const std::string needs =
      major == format_major ? fmt::format(", which needs a reader of format {}.{} or newer", wanted_major, wanted_minor)
                            : "";
  throw Error{Fault::usage,
              {.sentence = fmt::format("{}: the checkpoint has format {}.{}{}; this Argosy reads format {}.{}; "
                                       "use a newer Argosy",
                                       where, major, minor, needs, format_major, format_minor),
               .wanted = fmt::format("a checkpoint for readers of format {}.{} or older", format_major, format_minor),
               .got = fmt::format("format {}.{}, for readers of {}.{}", major, minor, wanted_major, wanted_minor),
               .where = where,
               .remedy = "use a newer Argosy"}};
}

void read_files(const Fields& fields, Manifest& manifest) {
  fields.for_each("shards", [&](const Fields& shard) {
    const std::string name = shard_name(narrow<int>(manifest.shards.size()), manifest.world());
    shard.require(shard.text("file") == name, "file", fmt::format("\"{}\"", name));
    manifest.shards.push_back({static_cast<std::uint64_t>(shard.count("bytes")), shard.digest("root_digest")});
  });
  fields.for_each("files", [&](const Fields& file) {
    manifest.files.push_back({file.text("name"), static_cast<std::uint64_t>(file.count("bytes")), file.digest("xxh3")});
    const std::string& name = manifest.files.back().name;
    file.require(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos, "name", "a plain file name");
  });
}

/// What is stored of each unit, by the names of the datasets.
void read_tensors(const Fields& fields, Manifest& manifest) {
  std::map<std::string_view, std::size_t> units;
  for (const std::string& name : manifest.unit_names) units.emplace(name, units.size());
  fields.require(units.size() == manifest.unit_names.size(), "units", "a different name for each");
  constexpr std::string_view prefix = "unit/";
  constexpr std::size_t most_tensors = 64;  // of a unit
  manifest.tensors.resize(units.size());
  const Fields datasets = fields.object("datasets");
  for (const auto& dataset : fields.members("datasets")) {
    const std::string_view key = dataset.key();
    if (!key.starts_with(prefix)) continue;
    const std::size_t end = std::max(key.rfind('/'), prefix.size());
    const auto unit = units.find(key.substr(prefix.size(), end - prefix.size()));
    const std::string name(key.substr(std::min(end + 1, key.size())));
    if (unit == units.end() || name.empty())
      datasets.fail(key, "a name of the form unit/UNIT/TENSOR", std::string(key));
    std::vector<spec::StateTensor>& tensors = manifest.tensors[unit->second];
    const bool narrow = manifest.weights == DType::bf16 && name == "param";
    const Fields entry = datasets.object(key);
    spec::StateTensor tensor{narrow ? std::string(spec::weights_tensor) : name};
    for (const DType dtype : {DType::u8, DType::bf16})
      if (!narrow && entry.text("dtype") == name_of(dtype)) tensor.dtype = dtype;
    if (entry.has("block")) {
      tensor.block = entry.count("block");
      entry.require(tensor.block > 1 && partition::unit_alignment % tensor.block == 0, "block",
                    fmt::format("a divisor of {}", partition::unit_alignment));
    }
    if (entry.has("decay"))
      tensor.covers = entry.flag("decay") ? spec::Covers::with_decay : spec::Covers::without_decay;
    if (tensor.name == spec::weights_tensor || tensor.name == spec::mean_tensor)
      datasets.require(tensor.is_plain(), key, "an f32 for each weight");
    fields.require(tensors.size() < most_tensors && !contains(tensors, tensor.name), "datasets",
                   fmt::format("at most {} tensors per unit, each once", most_tensors));
    tensors.push_back(std::move(tensor));
  }
  const std::size_t weight_units = manifest.weight_units();
  bool in_order = weight_units > 0;
  for (std::size_t unit = 0; unit < manifest.tensors.size(); ++unit) {
    const std::vector<spec::StateTensor>& tensors = manifest.tensors[unit];
    in_order = in_order && !tensors.empty() &&
               (tensors.front().name == spec::weights_tensor) == (unit < weight_units) &&
               (contains(tensors, spec::mean_tensor) == (unit < weight_units && manifest.has_mean()) ||
                (unit < weight_units && tensors.size() == 1));
  }
  fields.require(in_order, "datasets",
                 "weights first in each unit, a running mean in all units that have more than weights, or in none, and "
                 "units without weights last");
  const auto require_flag = [&](bool said, const char* key, bool stored, const char* what) {
    fields.require(
        said == stored, key,
        stored ? fmt::format("true (/datasets lists {})", what) : fmt::format("false (/datasets lists no {})", what));
  };
  require_flag(fields.flag("complete"), "complete", manifest.has_optimizer_state(), "optimizer state");
  require_flag(fields.has("ema") && fields.flag("ema"), "ema", manifest.has_mean(), "running mean");
  if (manifest.weights != DType::f32 && (manifest.has_optimizer_state() || manifest.has_mean()))
    fields.fail("params", "weights in f32, because the checkpoint also holds optimizer state or a running mean",
                std::string(name_of(manifest.weights)));
  for (const DatasetSpec& spec : manifest.specs(0)) {
    datasets.require(datasets.object(spec.name).text("dtype") == name_of(spec.dtype), spec.name,
                     fmt::format("the dtype {}", name_of(spec.dtype)));
  }
}

/// Shards are large enough for the parameters, so that no reader allocates more memory than there are bytes on disk.
void check_room(const Fields& fields, const Manifest& manifest) {
  constexpr std::uint64_t largest = 1ULL << 43;  // of a shard: the sum over 2^20 of them cannot overflow
  std::uint64_t room = 0, needed = 0;
  for (const Manifest::Shard& shard : manifest.shards) room += std::min(shard.size_bytes, largest);
  for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
    for (const partition::ParamSpec& param : manifest.spaces[unit].params()) {
      for (const spec::StateTensor& tensor : manifest.tensors[unit]) {
        const DType dtype = tensor.name == spec::weights_tensor ? manifest.weights : tensor.dtype;
        if (tensor.is_for(param)) needed += static_cast<std::uint64_t>(param.numel() / tensor.block) * size_of(dtype);
      }
    }
  }
  fields.require(needed <= room, "shards", fmt::format("files of at least {} bytes in all", needed));
}

void read_sections(json::object document, Manifest& manifest, const Fields& fields, const std::string& where) {
  if (const json::value* const bits = document.if_contains("float_bits")) {
    fields.require(bits->is_object(), "float_bits", "an object");
    restore_float_bits(document, json::object(bits->get_object()), where);
  }
  for (const auto& [name, member] : section_members) {
    if (json::value* const value = document.if_contains(name)) {
      fields.require(value->is_object(), name, "an object");
      manifest.sections.*member = value->get_object();
    }
  }
  if (json::value* const history = document.if_contains("history")) {
    fields.require(history->is_array(), "history", "a list");
    manifest.sections.history = history->get_array();
  }
}

/// The text before the digest line. Throws Error{corrupt} unless that line is right.
std::string_view checked_body(std::string_view text, const std::string& where) {
  const auto fail = [&](const std::string& got) {
    throw Error{
        Fault::corrupt,
        {.sentence = where + " does not end with its own digest: it was edited, cut short or damaged; use another "
                             "checkpoint",
         .wanted = "a manifest that ends with its own digest",
         .got = got,
         .where = where,
         .remedy = "use another checkpoint"}};
  };
  if (text.size() < self_line_bytes) fail(fmt::format("{} bytes", text.size()));
  const std::string_view body = text.substr(0, text.size() - self_line_bytes);
  const std::string_view line = text.substr(body.size());
  const std::string wanted = std::string(self_key) + digest_of(body).hex() + std::string(self_end);
  if (line != wanted) fail("another last line");
  return body;
}

}  // namespace

std::size_t Manifest::weight_units() const noexcept {
  return static_cast<std::size_t>(std::count_if(tensors.begin(), tensors.end(),
                                                [](const auto& unit) { return contains(unit, spec::weights_tensor); }));
}

bool Manifest::has_mean() const noexcept {
  return std::ranges::any_of(tensors, [](const auto& unit) { return contains(unit, spec::mean_tensor); });
}

bool Manifest::has_optimizer_state() const noexcept {
  return std::ranges::any_of(tensors, [](const std::vector<spec::StateTensor>& unit) {
    return std::ranges::any_of(unit, [](const spec::StateTensor& tensor) {
      return tensor.name != spec::weights_tensor && tensor.name != spec::mean_tensor;
    });
  });
}

int Manifest::minor() const noexcept {
  const bool plain = std::ranges::all_of(
      tensors, [](const auto& unit) { return std::ranges::all_of(unit, &spec::StateTensor::is_plain); });
  const bool everywhere = std::ranges::all_of(spaces, [](const auto& space) { return space.members().empty(); });
  return !everywhere ? format_minor : plain ? usual_minor : other_tensors_minor;
}

std::vector<DatasetSpec> Manifest::specs(int rank) const {
  std::vector<DatasetSpec> specs;
  std::uint64_t intervals = 0;
  for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
    for (const spec::StateTensor& tensor : tensors[unit]) {
      const bool narrow = weights == DType::bf16 && tensor.name == spec::weights_tensor;
      const spec::OwnedPart part = spec::owned_parts(spaces[unit], tensor)[static_cast<std::size_t>(rank)];
      specs.push_back({fmt::format("unit/{}/{}", unit_names[unit], narrow ? "param" : tensor.name),
                       narrow ? DType::bf16 : tensor.dtype, static_cast<std::uint64_t>(part.size)});
    }
    intervals += partition::intervals_of(spaces[unit], rank).size();
  }
  for (const auto& [name, dtype] : index_columns) specs.push_back({fmt::format("index/{}", name), dtype, intervals});
  return specs;
}

std::vector<std::vector<std::byte>> Manifest::index(int rank) const {
  std::vector<std::vector<std::byte>> columns(std::size(index_columns));
  const auto add_row = [&](auto... numbers) {
    auto column = columns.begin();
    const auto add = [&](const auto& number) {
      std::ranges::copy(std::as_bytes(std::span{&number, 1}), std::back_inserter(*column++));
    };
    (add(numbers), ...);
  };
  std::size_t first_param = 0;
  for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
    for (const partition::Interval& interval : partition::intervals_of(spaces[unit], rank))
      add_row(static_cast<std::uint32_t>(first_param + interval.param), interval.begin, interval.end,
              interval.local_offset, static_cast<std::uint32_t>(unit));
    first_param += spaces[unit].params().size();
  }
  return columns;
}

std::string with_self_digest(std::string body) {
  const std::string digest = digest_of(std::string_view{body}).hex();
  return body.append(self_key).append(digest).append(self_end);
}

std::string text_of(const Manifest& manifest) {
  ARGOSY_CHECK(!manifest.spaces.empty() && manifest.spaces.size() == manifest.unit_names.size(), "units without names");
  std::string body = "{\n";
  for (const auto& member : document_of(manifest)) {
    body += json::serialize(json::value(member.key())) + ":";
    if (member.value().is_array()) {  // one element a line: people read it, and tools compare it
      body += "[";
      const char* separator = "\n";
      for (const json::value& element : member.value().get_array()) {
        body += separator + json::serialize(element);
        separator = ",\n";
      }
      body += "]";
    } else {
      body += json::serialize(member.value());
    }
    body += ",\n";
  }
  return with_self_digest(replace_invalid_utf8(body));  // names of folders need not be UTF-8
}

ParsedManifest parse_manifest(std::string_view text, const std::string& where) {
  const std::string_view body = checked_body(text, where);
  json::error_code error;
  json::value root = json::parse({text.data(), text.size()}, error);
  if (error || !root.is_object())
    throw_error(Fault::corrupt, where, "a JSON object", error.message(), "use another checkpoint");
  ParsedManifest parsed{.manifest = {}, .document = std::move(root.get_object()), .self = {}};
  parsed.self = std::string(text.substr(body.size() + self_key.size(), 32));
  const Fields fields{parsed.document, "", where};
  check_version(fields, where);

  Manifest& manifest = parsed.manifest;
  manifest.run_uuid = fields.text("run_uuid");
  manifest.save_nonce = fields.text("save_nonce");
  const std::string kind = fields.text("kind");
  fields.require(kind == "temp" || kind == "export", "kind", "temp or export");
  manifest.kind = kind == "temp" ? Kind::temp : Kind::export_;
  manifest.finite = fields.flag("finite");
  manifest.step = fields.count("step");
  read_layout_sections(fields, manifest);
  read_files(fields, manifest);
  read_tensors(fields, manifest);
  check_room(fields, manifest);
  read_sections(parsed.document, manifest, fields, where);
  return parsed;
}

}  // namespace argosy::checkpoint
