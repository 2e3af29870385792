#include "soup/soup.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/vote.hpp"
#include "checkpoint/weight_stream.hpp"
#include "core/error.hpp"
#include "soup/ingredients.hpp"

namespace argosy::soup {
namespace {

using checkpoint::block_bytes;
using checkpoint::Manifest;
using checkpoint::Reader;

constexpr std::int64_t slice_elements = 1 << 17;
constexpr std::int64_t block_elements = block_bytes / sizeof(float);

/// One 4 MiB block of the result.
struct Block {
  int shard;
  std::size_t unit;
  std::int64_t begin, end;  // elements of the shard's dataset
};

/// The result before its weights are known: layout, sections, shards without digests.
Manifest plan_result(const comm::Context& context, const std::vector<Reader>& ingredients, const SoupConfig& config) {
  const Reader& first = ingredients.front();
  std::uint64_t size_bytes = 0;
  for (const partition::FlatSpace& space : first.spaces())
    size_bytes += static_cast<std::uint64_t>(space.used_size()) * sizeof(float);
  const auto shards =
      static_cast<int>(std::max<std::uint64_t>(1, (size_bytes + config.shard_bytes - 1) / config.shard_bytes));

  Manifest result;
  result.run_uuid = first.run_uuid();
  result.kind = checkpoint::Kind::export_;
  result.complete = false;
  result.wall_time_s = context.clock.wall_s();
  result.sections.model = first.sections().model;
  boost::json::array inputs, weights;
  Hasher recipe;
  for (const Reader& reader : ingredients) {
    result.step = std::max(result.step, reader.step());
    inputs.push_back({{"path", reader.directory().string()},
                      {"step", reader.step()},
                      {"run_uuid", reader.run_uuid()},
                      {"manifest", reader.self_digest()}});
    weights.push_back(1.0 / static_cast<double>(ingredients.size()));
    recipe.update(reader.self_digest());
  }
  // Named by its ingredients: the same soup has the same shard files, whoever cooks it.
  result.save_nonce = recipe.digest().hex().substr(0, 16);
  result.sections.soup = {{"recipe", "uniform"}, {"inputs", std::move(inputs)}, {"weights", std::move(weights)}};
  const partition::Layout layout{{shards}};
  for (std::size_t unit = 0; unit < first.spaces().size(); ++unit) {
    result.unit_names.push_back(first.unit_names()[unit]);
    result.spaces.emplace_back(first.spaces()[unit].params(), layout);
  }
  for (int shard = 0; shard < shards; ++shard) result.shards.push_back({checkpoint::shard_name(shard, shards), 0, {}});
  return result;
}

std::vector<Block> blocks_of(const Manifest& result) {
  std::vector<Block> blocks;
  for (int shard = 0; shard < result.world(); ++shard) {
    for (std::size_t unit = 0; unit < result.spaces.size(); ++unit) {
      const std::int64_t size = result.spaces[unit].owned_size(shard);
      for (std::int64_t begin = 0; begin < size; begin += block_elements)
        blocks.push_back({shard, unit, begin, std::min(size, begin + block_elements)});
    }
  }
  return blocks;
}

/// Sums slices of all ingredients.
class Kitchen {
 public:
  Kitchen(const std::vector<Reader>& ingredients, const Manifest& result) : ingredients_(ingredients), result_(result) {
    for (const Reader& reader : ingredients) {
      streams_.push_back(reader.stream());
      std::map<std::string, std::size_t> ids;
      for (std::size_t id = 0; id < reader.parameters().size(); ++id) ids.emplace(reader.parameters()[id].name, id);
      auto& of_unit = ids_.emplace_back();
      for (const partition::FlatSpace& space : result.spaces) {
        auto& of_param = of_unit.emplace_back();
        for (const partition::ParamSpec& param : space.params()) of_param.push_back(ids.at(param.name));
      }
    }
    sum_.resize(slice_elements);
    input_.resize(slice_elements);
  }

  /// Elements [begin, begin + out.size()) of a unit's flat space, averaged; gaps are zero.
  void average(std::size_t unit, std::int64_t begin, std::span<float> out) {
    const partition::FlatSpace& space = result_.spaces[unit];
    const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
    std::size_t first = 0;
    while (first < space.params().size() && space.offset(first) + space.params()[first].numel() <= begin) ++first;
    std::fill_n(sum_.begin(), out.size(), 0.0);
    for (std::size_t k = 0; k < streams_.size(); ++k) {
      for (std::size_t p = first; p < space.params().size() && space.offset(p) < end; ++p) {
        const std::int64_t from = std::max(begin, space.offset(p));
        const std::int64_t to = std::min(end, space.offset(p) + space.params()[p].numel());
        const std::span<float> piece = std::span{input_}.first(static_cast<std::size_t>(to - from));
        streams_[k].read(ids_[k][unit][p], from - space.offset(p), piece);
        if (!checkpoint::all_finite(piece)) refuse_values(k, space.params()[p].name);
        double* const sum = sum_.data() + (from - begin);
        for (std::size_t i = 0; i < piece.size(); ++i) sum[i] += static_cast<double>(piece[i]);
      }
    }
    const auto count = static_cast<double>(streams_.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sum_[i] / count);
  }

