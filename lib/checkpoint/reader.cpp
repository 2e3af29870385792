#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_set.hpp"
#include "core/error.hpp"
#include "partition/reshard.hpp"

namespace argosy::checkpoint {
namespace {

/// A checkpoint's parameters over all its units, in one numbering.
struct Place {
  std::size_t unit = 0, index = 0;  // in that unit's space
};

constexpr const char* name_another = "give a checkpoint of this model";

struct Numbers {
  std::int64_t begin = 0, size = 0;
};
/// Where a tensor has those of elements [begin, begin + length), counted from the first that it is for.
Numbers numbers_of(const spec::StateTensor& tensor, std::int64_t begin, std::int64_t length) {
  return {begin / tensor.block, (length + tensor.block - 1) / tensor.block};
}

#ifdef NDEBUG
constexpr bool checks_every_element = false;
#else
constexpr bool checks_every_element = true;
#endif
/// In debug builds, what an element holds until it is read: a NaN that arithmetic does not make.
constexpr float unread = std::bit_cast<float>(0x7fa5f00dU);

bool has_unread(std::span<const float> tensor) {
  return std::any_of(tensor.begin(), tensor.end(), [](float value) {
    return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(unread);
  });
}

/// Blocks up to and with each shard, in one pass over all ranks.
std::vector<std::uint64_t> block_ends(const Manifest& manifest, std::span<const partition::Interval> intervals) {
  const auto world = static_cast<std::size_t>(manifest.world());
  std::vector<std::int64_t> pieces(world, 0);
  for (const partition::Interval& interval : intervals) ++pieces[static_cast<std::size_t>(interval.rank)];
  std::vector<DatasetSpec> specs = manifest.specs(0);  // of other ranks other sizes alone
  auto spec = specs.begin();
  std::vector<std::uint64_t> blocks(world, 0);
  const auto add = [&](std::size_t rank, std::int64_t elements) {
    spec->elements = static_cast<std::uint64_t>(elements);
    blocks[rank] += spec->blocks();
  };
  for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
    for (const spec::StateTensor& tensor : manifest.tensors[unit]) {
      const std::vector<spec::OwnedPart> parts = spec::owned_parts(manifest.spaces[unit], tensor);
      for (std::size_t rank = 0; rank < world; ++rank) add(rank, parts[rank].size);
      ++spec;
    }
  }
  for (; spec != specs.end(); ++spec)
    for (std::size_t rank = 0; rank < world; ++rank) add(rank, pieces[rank]);
  std::partial_sum(blocks.begin(), blocks.end(), blocks.begin());
  return blocks;
}

}  // namespace

struct Reader::Impl {
  Impl(const Files& files_to_use, Path folder, ParsedManifest parsed_manifest, const Clock* clock = nullptr)
      : files(files_to_use),
        directory(std::move(folder)),
        parsed(std::move(parsed_manifest)),
        shards(files, directory, parsed.manifest, clock) {
    const std::size_t weight_units = manifest().weight_units();
    std::size_t datasets = 0;
    for (std::size_t unit = 0; unit < manifest().spaces.size(); ++unit) {
      const auto& params = manifest().spaces[unit].params();
      for (std::size_t index = 0; index < params.size(); ++index) {
        ids.emplace(params[index].name, places.size());
        places.push_back({unit, index});
        if (unit < weight_units) parameters.push_back({params[index].name, params[index].shape, unit});
      }
      first_datasets.push_back(datasets);
      datasets += manifest().tensors[unit].size();
    }
  }

  [[nodiscard]] const Manifest& manifest() const { return parsed.manifest; }
  /// Where a shard has a tensor of a unit: the weights may be meant to be their mean, and where there is no mean the
  /// weights are one, also of a unit that is not trained. nullopt: it is not stored.
  [[nodiscard]] std::optional<std::size_t> dataset(std::size_t unit, spec::StateTensor tensor) const {
    if (tensor.name == spec::weights_tensor && uses_ema) tensor.name = spec::mean_tensor;
    const std::vector<spec::StateTensor>& tensors = manifest().tensors[unit];
    if (tensor.name == spec::mean_tensor &&
        std::ranges::find(tensors, tensor.name, &spec::StateTensor::name) == tensors.end())
      tensor.name = spec::weights_tensor;
    const auto found = std::find(tensors.begin(), tensors.end(), tensor);
    if (found == tensors.end()) return std::nullopt;
    return first_datasets[unit] + static_cast<std::size_t>(found - tensors.begin());
  }
  [[nodiscard]] std::size_t weights_of(std::size_t unit) const {
    return *dataset(unit, {std::string(spec::weights_tensor)});
  }
  [[nodiscard]] const partition::ParamSpec& param(std::size_t id) const {
    return manifest().spaces[places[id].unit].params()[places[id].index];
  }

