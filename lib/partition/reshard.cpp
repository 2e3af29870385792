#include "partition/reshard.hpp"

#include <algorithm>
#include <tuple>

#include "core/error.hpp"

namespace argosy::partition {

void check_cover(const std::string& where, std::vector<Interval> intervals, std::span<const std::int64_t> numels,
                 std::span<const std::string> names) {
  const auto refuse = [&](std::string wanted, const std::string& got) {
    throw_claim(Fault::corrupt, fmt::format("{}: the index of the shards {}", where, got), where, std::move(wanted),
                got, "use another checkpoint");
  };
  std::sort(intervals.begin(), intervals.end());
  auto next = intervals.begin();
  for (std::size_t param = 0; param < numels.size(); ++param) {
    std::int64_t covered = 0;
    for (; next != intervals.end() && next->param == param && next->begin == covered; ++next) covered = next->end;
    const bool another = next != intervals.end() && next->param == param;
    if (covered == numels[param] && !another) continue;
    refuse(fmt::format("each of the {} elements of {} once", numels[param], names[param]),
           another && next->begin < covered ? fmt::format("lists element {} of {} twice", next->begin, names[param])
           : covered >= numels[param]
               ? fmt::format("lists more than the {} elements of {}", numels[param], names[param])
               : fmt::format("lacks element {} of {}", covered, names[param]));
  }
  if (next != intervals.end())
    refuse(fmt::format("{} parameters", numels.size()),
           fmt::format("names parameter number {}, but the checkpoint has only {} parameters (numbers 0 to {})",
                       next->param, numels.size(), std::ssize(numels) - 1));
}

std::vector<Move> plan_reshard(std::vector<Interval> source, std::vector<Interval> destination) {
  std::sort(source.begin(), source.end());
  std::sort(destination.begin(), destination.end());
  std::vector<Move> moves;
  auto from = source.begin();
  for (auto to = destination.begin(); to != destination.end();) {
    while (from != source.end() && std::tie(from->param, from->end) <= std::tie(to->param, to->begin)) ++from;
    ARGOSY_CHECK(from != source.end() && from->param == to->param, "parameter {} is not stored from element {}",
                 to->param, to->begin);
    const std::int64_t begin = std::max(from->begin, to->begin), end = std::min(from->end, to->end);
    ARGOSY_CHECK(begin == to->begin && begin < end, "parameter {} is not stored from element {}", to->param, to->begin);
    moves.push_back({to->param, begin, end - begin, from->rank, from->local_offset + begin - from->begin, to->rank,
                     to->local_offset + begin - to->begin});
    if (end == to->end) {
      ++to;
    } else {
      to->local_offset += end - to->begin;
      to->begin = end;
    }
  }
  return moves;
}

std::vector<Read> reads_of(const std::vector<Move>& moves) {
  std::vector<Read> reads;
  reads.reserve(moves.size());
  for (const Move& move : moves) {
    reads.push_back(
        {move.source_rank, move.source_offset, move.destination_offset, move.length, move.destination_rank});
  }
  std::sort(reads.begin(), reads.end());
  std::vector<Read> joined;
  for (const Read& read : reads) {
    Read* const last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->source_rank == read.source_rank && last->destination_rank == read.destination_rank &&
        last->source_offset + last->length == read.source_offset &&
        last->destination_offset + last->length == read.destination_offset) {
      last->length += read.length;
    } else {
      joined.push_back(read);
    }
  }
  return joined;
}

}  // namespace argosy::partition
