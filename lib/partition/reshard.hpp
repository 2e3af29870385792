#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "partition/flat_space.hpp"

/// Where each element goes when stored shards of one layout are read into shards of another: the intersection of two
/// interval lists, pure and linear in their lengths. Both lists use the caller's numbering of parameters (over all
/// units of a model), since two layouts may cut a model into different units.
namespace argosy::partition {

/// Elements [source_offset, source_offset + length) of `source_rank`'s shard are elements [begin, begin + length) of
/// parameter `param` and go to [destination_offset, …) of `destination_rank`'s shard.
struct Move {
  std::size_t param = 0;
  std::int64_t begin = 0, length = 0;
  int source_rank = 0;
  std::int64_t source_offset = 0;
  int destination_rank = 0;
  std::int64_t destination_offset = 0;
  auto operator<=>(const Move&) const = default;
};

/// One contiguous read: elements [source_offset, + length) of one stored shard to [destination_offset, + length) of one
/// shard.
struct Read {
  int source_rank = 0;
  std::int64_t source_offset = 0, destination_offset = 0, length = 0;
  int destination_rank = 0;
  auto operator<=>(const Read&) const = default;
};

/// Checks that `intervals` (in any order) cover each parameter without gap or overlap. numels, names: by parameter.
/// Throws Error{corrupt} naming `where`, the parameter and the first wrong element.
void check_cover(const std::string& where, std::vector<Interval> intervals, std::span<const std::int64_t> numels,
                 std::span<const std::string> names);

/// Moves that fill `destination` (one rank's intervals or all ranks') from `source`, sorted by (param, begin); at most
/// |source| + |destination| of them. The lists may be in any order; `source` must cover `destination` (see
/// check_cover).
[[nodiscard]] std::vector<Move> plan_reshard(std::vector<Interval> source, std::vector<Interval> destination);

/// The moves as reads, grouped by source rank and sorted by offset there; neighbors in shard and memory are joined.
[[nodiscard]] std::vector<Read> reads_of(const std::vector<Move>& moves);

}  // namespace argosy::partition
