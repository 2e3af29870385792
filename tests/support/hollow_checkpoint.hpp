#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/checkpoints.hpp"

namespace argosy::test {

/// Nodes of eight ranks.
inline partition::Layout layout_of(int world) {
  std::vector<int> nodes(static_cast<std::size_t>(std::max(world / 8, 1)), std::min(world, 8));
  return partition::Layout{std::move(nodes)};
}

/// Commits a checkpoint of `world` ranks whose shards have their sizes and nothing in them: what rank 0 sees of one
/// without reading it, at any number of ranks.
inline checkpoint::Manifest commit_hollow_checkpoint(const Files& files, const Path& target, int world,
                                                     std::int64_t step) {
  constexpr std::uint64_t metadata_bytes = 1 << 16;
  checkpoint::Manifest manifest = manifest_of(tiny_units(), layout_of(world));
  manifest.step = step;
  std::int64_t state_bytes = 0;
  for (const partition::FlatSpace& space : manifest.spaces) state_bytes += 3 * 4 * space.owned_size(0);
  const checkpoint::Staging staging{files, target, manifest.save_nonce};
  staging.open(0, world);
  for (int rank = 0; rank < world; ++rank) {
    manifest.shards.push_back({static_cast<std::uint64_t>(state_bytes) + metadata_bytes, Digest{}});
    File shard = Files::system().create(staging.folder() / checkpoint::shard_name(rank, world));
    shard.truncate(manifest.shards.back().size_bytes);
    shard.close();
  }
  staging.commit(manifest, toy_attachments(), [] {});
  return manifest;
}

}  // namespace argosy::test
