#include "checkpoint/manifest_layout.hpp"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace argosy::checkpoint {

namespace json = boost::json;

json::object layout_sections(const Manifest& manifest) {
  json::array params, units;
  for (std::size_t u = 0; u < manifest.spaces.size(); ++u) {
    const partition::FlatSpace& space = manifest.spaces[u];
    json::array places;
    for (std::size_t p = 0; p < space.params().size(); ++p) {
      const partition::ParamSpec& param = space.params()[p];
      places.push_back(json::array{params.size(), space.offset(p)});
      params.push_back(json::object{{"id", params.size()},
                                    {"name", param.name},
                                    {"shape", json::array(param.shape.begin(), param.shape.end())},
                                    {"dtype", name_of(manifest.weights)},
                                    {"decay", param.decay}});
    }
    json::object& unit = units
                             .emplace_back(json::object{{"id", u},
                                                        {"name", manifest.unit_names[u]},
                                                        {"slice", space.slice_size()},
                                                        {"slices", space.slices()},
                                                        {"pad", space.padded_size() - space.used_size()},
                                                        {"align", partition::unit_alignment},
                                                        {"params", std::move(places)}})
                             .get_object();
    if (!space.members().empty()) unit["ranks"] = json::array(space.members().begin(), space.members().end());
  }
  const partition::FlatSpace& first = manifest.spaces.front();
  const auto& nodes = first.layout().node_sizes();
  return {{"params", std::move(params)},
          {"units", std::move(units)},
          {"parallel",
           {{"world", manifest.world()},
            {"nodes", json::array(nodes.begin(), nodes.end())},
            {"owner", json::array(first.owners().begin(), first.owners().end())}}}};
}

namespace {

/// All parameters have one element type, that of the weights; without any it is f32.
std::vector<partition::ParamSpec> read_params(const Fields& fields, Manifest& manifest) {
  constexpr std::size_t most_dimensions = 16;
  std::int64_t total_room = std::int64_t{1} << 48;  // elements: sums and products of extents cannot overflow
  std::vector<partition::ParamSpec> params;
  std::set<std::string> names;
  fields.for_each("params", [&](const Fields& entry) {
    const std::string dtype = entry.text("dtype");
    entry.require(dtype == "f32" || dtype == "bf16", "dtype", "f32 or bf16");
    if (params.empty()) manifest.weights = dtype == "bf16" ? DType::bf16 : DType::f32;
    entry.require(dtype == name_of(manifest.weights), "dtype",
                  fmt::format("{}, the type of the first parameter", name_of(manifest.weights)));
    partition::ParamSpec param{.name = entry.text("name"), .shape = {}, .decay = entry.flag("decay")};
    entry.require(names.insert(param.name).second, "name", "a name that no other parameter has");
    entry.require(entry.count("id") == std::ssize(params), "id", std::to_string(params.size()));
    entry.require(entry.list("shape").size() <= most_dimensions, "shape", "at most 16 dimensions");
    std::int64_t room = total_room;
    for (const json::value& extent : entry.list("shape")) {
      param.shape.push_back(entry.count_of(extent, "shape", room));
      room /= std::max<std::int64_t>(param.shape.back(), 1);
    }
    total_room -= param.numel();
    params.push_back(std::move(param));
  });
  return params;
}

partition::Layout read_layout(const Fields& fields, std::size_t shards) {
  const Fields parallel = fields.object("parallel");
  constexpr std::int64_t most_ranks = 1 << 20;
  constexpr std::size_t most_slices = 1 << 27;  // of all units: bounds the memory a manifest can ask for
  const std::int64_t world = parallel.count("world", most_ranks);
  std::vector<int> nodes;
  std::int64_t ranks = 0;
  for (const json::value& size : parallel.list("nodes")) {
    nodes.push_back(narrow<int>(parallel.count_of(size, "nodes", most_ranks)));
    parallel.require(nodes.back() > 0, "nodes", "at least one rank per node");
    ranks += nodes.back();
  }
  parallel.require(!nodes.empty() && ranks == world && static_cast<std::size_t>(world) == shards, "world",
                   "the number of ranks in /parallel/nodes and of entries in /shards");
  const auto slots = static_cast<std::size_t>(*std::max_element(nodes.begin(), nodes.end()));
  parallel.require(nodes.size() * slots * fields.list("units").size() <= most_slices, "nodes",
                   fmt::format("at most {} slices", most_slices));
  parallel.require(parallel.list("owner").size() == nodes.size() * slots, "owner", "one owner per slice");
  return partition::Layout{std::move(nodes)};
}

/// The space of a unit that only some ranks share.
partition::FlatSpace read_part(const Fields& unit, std::vector<partition::ParamSpec> params,
                               const partition::Layout& layout) {
  std::vector<int> members;
  for (const json::value& rank : unit.list("ranks")) {
    members.push_back(narrow<int>(unit.count_of(rank, "ranks", layout.world() - 1)));
    unit.require(members.size() == 1 || members.back() > members[members.size() - 2], "ranks",
                 "ranks in ascending order");
  }
  unit.require(!members.empty(), "ranks", "at least one rank");
  const partition::Layout part = layout.part(members);
  return partition::FlatSpace{std::move(params), part}.among(std::move(members), layout.world());
}

}  // namespace

void read_layout_sections(const Fields& fields, Manifest& manifest) {
  const partition::Layout layout = read_layout(fields, fields.list("shards").size());
  const std::vector<partition::ParamSpec> params = read_params(fields, manifest);
  std::size_t next = 0;
  fields.for_each("units", [&](const Fields& unit) {
    const std::size_t count = unit.list("params").size();
    unit.require(count <= params.size() - next, "params", fmt::format("at most {} parameters", params.size() - next));
    const auto first = params.begin() + static_cast<std::ptrdiff_t>(next);
    std::vector<partition::ParamSpec> own{first, first + static_cast<std::ptrdiff_t>(count)};
    const partition::FlatSpace space =
        unit.has("ranks") ? read_part(unit, std::move(own), layout) : partition::FlatSpace{std::move(own), layout};
    for (std::size_t p = 0; p < count; ++p) {
      const json::array place{next + p, space.offset(p)};
      unit.require(unit.list("params")[p] == place, "params", "the entry " + json::serialize(place));
    }
    unit.require(unit.count("slice") == space.slice_size() && unit.count("slices") == space.slices() &&
                     unit.count("align") == partition::unit_alignment &&
                     unit.count("pad") == space.padded_size() - space.used_size(),
                 "slice", "slice, slices, align and pad that follow from /params and /parallel");
    manifest.unit_names.push_back(unit.text("name"));
    manifest.spaces.push_back(space);
    next += count;
  });
  fields.require(next == params.size() && !manifest.spaces.empty(), "units", "each parameter in a unit");
  fields.require(manifest.spaces.front().members().empty(), "units",
                 "a first unit without ranks, which all ranks share");
  const Fields parallel = fields.object("parallel");
  parallel.require(std::ranges::equal(parallel.list("owner"), manifest.spaces.front().owners(),
                                      [](const json::value& said, int owner) { return said == owner; }),
                   "owner", "the owners that follow from /parallel/nodes");
}

}  // namespace argosy::checkpoint