  /// Of the first `among` of all parameters. Throws Error{data} for another name.
  [[nodiscard]] std::size_t id_of(const std::string& name, std::size_t among) const {
    const auto found = ids.find(name);
    if (found != ids.end() && found->second < among) return found->second;
    throw_claim(Fault::data, fmt::format("{}: the checkpoint has no parameter {}", directory.string(), name),
                directory.string(), "parameter " + name, fmt::format("{} other parameters", parameters.size()),
                name_another);
  }

  /// Throws Error{data} unless the tensor is stored of those of `params` that it is for. ids: theirs.
  void require_tensor(const spec::StateTensor& tensor, std::span<const partition::ParamSpec> params,
                      std::span<const std::size_t> ids_of) const {
    const auto is_stored = [&](const partition::ParamSpec& wanted, std::size_t id) {
      return !tensor.is_for(wanted) || (tensor.is_for(param(id)) && dataset(places[id].unit, tensor));
    };
    if (std::equal(params.begin(), params.end(), ids_of.begin(), is_stored)) return;
    const std::string& name = tensor.name;
    const std::string got = manifest().has_optimizer_state() ? "the state of another optimizer" : "weights only";
    throw_claim(Fault::data, fmt::format("{}: the checkpoint holds {}: it has no {}", directory.string(), got, name),
                directory.string(), "optimizer state (" + name + ")", got,
                "resume from a checkpoint that was saved with this optimizer");
  }

  /// Intervals of all units, params numbered over all units, by (param, begin). Throws Error{corrupt} unless they hold
  /// every element once.
  const std::vector<partition::Interval>& stored_intervals() {
    if (intervals.empty()) {
      std::size_t first = 0;
      for (const partition::FlatSpace& space : manifest().spaces) {
        for (partition::Interval interval : partition::intervals_of(space)) {
          interval.param += first;
          intervals.push_back(interval);
        }
        first += space.params().size();
      }
      std::vector<std::int64_t> numels;
      std::vector<std::string> names;
      for (std::size_t id = 0; id < places.size(); ++id) {
        numels.push_back(param(id).numel());
        names.push_back(param(id).name);
      }
      partition::check_cover(directory.string(), intervals, numels, names);
    }
    return intervals;
  }

  Files files;
  Path directory;
  ParsedManifest parsed;
  ShardSet shards;
  std::vector<Parameter> parameters;
  std::vector<Place> places;                // by parameter, then of those that are an optimizer's
  std::vector<std::size_t> first_datasets;  // by unit
  std::map<std::string, std::size_t, std::less<>> ids;
  std::vector<partition::Interval> intervals;
  bool uses_ema = false;
};

namespace {

ParsedManifest read_manifest(const Files& files, const Path& directory) {
  const Path path = directory / manifest_name;
  const auto facts = files.stat(path);
  if (!facts) {
    const bool exists = files.exists(directory);
    throw_claim(Fault::data,
                fmt::format("{} {}", directory.string(),
                            exists ? "is not a checkpoint: it has no MANIFEST.json" : "does not exist"),
                directory.string(), "a committed checkpoint",
                exists ? "a folder without a MANIFEST.json" : "no such folder",
                "give a committed checkpoint, such as checkpoints/000001000 of a run");
  }
  if (facts->size_bytes > manifest_limit_bytes)
    throw_error(Fault::corrupt, path.string(), fmt::format("a manifest of at most {} bytes", manifest_limit_bytes),
                fmt::format("{} bytes", facts->size_bytes), "use another checkpoint");
  return parse_manifest(files.read_text(path, manifest_limit_bytes), path.string());
}

void check_size(const Files& files, const Path& path, std::uint64_t size_bytes) {
  const auto facts = files.stat(path);
  if (facts && facts->size_bytes == size_bytes && facts->is_regular) return;
  throw_error(Fault::corrupt, path.string(), fmt::format("a file of {} bytes", size_bytes),
              !facts              ? "no such file"
              : facts->is_regular ? fmt::format("{} bytes", facts->size_bytes)
                                  : "something other than a regular file",
              "the checkpoint is incomplete: use another one, or move this folder away");
}

}  // namespace

Reader::Reader(const Files& files, const Path& directory)
    : impl_(std::make_unique<Impl>(files, directory, read_manifest(files, directory))) {
  for (int rank = 0; rank < impl_->manifest().world(); ++rank)
    check_size(files, impl_->shards.path(rank), impl_->manifest().shards[static_cast<std::size_t>(rank)].size_bytes);
  for (const Manifest::Attached& file : impl_->manifest().files)
    check_size(files, impl_->directory / file.name, file.size_bytes);
}

