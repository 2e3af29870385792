#include "checkpoint/write.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/staging.hpp"
#include "core/error.hpp"
#include "core/staged.hpp"

namespace argosy::checkpoint {
namespace {

/// One 4 MiB block of the output.
struct OutputBlock {
  int shard;
  std::size_t unit, tensor;
  std::int64_t begin, end;  // elements of the shard's dataset
};

std::vector<OutputBlock> output_blocks(const Manifest& manifest) {
  const auto block_elements = static_cast<std::int64_t>(block_bytes / size_of(manifest.weights));
  std::vector<OutputBlock> blocks;
  for (int shard = 0; shard < manifest.world(); ++shard) {
    for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
      const std::int64_t size = manifest.spaces[unit].owned_size(shard);
      for (std::size_t tensor = 0; tensor < manifest.tensors[unit].size(); ++tensor) {
        for (std::int64_t begin = 0; begin < size; begin += block_elements)
          blocks.push_back({shard, unit, tensor, begin, std::min(size, begin + block_elements)});
      }
    }
  }
  return blocks;
}

/// Computes, writes and syncs this rank's blocks. Returns their digests.
std::vector<Digest> write_share(const comm::Context& context, const Manifest& manifest, std::span<const ShardMap> maps,
                                const Staging& staging, std::span<const OutputBlock> blocks, const Pieces& pieces) {
  std::vector<Digest> digests;
  File file;
  int open_shard = -1;
  const auto finish_file = [&] {
    if (open_shard < 0) return;
    file.sync();
    file.close();
  };
  for (const OutputBlock& block : blocks) {
    if (block.shard != open_shard) {
      finish_file();
      file = context.files.update(staging.folder() / shard_name(block.shard, manifest.world()));
      open_shard = block.shard;
    }
    const partition::FlatSpace& space = manifest.spaces[block.unit];
    const ShardMap::Dataset& dataset = maps[static_cast<std::size_t>(block.shard)]
                                           .datasets[block.unit * manifest.tensors.front().size() + block.tensor];
    Hasher hasher;
    for (std::int64_t at = block.begin; at < block.end; at += pieces.slice_elements) {
      const Bytes slice = pieces.slice(block.unit, block.tensor, space.slice_begin(block.shard) + at,
                                       std::min(pieces.slice_elements, block.end - at));
      hasher.update(slice);
      file.write_at(slice, dataset.offset + static_cast<std::uint64_t>(at) * size_of(manifest.weights));
    }
    digests.push_back(hasher.digest());
    context.log.progress(std::string{pieces.title}, static_cast<double>(digests.size()),
                         static_cast<double>(blocks.size()));
  }
  finish_file();
  pieces.finish();
  return digests;
}

/// Rank 0: writes the index and the digest tables of every shard, and puts the root digests into the manifest.
void finish_shards(const Files& files, Manifest& manifest, std::span<const ShardMap> maps, const Staging& staging,
                   std::span<const Digest> digests) {
  const std::size_t states = manifest.spaces.size() * manifest.tensors.front().size();
  for (int shard = 0; shard < manifest.world(); ++shard) {
    const ShardMap& map = maps[static_cast<std::size_t>(shard)];
    Manifest::Shard& entry = manifest.shards[static_cast<std::size_t>(shard)];
    const std::vector<std::vector<std::byte>> columns = manifest.index(shard);
    File file = files.update(staging.folder() / shard_name(shard, manifest.world()));
    std::vector<std::vector<Digest>> tables;
    for (std::size_t d = 0; d < map.datasets.size(); ++d) {
      const ShardMap::Dataset& dataset = map.datasets[d];
      std::vector<Digest>& table = tables.emplace_back();
      if (d < states) {
        const std::span<const Digest> own = digests.first(dataset.spec.blocks());
        table.assign(own.begin(), own.end());
        digests = digests.subspan(own.size());
      } else {
        table = write_blocks(file, columns[d - states], dataset.offset);
      }
      if (!table.empty()) file.write_at(std::as_bytes(std::span{table}), dataset.digest_offset);
    }
    file.sync();
    file.close();
    entry.size_bytes = map.size_bytes;
    entry.root = root_digest(map, tables);
  }
}

}  // namespace

std::uint64_t write_committed(const comm::Context& context, const Path& target, Manifest manifest,
                              std::span<const Attachment> attachments, const Pieces& pieces) {
  const comm::Communicator& world = context.world;
  const double begin_s = context.clock.monotonic_s();
  const std::vector<OutputBlock> blocks = output_blocks(manifest);
  std::string nonce;
  comm::at_root(world, [&] {
    const Owner self = Owner::of_this_process(context.files, context.clock);
    sweep_staged_folders(context.files, context.log, target.parent_path(), self);
    nonce = owned_nonce(self);
  });
  const Staging staging{context.files, target, world.broadcast(nonce)};
  std::uint64_t bytes = 0;
  for (const OutputBlock& block : blocks)
    bytes += static_cast<std::uint64_t>(block.end - block.begin) * size_of(manifest.weights);
  manifest.shards.resize(static_cast<std::size_t>(manifest.world()));

  // A failure leaves no files.
  const auto guarded = [&](const std::function<void()>& body) {
    try {
      comm::agree(world, body);
    } catch (const Error&) {
      if (context.is_root()) staging.discard();
      throw;
    }
  };
  std::vector<ShardMap> maps;
  guarded([&] {
    if (!context.is_root()) return;
    staging.open(bytes, manifest.world());
    for (int shard = 0; shard < manifest.world(); ++shard) {
      const Path path = staging.folder() / shard_name(shard, manifest.world());
      maps.push_back(create_shard(context.files, path, manifest.identity(shard), manifest.specs(shard)));
      File file = context.files.update(path);
      file.reserve(maps.back().size_bytes);
      file.close();
    }
  });
  // The others ask HDF5 where rank 0's datasets lie.
  guarded([&] {
    for (int shard = 0; !context.is_root() && shard < manifest.world(); ++shard) {
      const Path path = staging.folder() / shard_name(shard, manifest.world());
      maps.push_back(open_shard(context.files, path, manifest.identity(shard), manifest.specs(shard)));
    }
  });

  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  const std::size_t first = blocks.size() * rank / ranks, last = blocks.size() * (rank + 1) / ranks;
  std::vector<Digest> own;
  guarded([&] {
    own = write_share(context, manifest, maps, staging, std::span{blocks}.subspan(first, last - first), pieces);
  });
  std::vector<Digest> digests;  // on rank 0
  for (const std::vector<Digest>& part : world.gather(own)) digests.insert(digests.end(), part.begin(), part.end());

  guarded([&] {
    if (!context.is_root()) return;
    finish_shards(context.files, manifest, maps, staging, digests);
    manifest.save_seconds = context.clock.monotonic_s() - begin_s;
    staging.commit(
        manifest, attachments, [&] { pieces.last_check(staging.folder()); }, Fault::usage);
  });
  return bytes;
}

}  // namespace argosy::checkpoint
