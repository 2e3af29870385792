#pragma once

#include <string>

#include "data/shard_index.hpp"
#include "data/token_shard.hpp"
#include "support/temp_folder.hpp"

namespace argosy::test {

/// Writes a token shard. Returns its entry for an index.
inline data::ShardIndex::Shard write_token_shard(const TempFolder& folder, const std::string& name,
                                                 const std::string& bytes) {
  Files::system().write_atomically(folder / name, bytes);
  const data::TokenShard shard = data::TokenShard::open(Files::system(), folder / name);
  return {name, shard.size(), shard.size_bytes(), shard.body_digest()};
}

}  // namespace argosy::test