Reader::Reader(const Files& files, const Path& directory, std::string_view manifest_text, const Clock* clock)
    : impl_(std::make_unique<Impl>(files, directory,
                                   parse_manifest(manifest_text, (directory / manifest_name).string()), clock)) {}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const Path& Reader::directory() const noexcept { return impl_->directory; }
std::int64_t Reader::step() const noexcept { return impl_->manifest().step; }
bool Reader::has_optimizer_state() const noexcept { return impl_->manifest().has_optimizer_state(); }
bool Reader::has_ema() const noexcept { return impl_->manifest().has_mean(); }
std::size_t Reader::weight_units() const noexcept { return impl_->manifest().weight_units(); }
const std::vector<spec::StateTensor>& Reader::tensors(std::size_t unit) const {
  return impl_->manifest().tensors[unit];
}
DType Reader::weights() const noexcept { return impl_->manifest().weights; }
bool Reader::finite() const noexcept { return impl_->manifest().finite; }
const std::string& Reader::run_uuid() const noexcept { return impl_->manifest().run_uuid; }
const std::string& Reader::self_digest() const noexcept { return impl_->parsed.self; }
const Sections& Reader::sections() const noexcept { return impl_->manifest().sections; }
const boost::json::object& Reader::manifest() const noexcept { return impl_->parsed.document; }
const std::vector<Reader::Parameter>& Reader::parameters() const noexcept { return impl_->parameters; }
const std::vector<partition::FlatSpace>& Reader::spaces() const noexcept { return impl_->manifest().spaces; }
const std::vector<std::string>& Reader::unit_names() const noexcept { return impl_->manifest().unit_names; }

std::vector<std::string> Reader::attachments() const {
  std::vector<std::string> names;
  for (const Manifest::Attached& file : impl_->manifest().files) names.push_back(file.name);
  return names;
}

std::string Reader::attachment(const std::string& name) const {
  const auto& files = impl_->manifest().files;
  const auto found = std::ranges::find(files, name, &Manifest::Attached::name);
  const Path path = impl_->directory / name;
  if (found == files.end())
    throw_claim(Fault::data, fmt::format("{}: the checkpoint has no {}", impl_->directory.string(), name),
                impl_->directory.string(), "the file " + name, "a checkpoint without it",
                "use a checkpoint that was saved with its tokenizer");
  std::string content = impl_->files.read_text(path);
  if (content.size() == found->size_bytes && digest_of(std::string_view{content}) == found->digest) return content;
  throw_claim(Fault::corrupt, path.string() + " does not match its digest in MANIFEST.json", path.string(),
              "content with the digest " + found->digest.hex(), digest_of(std::string_view{content}).hex(),
              "it was changed: use another checkpoint");
}

std::vector<float> Reader::read_parameter(const std::string& name) const {
  const std::size_t id = impl_->id_of(name, impl_->parameters.size());
  std::vector<float> values(static_cast<std::size_t>(impl_->param(id).numel()));
  read_elements(id, 0, values);
  return values;
}

void Reader::read_elements(std::size_t index, std::int64_t begin, std::span<float> to) const {
  const std::size_t dataset = impl_->weights_of(impl_->places[index].unit);
  const auto end = begin + static_cast<std::int64_t>(to.size());
  const auto& intervals = impl_->stored_intervals();
  auto at = std::ranges::lower_bound(intervals, index, {}, &partition::Interval::param);
  for (; at != intervals.end() && at->param == index && at->begin < end; ++at) {
    const std::int64_t from = std::max(begin, at->begin), until = std::min(end, at->end);
    if (from >= until) continue;
    impl_->shards.read_floats(
        at->rank, dataset, static_cast<std::uint64_t>(at->local_offset + from - at->begin),
        to.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(until - from)));
  }
}

bool Reader::has(const std::string& parameter) const { return impl_->ids.contains(parameter); }

