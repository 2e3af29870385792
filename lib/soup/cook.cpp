#include "soup/cook.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "core/error.hpp"
#include "core/narrow.hpp"
#include "core/staged_folder.hpp"
#include "soup/kitchen.hpp"

namespace argosy::soup {
namespace {

using checkpoint::block_bytes;
using checkpoint::Manifest;
using checkpoint::Reader;

/// One 4 MiB block of the result.
struct Block {
  int shard;
  std::size_t unit, tensor;  // tensor: 0 weights, 1 and 2 moments
  std::int64_t begin, end;   // elements of the shard's dataset
};

/// What training goes on from: all that the newest ingredient says beside its metrics, which are not the soup's.
checkpoint::Sections training_sections(const Ingredients& ingredients, const Order& order) {
  const Reader* newest = ingredients.readers.front();
  for (const Reader* const reader : ingredients.readers)
    if (reader->step() >= newest->step()) newest = reader;
  checkpoint::Sections sections = newest->sections();
  sections.metrics = {};
  // The optimizer's own steps go with its moments: they correct the bias of moments that began at zero.
  if (order.moments == Moments::zero) sections.optimizer["step"] = 0;
  if (order.moments == Moments::first)
    sections.optimizer["step"] = ingredients.readers.front()->sections().optimizer.at("step");
  sections.history.push_back(
      boost::json::object{{"step", newest->step()},
                          {"change", fmt::format("weights: the mean of {} checkpoints", ingredients.readers.size())}});
  return sections;
}

/// The result before its weights are known: layout, sections, shards without digests.
Manifest plan_result(const comm::Context& context, const Ingredients& ingredients, const Order& order) {
  const Reader& first = *ingredients.readers.front();
  const Mixture& mixture = ingredients.mixture;
  std::uint64_t size_bytes = 0;
  for (const partition::FlatSpace& space : first.spaces())
    size_bytes += static_cast<std::uint64_t>(space.used_size()) * size_of(order.dtype);
  const bool complete = order.moments != Moments::drop;
  if (complete) size_bytes *= 3;
  const auto shards = narrow<int>(std::max<std::uint64_t>(1, (size_bytes + order.shard_bytes - 1) / order.shard_bytes));

  Manifest result;
  result.run_uuid = first.run_uuid();
  result.kind = checkpoint::Kind::export_;
  result.complete = complete;
  result.weights = order.dtype;
  result.wall_time_s = context.clock.wall_s();
  if (complete) result.sections = training_sections(ingredients, order);
  result.sections.model = first.sections().model;
  boost::json::array inputs, weights;
  Hasher recipe;
  for (const Reader* const reader : ingredients.readers) {
    result.step = std::max(result.step, reader->step());
    inputs.push_back({{"path", reader->directory().string()},
                      {"step", reader->step()},
                      {"run_uuid", reader->run_uuid()},
                      {"manifest", reader->self_digest()}});
    recipe.update(reader->self_digest());
  }
  for (const double weight : mixture.weights) weights.push_back(weight / mixture.divisor);
  recipe.update(std::as_bytes(std::span{mixture.weights})).update(std::as_bytes(std::span{&mixture.divisor, 1}));
  if (order.dtype != DType::f32) recipe.update(name_of(order.dtype));
  if (complete) recipe.update(name_of(order.moments));
  if (const auto* const of = order.section.if_contains("of")) recipe.update(std::string_view{of->as_string()});
  // Named by its ingredients: the same soup has the same shard files, whoever cooks it.
  result.save_nonce = recipe.digest().hex().substr(0, 16);
  result.sections.soup = order.section;
  result.sections.soup["inputs"] = std::move(inputs);
  result.sections.soup["weights"] = std::move(weights);
  const partition::Layout layout{{shards}};
  for (std::size_t unit = 0; unit < first.spaces().size(); ++unit) {
    result.unit_names.push_back(first.unit_names()[unit]);
    result.spaces.emplace_back(first.spaces()[unit].params(), layout);
  }
  for (int shard = 0; shard < shards; ++shard) result.shards.push_back({checkpoint::shard_name(shard, shards), 0, {}});
  return result;
}

std::vector<Block> blocks_of(const Manifest& result) {
  const auto block_elements = static_cast<std::int64_t>(block_bytes / size_of(result.weights));
  std::vector<Block> blocks;
  for (int shard = 0; shard < result.world(); ++shard) {
    for (std::size_t unit = 0; unit < result.spaces.size(); ++unit) {
      const std::int64_t size = result.spaces[unit].owned_size(shard);
      for (std::size_t tensor = 0; tensor < result.tensors().count(); ++tensor) {
        for (std::int64_t begin = 0; begin < size; begin += block_elements)
          blocks.push_back({shard, unit, tensor, begin, std::min(size, begin + block_elements)});
      }
    }
  }
  return blocks;
}

struct Share {
  std::vector<Digest> digests;  // by block
  std::uint64_t bytes_read = 0;
};

/// Computes and writes `blocks`, this rank's share, and leaves them on stable storage.
Share cook_share(const comm::Context& context, const Ingredients& ingredients, const Manifest& result,
                 std::span<const checkpoint::ShardMap> maps, const checkpoint::Staging& staging,
                 std::span<const Block> blocks, Moments moments) {
  Kitchen kitchen{ingredients, result.spaces, result.weights, moments};
  Share share;
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
    const checkpoint::ShardMap::Dataset& dataset =
        maps[static_cast<std::size_t>(block.shard)].datasets[block.unit * result.tensors().count() + block.tensor];
    Hasher hasher;
    for (std::int64_t at = block.begin; at < block.end; at += Kitchen::slice_elements) {
      const Bytes slice = kitchen.average(block.unit, block.tensor, space.slice_begin(block.shard) + at,
                                          std::min(Kitchen::slice_elements, block.end - at));
      hasher.update(slice);
      file.write_at(slice, dataset.offset + static_cast<std::uint64_t>(at) * size_of(result.weights));
    }
    share.digests.push_back(hasher.digest());
    context.log.progress("soup", static_cast<double>(share.digests.size()), static_cast<double>(blocks.size()));
  }
  finish_file();
  kitchen.finish();
  share.bytes_read = kitchen.bytes_read();
  return share;
}

/// Rank 0: index and digest tables of every shard, and their root digests into the manifest.
void finish_shards(const Files& files, Manifest& result, std::span<const checkpoint::ShardMap> maps,
                   const checkpoint::Staging& staging, std::span<const Digest> digests) {
  const std::size_t states = result.spaces.size() * result.tensors().count();
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
      if (d < states) {
        const auto blocks = static_cast<std::size_t>(dataset.spec.blocks());
        table.assign(digests.begin() + static_cast<std::ptrdiff_t>(next),
                     digests.begin() + static_cast<std::ptrdiff_t>(next + blocks));
        next += blocks;
      } else {
        const Bytes column = columns[d - states];
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

}  // namespace

Cooked cook(const comm::Context& context, const Ingredients& ingredients, const Order& order) {
  const comm::Communicator& world = context.world;
  const double begin_s = context.clock.monotonic_s();
  Manifest result = plan_result(context, ingredients, order);
  const std::vector<Block> blocks = blocks_of(result);
  std::string nonce;
  comm::agree(world, [&] {
    if (!context.is_root()) return;
    const Owner self = Owner::of_this_process(context.files, context.clock);
    sweep_staged_folders(context.files, context.log, order.target.parent_path(), self);
    nonce = owned_nonce(self);
  });
  const checkpoint::Staging staging{context.files, order.target, world.broadcast(nonce)};
  std::uint64_t weight_bytes = 0;
  for (const Block& block : blocks)
    weight_bytes += static_cast<std::uint64_t>(block.end - block.begin) * size_of(order.dtype);

  Cooked cooked{.members = ingredients.readers.size(), .shards = result.world(), .bytes_written = weight_bytes};
  for (const partition::FlatSpace& space : result.spaces) cooked.parameters += space.parameters();

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
  Share share;
  guarded([&] {
    share = cook_share(context, ingredients, result, maps, staging, std::span{blocks}.subspan(first, last - first),
                       order.moments);
  });
  std::string own(share.digests.size() * sizeof(Digest), '\0');
  if (!own.empty()) std::memcpy(own.data(), share.digests.data(), own.size());
  std::vector<Digest> digests;  // on rank 0
  for (const std::string& part : world.gather(own)) {
    digests.resize(digests.size() + part.size() / sizeof(Digest));
    if (!part.empty())
      std::memcpy(digests.data() + digests.size() - part.size() / sizeof(Digest), part.data(), part.size());
  }
  std::int64_t bytes_read[] = {static_cast<std::int64_t>(share.bytes_read)};
  world.all_reduce(bytes_read);
  cooked.bytes_read = static_cast<std::uint64_t>(bytes_read[0]);

  guarded([&] {
    if (!context.is_root()) return;
    finish_shards(context.files, result, maps, staging, digests);
    result.save_seconds = context.clock.monotonic_s() - begin_s;
    std::vector<checkpoint::Attachment> attachments;
    for (const std::string& name : ingredients.readers.front()->attachments())
      attachments.push_back({name, ingredients.readers.front()->attachment(name)});
    staging.commit(
        result, attachments, [] {}, Fault::usage);
  });
  return cooked;
}

}  // namespace argosy::soup