  void finish() {
    for (checkpoint::WeightStream& stream : streams_) stream.finish();
  }
  [[nodiscard]] std::uint64_t bytes_read() const {
    std::uint64_t sum = 0;
    for (const checkpoint::WeightStream& stream : streams_) sum += stream.bytes_read();
    return sum;
  }

 private:
  [[noreturn]] void refuse_values(std::size_t k, const std::string& name) const {
    throw Error{Fault::data,
                {.wanted = "finite weights",
                 .got = "NaN or Inf in " + name,
                 .where = ingredients_[k].directory().string(),
                 .remedy = "leave it out"}};
  }

  const std::vector<Reader>& ingredients_;
  const Manifest& result_;
  std::vector<checkpoint::WeightStream> streams_;
  std::vector<std::vector<std::vector<std::size_t>>> ids_;  // by ingredient, unit, parameter
  std::vector<double> sum_;
  std::vector<float> input_;
};

struct Cooked {
  std::vector<Digest> digests;  // by block
  std::uint64_t bytes_read = 0;
};

/// Computes and writes `blocks`, this rank's share, and leaves them on stable storage.
Cooked cook(const comm::Context& context, const std::vector<Reader>& ingredients, const Manifest& result,
            std::span<const checkpoint::ShardMap> maps, const checkpoint::Staging& staging,
            std::span<const Block> blocks) {
  Kitchen kitchen{ingredients, result};
  Cooked cooked;
  std::vector<float> out(slice_elements);
  File file;
  int open_shard = -1;
  const auto finish_file = [&] {
    if (open_shard < 0) return;
    file.sync();
    file.close();
  };
  for (const Block& block : blocks) {
    if (block.shard != open_shard) {
      finish_file();
      file = context.files.update(staging.folder() / result.shards[static_cast<std::size_t>(block.shard)].file);
      open_shard = block.shard;
    }
    const partition::FlatSpace& space = result.spaces[block.unit];
    const checkpoint::ShardMap::Dataset& dataset = maps[static_cast<std::size_t>(block.shard)].datasets[block.unit];
    Hasher hasher;
    for (std::int64_t at = block.begin; at < block.end; at += slice_elements) {
      const std::span slice = std::span{out}.first(static_cast<std::size_t>(std::min(slice_elements, block.end - at)));
      kitchen.average(block.unit, space.slice_begin(block.shard) + at, slice);
      hasher.update(std::as_bytes(slice));
      file.write_at(std::as_bytes(slice), dataset.offset + static_cast<std::uint64_t>(at) * sizeof(float));
    }
    cooked.digests.push_back(hasher.digest());
    context.log.progress("soup", static_cast<double>(cooked.digests.size()), static_cast<double>(blocks.size()));
  }
  finish_file();
  kitchen.finish();
  cooked.bytes_read = kitchen.bytes_read();
  return cooked;
}

/// Rank 0: index and digest tables of every shard, and their root digests into the manifest.
void finish_shards(const Files& files, Manifest& result, std::span<const checkpoint::ShardMap> maps,
                   const checkpoint::Staging& staging, std::span<const Digest> digests) {
  std::size_t next = 0;
  for (int shard = 0; shard < result.world(); ++shard) {
    const checkpoint::ShardMap& map = maps[static_cast<std::size_t>(shard)];
    Manifest::Shard& entry = result.shards[static_cast<std::size_t>(shard)];
    const checkpoint::ShardIndex index = checkpoint::index_of(result.spaces, shard);
    const std::vector<Bytes> columns = checkpoint::columns_of(index);
    File file = files.update(staging.folder() / entry.file);
    std::vector<checkpoint::DatasetSpec> specs;
    std::vector<std::vector<Digest>> tables;
    for (std::size_t d = 0; d < map.datasets.size(); ++d) {
      const checkpoint::ShardMap::Dataset& dataset = map.datasets[d];
      std::vector<Digest>& table = tables.emplace_back();
      if (d < result.spaces.size()) {
        const auto blocks = static_cast<std::size_t>(dataset.spec.blocks());
        table.assign(digests.begin() + static_cast<std::ptrdiff_t>(next),
                     digests.begin() + static_cast<std::ptrdiff_t>(next + blocks));
        next += blocks;
      } else {
        const Bytes column = columns[d - result.spaces.size()];
        table = checkpoint::write_blocks(file, column, dataset.offset);
      }
      if (!table.empty()) file.write_at(std::as_bytes(std::span{table}), dataset.digest_offset);
      specs.push_back(dataset.spec);
    }
    file.sync();
    file.close();
    entry.size_bytes = map.size_bytes;
    entry.root = checkpoint::root_digest(specs, tables);
  }
}

/// Removes what soups that were killed have left beside `target`.
void clean_up(const comm::Context& context, const Path& target, const checkpoint::LockOwner& self) {
  try {
    for (const Path& path : checkpoint::sweep_dead(context.files, target.parent_path(), self))
      context.log.warn("removed {}, left by a soup that was killed", path.string());
  } catch (const Error& error) {  // no reason to leave the new soup uncooked
    context.log.warn("{}", error.what());
  }
}

}  // namespace

SoupReport make_soup(comm::Context& context, const SoupConfig& config) {
  const comm::Communicator& world = context.world;
  const double begin_s = context.clock.monotonic_s();
  Path target = Path{config.output}.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  comm::agree(world, [&] {
    if (!context.is_root() || !context.files.exists(target)) return;
    throw Error{Fault::usage,
                {.wanted = "a new directory for the soup",
                 .got = "one that exists",
                 .where = target.string(),
                 .remedy = "remove it, or name another with --out"}};
  });
  const std::vector<Reader> ingredients = open_ingredients(context, config);
  for (const std::string& line : table_of(ingredients)) context.log.plain(line);

  Manifest result = plan_result(context, ingredients, config);
  const std::vector<Block> blocks = blocks_of(result);
  std::string nonce;
  comm::agree(world, [&] {
    if (!context.is_root()) return;
    const checkpoint::LockOwner self = checkpoint::LockOwner::of_this_process(context.files, context.clock);
    clean_up(context, target, self);
    nonce = checkpoint::nonce_of(self);
  });
  const checkpoint::Staging staging{context.files, target, world.broadcast(nonce)};
  std::uint64_t weight_bytes = 0;
  for (const Block& block : blocks) weight_bytes += static_cast<std::uint64_t>(block.end - block.begin) * sizeof(float);

  SoupReport report{.output = target, .inputs = ingredients.size(), .shards = result.world()};
  report.bytes_written = weight_bytes;
  for (const partition::FlatSpace& space : result.spaces) report.parameters += space.parameters();

  // Nothing of a failed soup stays.
  const auto guarded = [&](const std::function<void()>& body) {
    try {
      comm::agree(world, body);
    } catch (const Error&) {
      if (context.is_root()) staging.discard();
      throw;
    }
  };
  std::vector<checkpoint::ShardMap> maps;
  guarded([&] {
    if (!context.is_root()) return;
    staging.open(weight_bytes, result.world());
    for (int shard = 0; shard < result.world(); ++shard) {
      const Path path = staging.folder() / result.shards[static_cast<std::size_t>(shard)].file;
      maps.push_back(checkpoint::create_shard(context.files, path, result.identity(shard), result.specs(shard)));
      File file = context.files.update(path);
      file.reserve(maps.back().size_bytes);
      file.close();
    }
  });
  // The others ask HDF5 where rank 0's datasets lie.
  guarded([&] {
    for (int shard = 0; !context.is_root() && shard < result.world(); ++shard) {
      maps.push_back(checkpoint::open_shard(context.files,
                                            staging.folder() / result.shards[static_cast<std::size_t>(shard)].file,
                                            result.identity(shard), result.specs(shard)));
    }
  });

  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  const std::size_t first = blocks.size() * rank / ranks, last = blocks.size() * (rank + 1) / ranks;
  Cooked cooked;
  guarded([&] {
    cooked = cook(context, ingredients, result, maps, staging, std::span{blocks}.subspan(first, last - first));
  });
  std::string own(cooked.digests.size() * sizeof(Digest), '\0');
  if (!own.empty()) std::memcpy(own.data(), cooked.digests.data(), own.size());
  std::vector<Digest> digests;
  for (const std::string& part : world.all_gather(own)) {
    digests.resize(digests.size() + part.size() / sizeof(Digest));
    if (!part.empty())
      std::memcpy(digests.data() + digests.size() - part.size() / sizeof(Digest), part.data(), part.size());
  }
  std::int64_t bytes_read[] = {static_cast<std::int64_t>(cooked.bytes_read)};
  world.all_reduce(bytes_read);
  report.bytes_read = static_cast<std::uint64_t>(bytes_read[0]);

  guarded([&] {
    if (!context.is_root()) return;
    finish_shards(context.files, result, maps, staging, digests);
    result.save_seconds = context.clock.monotonic_s() - begin_s;
    std::vector<checkpoint::Attachment> attachments;
    for (const std::string& name : ingredients.front().attachments())
      attachments.push_back({name, ingredients.front().attachment(name)});
    staging.commit(result, attachments, [] {});
  });
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

boost::json::object figures(const SoupReport& report) {
  const double giga = 1e9, seconds = std::max(report.seconds, 1e-9);
  return {
      {"output", report.output.string()}, {"inputs", report.inputs},
      {"parameters", report.parameters},  {"shards", report.shards},
      {"bytes_read", report.bytes_read},  {"bytes_written", report.bytes_written},
      {"seconds", report.seconds},        {"input_gb_per_s", static_cast<double>(report.bytes_read) / giga / seconds}};
}

}  // namespace argosy::soup