void Reader::read_state(std::span<const UnitState> units, int canonical_rank, bool hash_blocks) const {
  // Both sides in the stored numbering of parameters.
  std::vector<partition::Interval> wanted;
  std::vector<std::size_t> unit_of(impl_->places.size(), 0);
  std::vector<std::vector<std::int64_t>> firsts(units.size());  // element of the shard, by unit and tensor
  for (std::size_t u = 0; u < units.size(); ++u) {
    const UnitState& unit = units[u];
    const auto& params = unit.space->params();
    std::vector<std::size_t> ids;
    for (const partition::ParamSpec& param : params) {
      ids.push_back(impl_->id_of(param.name, impl_->places.size()));
      const std::vector<std::int64_t>& shape = impl_->param(ids.back()).shape;
      if (shape != param.shape) {
        throw_error(Fault::data, impl_->directory.string(),
                    fmt::format("{} of shape [{}]", param.name, fmt::join(param.shape, ", ")),
                    fmt::format("[{}]", fmt::join(shape, ", ")), name_another);
      }
      unit_of[ids.back()] = u;
    }
    const std::vector<partition::Interval> own_intervals = partition::intervals_of(*unit.space, canonical_rank);
    for (partition::Interval interval : own_intervals) {
      interval.param = ids[interval.param];
      wanted.push_back(interval);
    }
    for (const TensorShard& shard : unit.tensors) {
      const auto [first, size] = spec::owned_parts(*unit.space, shard.tensor)[static_cast<std::size_t>(canonical_rank)];
      firsts[u].push_back(first);
      const auto number = static_cast<std::int64_t>(size_of(shard.tensor.dtype));
      ARGOSY_CHECK(std::ssize(shard.bytes) == size * number, "{} of {}: {} bytes, not {}", shard.tensor.name, unit.name,
                   shard.bytes.size(), size * number);
      impl_->require_tensor(shard.tensor, params, ids);
      auto gap = shard.bytes.begin();  // gaps and pads become zero
      for (const partition::Interval& own : own_intervals) {
        if (!shard.tensor.is_for(params[own.param])) continue;
        const Numbers numbers = numbers_of(shard.tensor, own.local_offset - first, own.end - own.begin);
        const auto begin = shard.bytes.begin() + numbers.begin * number, end = begin + numbers.size * number;
        std::fill(gap, begin, std::byte{});
        if (checks_every_element && !shard.values().empty())
          std::fill_n(shard.values().begin() + numbers.begin, numbers.size, unread);
        gap = end;
      }
      std::fill(gap, shard.bytes.end(), std::byte{});
    }
  }

  impl_->shards.hash_blocks(hash_blocks);
  std::vector<spec::StateTensor> tensors;  // all that are wanted
  for (const UnitState& unit : units) {
    for (const TensorShard& shard : unit.tensors)
      if (std::find(tensors.begin(), tensors.end(), shard.tensor) == tensors.end()) tensors.push_back(shard.tensor);
  }
  // Offsets count within the datasets of one unit, so there is one list of reads for each stored unit. The destination
  // of a move is the index of the wanted unit, so that each block is read once even if several units need it.
  std::map<std::size_t, std::vector<partition::Move>> moves;
  for (partition::Move& move : partition::plan_reshard(impl_->stored_intervals(), std::move(wanted))) {
    move.destination_rank = static_cast<int>(unit_of[move.param]);
    moves[impl_->places[move.param].unit].push_back(move);
  }
  for (const auto& [stored_unit, list] : moves) {
    for (const spec::StateTensor& tensor : tensors) {
      const std::optional<std::size_t> dataset = impl_->dataset(stored_unit, tensor);
      if (!dataset) continue;  // not stored of this unit
      const std::vector<spec::OwnedPart> stored = spec::owned_parts(impl_->manifest().spaces[stored_unit], tensor);
      std::vector<partition::Move> of_numbers;
      for (partition::Move move : list) {
        const auto to = static_cast<std::size_t>(move.destination_rank);
        const auto shard = std::ranges::find(units[to].tensors, tensor, &TensorShard::tensor);
        if (shard == units[to].tensors.end() || !tensor.is_for(impl_->param(move.param))) continue;
        const std::int64_t from = stored[static_cast<std::size_t>(move.source_rank)].begin,
                           first = firsts[to][static_cast<std::size_t>(shard - units[to].tensors.begin())];
        move.source_offset = numbers_of(tensor, move.source_offset - from, move.length).begin;
        const Numbers numbers = numbers_of(tensor, move.destination_offset - first, move.length);
        move.destination_offset = numbers.begin;
        move.length = numbers.size;
        of_numbers.push_back(move);
      }
      const std::size_t number = size_of(tensor.dtype);
      for (const partition::Read& read : partition::reads_of(of_numbers)) {
        const UnitState& unit = units[static_cast<std::size_t>(read.destination_rank)];
        const TensorShard& shard = *std::ranges::find(unit.tensors, tensor, &TensorShard::tensor);
        const auto begin = static_cast<std::size_t>(read.destination_offset),
                   length = static_cast<std::size_t>(read.length);
        const auto offset = static_cast<std::uint64_t>(read.source_offset);
        if (tensor.dtype == DType::f32) {
          impl_->shards.read_floats(read.source_rank, *dataset, offset, shard.values().subspan(begin, length));
        } else {
          impl_->shards.read(read.source_rank, *dataset, offset * number,
                             shard.bytes.subspan(begin * number, length * number));
        }
      }
    }
  }
  impl_->shards.hash_blocks(true);
  if (!checks_every_element) return;
  for (const UnitState& unit : units) {
    for (const TensorShard& shard : unit.tensors)
      ARGOSY_CHECK(!has_unread(shard.values()), "{} of {}: an element was not read", shard.tensor.name, unit.name);
  }
}

