#include "checkpoint/inspected.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoint/manifest.hpp"

namespace argosy::checkpoint {

bool is_link(const Files& files, const Path& path) {
  const int fd = files.os().open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
  if (fd < 0) return errno == ELOOP;
  files.os().close(fd);
  return false;
}

std::optional<Inspected::Facts> Inspected::find(const Path& directory) {
  const auto found = known_.find(directory);
  if (found == known_.end()) return std::nullopt;
  if (is_unchanged(directory, found->second)) return found->second.facts;
  known_.erase(found);
  return std::nullopt;
}

bool Inspected::is_unchanged(const Path& directory, Known& known) const {
  if (identity_of(directory) != known.identity) return false;
  const std::size_t world = known.shard_bytes.size();
  for (std::size_t looks = std::min(shards_looked_at, world); looks > 0; --looks) {
    const std::size_t rank = std::exchange(known.next, (known.next + 1) % world);
    const Path shard = directory / shard_name(static_cast<int>(rank), static_cast<int>(world));
    const std::optional<FileStat> facts = files_.stat(shard);
    if (!facts || facts->size_bytes != known.shard_bytes[rank] || is_link(files_, shard)) return false;
  }
  return true;
}

std::optional<Inspected::Identity> Inspected::identity_of(const Path& directory) const {
  const std::optional<FileStat> folder = files_.stat(directory), manifest = files_.stat(directory / manifest_name);
  if (!folder || !manifest) return std::nullopt;
  return Identity{*folder, *manifest};
}

void Inspected::add(const Reader& reader, Facts facts, const Identity& identity) {
  Known known{.facts = std::move(facts), .identity = identity, .shard_bytes = {}};
  for (const boost::json::value& shard : reader.manifest().at("shards").as_array())
    known.shard_bytes.push_back(shard.at("bytes").to_number<std::uint64_t>());
  known_.insert_or_assign(reader.directory(), std::move(known));
}

}  // namespace argosy::checkpoint