Reader::Verified Reader::verify(int part, int parts) const {
  ARGOSY_CHECK(0 <= part && part < parts, "part {} of {}", part, parts);
  const int world = impl_->manifest().world();
  const std::vector<std::uint64_t> ends = block_ends(impl_->manifest(), impl_->stored_intervals());
  const auto share = static_cast<std::uint64_t>(part), shares = static_cast<std::uint64_t>(parts);
  const std::uint64_t begin = ends.back() * share / shares, end = ends.back() * (share + 1) / shares;
  Verified verified;
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::uint64_t first = rank == 0 ? 0 : ends[at - 1];
    const std::uint64_t from = std::max(begin, first), to = std::min(end, ends[at]);
    // One of the parts checks the tables and the index of each shard, also of an empty one.
    if (rank % parts == part) static_cast<void>(impl_->shards.shard(rank));
    if (from < to) impl_->shards.verify(rank, from - first, to - first, verified);
  }
  for (const std::string& name : attachments())
    if (part == 0) verified.bytes += attachment(name).size();
  return verified;
}

void Reader::use_ema() {
  if (!has_ema())
    throw_claim(Fault::data, impl_->directory.string() + ": the checkpoint has no running mean of the weights",
                impl_->directory.string(), "a checkpoint with a running mean of its weights", "one without",
                "leave --ema out, or train with optimizer.ema");
  impl_->uses_ema = true;
}

bool Reader::has_weights_of(const Reader& other) const {
  Impl &a = *impl_, &b = *other.impl_;
  const auto spaces_of = [](const Impl& impl) {
    return std::span{impl.manifest().spaces}.first(impl.manifest().weight_units());
  };
  const std::span<const partition::FlatSpace> spaces = spaces_of(a);
  if (!std::ranges::equal(spaces, spaces_of(b), partition::have_equal_params)) return false;
  if (std::ranges::equal(spaces, spaces_of(b), partition::have_equal_owners) && weights() == other.weights()) {
    for (int rank = 0; rank < a.manifest().world(); ++rank) {
      const auto &own = a.shards.shard(rank).tables, &others = b.shards.shard(rank).tables;
      for (std::size_t unit = 0; unit < spaces.size(); ++unit)
        if (own[a.weights_of(unit)] != others[b.weights_of(unit)]) return false;
    }
    return true;
  }
  constexpr std::int64_t piece = 1 << 16;  // elements
  std::vector<float> own(piece), others(piece);
  WeightStream mine = stream(), theirs = other.stream();
  for (std::size_t param = 0; param < a.parameters.size(); ++param) {
    const std::int64_t size = a.param(param).numel();
    for (std::int64_t begin = 0; begin < size; begin += piece) {
      const auto count = static_cast<std::size_t>(std::min(piece, size - begin));
      mine.read(param, begin, std::span{own}.first(count));
      theirs.read(param, begin, std::span{others}.first(count));
      if (std::memcmp(own.data(), others.data(), count * sizeof(float)) != 0) return false;
    }
  }
  mine.finish();
  theirs.finish();
  return true;
}

WeightStream Reader::stream(std::string_view tensor) const {
  std::vector<std::size_t> datasets;
  for (const Parameter& parameter : parameters()) {
    const std::optional<std::size_t> dataset = impl_->dataset(parameter.unit, {std::string(tensor)});
    ARGOSY_CHECK(dataset.has_value(), "no {} of {}", tensor, parameter.name);
    datasets.push_back(*dataset);
  }
  return {impl_->shards, impl_->stored_intervals(), std::move(datasets)};
}

std::span<float> TensorShard::values() const noexcept {
  if (tensor.dtype != DType::f32) return {};
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> UnitState::tensor(std::string_view of_name) const noexcept {
  const auto found =
      std::ranges::find_if(tensors, [&](const TensorShard& shard) { return shard.tensor.name == of_name; });
  return found == tensors.end() ? std::span<float>{} : found->values();
}

}  // namespace argosy::checkpoint
