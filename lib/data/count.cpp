#include "data/count.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace argosy::data {
namespace {

constexpr std::size_t most_carried_bytes = 3;  // of a character that a block's end cuts

/// What one rank found in its range of blocks.
struct RangeFigures {
  TextFigures figures;
  std::optional<InvalidPlace> first_invalid;
};
struct BlockFigures {
  Digest digest;
  std::uint32_t newlines = 0;
};
struct RangeCount {
  RangeFigures found;
  std::vector<BlockFigures> blocks;
};

/// Hashes the blocks [first, last), at least one, and counts the lines that begin in them, reading on to the end of the
/// last line.
RangeCount count_range(const File& file, std::uint64_t size_bytes, std::uint64_t first, std::uint64_t last) {
  RangeCount count;
  std::vector<char> buffer(most_carried_bytes + count_block_bytes);
  std::size_t carried = 0;  // bytes at the buffer's front that the scanner could not use yet
  TextScanner scanner;
  const std::uint64_t range_begin = first * count_block_bytes;
  const std::uint64_t range_end = std::min(last * count_block_bytes, size_bytes);
  std::uint64_t scan_begin = range_begin;  // offset of the first line that begins in the range
  bool in_line = false;                    // the scanner is inside a line of ours
  std::array<char, 1> before{'\n'};
  if (range_begin > 0) file.read_at(as_writable_bytes(std::span{before}), range_begin - 1);
  bool first_seen = before[0] == '\n';
  for (std::uint64_t at = range_begin; at < size_bytes; at += count_block_bytes) {
    const bool ours = at < range_end;
    if (!ours && !in_line) break;
    const std::uint64_t end = std::min(at + count_block_bytes, size_bytes);
    const std::span<char> block = std::span{buffer}.subspan(carried, end - at);
    file.read_at(as_writable_bytes(block), at);
    if (ours) {
      count.blocks.push_back({digest_of(as_bytes(std::span<const char>{block})),
                              static_cast<std::uint32_t>(std::count(block.begin(), block.end(), '\n'))});
    }
    const auto newline = first_seen && ours ? block.end() : std::ranges::find(block, '\n');
    const auto line_end = static_cast<std::size_t>(newline - block.begin()) + (newline == block.end() ? 0 : 1);
    std::size_t skip = 0, use = block.size();
    if (!first_seen) {
      if (newline == block.end()) continue;
      skip = line_end;
      first_seen = true;
      scan_begin = at + skip;
      if (scan_begin >= range_end) break;
    } else if (!ours) {  // only the rest of our last line
      use = line_end;
    }
    const bool ends = at + use == size_bytes || use < block.size();
    in_line = use > skip && block[use - 1] != '\n';
    // Nothing is carried where something is skipped.
    const std::span<const char> text = std::span{buffer}.subspan(skip, carried + use - skip);
    const std::span<const char> rest = text.subspan(scanner.scan(text, ends));
    std::ranges::copy(rest, buffer.begin());
    carried = rest.size();
    if (!ours && !in_line) break;
  }
  scanner.finish();
  count.found.figures = scanner.figures();
  count.found.first_invalid = scanner.first_invalid();
  if (auto& place = count.found.first_invalid) place->byte_offset += static_cast<std::int64_t>(scan_begin);
  return count;
}

/// Joins what the ranks found. Range r is rank (r + turn) mod W's.
CountRecord join(std::span<const RangeFigures> by_rank, std::span<const std::vector<BlockFigures>> blocks_by_rank,
                 std::size_t turn, std::uint64_t size_bytes) {
  CountRecord record;
  record.size_bytes = size_bytes;
  Hasher hasher;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const std::size_t rank = (r + turn) % by_rank.size();
    const RangeFigures& found = by_rank[rank];
    if (found.first_invalid && !record.first_invalid) {
      record.first_invalid = found.first_invalid;
      record.first_invalid->line += record.figures.newlines;
    }
    record.figures += found.figures;
    for (const BlockFigures& block : blocks_by_rank[rank]) {
      hasher.update(std::as_bytes(std::span{block.digest.bytes}));
      record.block_newlines.push_back(block.newlines);
    }
  }
  record.digest = hasher.digest();
  return record;
}

/// **Collective.** Range r of W of a file goes to rank (r + turn) mod W, so that small files spread over the ranks.
CountRecord count_file(const comm::Communicator& world, const Files& files, const Path& path, std::uint64_t size_bytes,
                       std::size_t turn) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::uint64_t blocks = (size_bytes + count_block_bytes - 1) / count_block_bytes;
  RangeCount mine;
  comm::agree(world, [&] {
    const std::size_t r = (static_cast<std::size_t>(world.rank()) + ranks - turn % ranks) % ranks;
    const std::uint64_t first = (blocks * r + ranks - 1) / ranks, last = (blocks * (r + 1) + ranks - 1) / ranks;
    if (first < last) mine = count_range(files.open(path), size_bytes, first, last);
  });
  const std::vector<RangeFigures> found = world.all_gather(mine.found);
  const std::vector<std::vector<BlockFigures>> blocks_found = world.all_gather(mine.blocks);
  return join(found, blocks_found, turn, size_bytes);
}

FileStat stat_of(const Files& files, const Path& path) {
  const std::optional<FileStat> stat = files.stat(path);
  if (!stat || stat->is_directory)
    throw_error(Fault::data, path.string(), "a text file", stat ? "a folder" : "no such file", "correct the path");
  if (!stat->is_regular) {  // texts are read in parts, by several ranks and more than once
    throw_error(Fault::data, path.string(), "a text file", "a pipe or a device", "write the text to a file first");
  }
  return *stat;
}

/// Stat of a file whose time stamps tell a later change from this state: the kernel's clock ticks every few
/// milliseconds, so one written a moment ago is given time to become older than a tick.
FileStat settled(const Files& files, const Path& path) {
  constexpr double tick_s = 0.02;
  const FileStat stat = stat_of(files, path);
  const Clock clock;
  const double age_s = clock.wall_s() - static_cast<double>(stat.ctime_ns) * 1e-9;
  if (age_s < 0 || age_s > tick_s) return stat;
  clock.sleep_s(tick_s - age_s);
  return stat_of(files, path);
}

constexpr const char* row_format = "{:>12} {:>10} {:>12} {:>13} {:>14} {:>9} {:>9}  {}\n";

CountRecord sum_of(std::span<const CountedFile> files) {
  CountRecord sum;
  for (const CountedFile& file : files) {
    sum.size_bytes += file.record.size_bytes;
    sum.figures += file.record.figures;
  }
  return sum;
}

std::string row_of(const CountRecord& record, const std::string& name) {
  const TextFigures& figures = record.figures;
  return fmt::format(fmt::runtime(row_format), figures.lines, figures.empty_lines, figures.words, figures.characters,
                     record.size_bytes, figures.longest_line, figures.invalid_bytes, name);
}

}  // namespace

std::vector<CountedFile> count_files(const comm::Communicator& world, const Files& files, const Log& log,
                                     std::span<const Path> paths, const CountSettings& settings) {
  const CountCache cache{files, settings.cache};
  bool keeps = true;
  std::vector<CountedFile> counted;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Path path = std::filesystem::absolute(paths[i]).lexically_normal();
    // Rank 0 looks at the file and the cache for all: over a network file system other ranks might see other times.
    FileStat stat;
    std::string known;
    std::array<std::int64_t, 1> size_bytes{};
    comm::at_root(world, [&] {
      stat = settled(files, path);
      size_bytes[0] = static_cast<std::int64_t>(stat.size_bytes);
      if (settings.content_hash) return;
      try {
        if (const std::optional<CountRecord> record = cache.find(path, stat)) known = text_of(*record);
      } catch (const Error& error) {  // only time is lost
        log.warn("cached counts are not used, and {} is counted again: {}", path.string(), error.what());
      }
    });
    known = world.broadcast(std::move(known));
    if (!known.empty()) {
      counted.push_back({path, record_of_text(known).value(), true});
      continue;
    }
    world.all_reduce(size_bytes);  // zero on the other ranks
    CountRecord record = count_file(world, files, path, static_cast<std::uint64_t>(size_bytes[0]), i);
    comm::at_root(world, [&] {
      const FileStat after = stat_of(files, path);
      if (after.size_bytes != stat.size_bytes || after.mtime_ns != stat.mtime_ns)
        throw_claim(Fault::data, path.string() + " changed while it was read", path.string(), "a file at rest",
                    "one that changed", "run again when no program writes to it");
      try {
        if (keeps) cache.keep(path, stat, record);
      } catch (const Error& error) {  // only time is lost
        keeps = false;
        log.warn("counts are not kept for the next call: {}", error.what());
      }
    });
    counted.push_back({path, std::move(record), false});
  }
  return counted;
}

void throw_changed_text(const Path& path, const std::string& now) {
  throw_claim(Fault::data, fmt::format("{} changed after it was counted: it has {} now", path.string(), now),
              path.string(), "the text as it was counted", now, "run preprocess again");
}

std::uint64_t offset_of_line(const Files& files, const Path& path, const CountRecord& record, std::uint64_t line) {
  if (line == 0) return 0;
  std::uint64_t newlines = 0;
  for (std::size_t b = 0; b < record.block_newlines.size(); ++b) {
    if (newlines + record.block_newlines[b] < line) {
      newlines += record.block_newlines[b];
      continue;
    }
    const std::uint64_t begin = b * count_block_bytes;
    std::vector<char> block(std::min(count_block_bytes, record.size_bytes - begin));
    files.open(path).read_at(as_writable_bytes(std::span{block}), begin);
    auto at = block.begin();
    for (; newlines < line; ++newlines) {
      at = std::find(at, block.end(), '\n');
      if (at == block.end()) throw_changed_text(path, "other lines");
      ++at;
    }
    return begin + static_cast<std::uint64_t>(at - block.begin());
  }
  return record.size_bytes;
}

std::string count_table(std::span<const CountedFile> files) {
  std::string table = fmt::format(fmt::runtime(row_format), "lines", "empty", "words", "characters", "bytes", "longest",
                                  "invalid", "file");
  for (const CountedFile& file : files) table += row_of(file.record, file.path.string());
  if (files.size() > 1) table += row_of(sum_of(files), "total");
  return table;
}

boost::json::object count_figures(std::span<const CountedFile> files) {
  boost::json::array list;
  for (const CountedFile& file : files) {
    const TextFigures& figures = file.record.figures;
    list.push_back({{"path", file.path.string()},
                    {"lines", figures.lines},
                    {"empty_lines", figures.empty_lines},
                    {"words", figures.words},
                    {"characters", figures.characters},
                    {"bytes", file.record.size_bytes},
                    {"longest_line", figures.longest_line},
                    {"invalid_bytes", figures.invalid_bytes},
                    {"digest", file.record.digest.hex()},
                    {"cached", file.from_cache}});
  }
  const CountRecord sum = sum_of(files);
  return {{"lines", sum.figures.lines},
          {"words", sum.figures.words},
          {"bytes", sum.size_bytes},
          {"files", std::move(list)}};
}

boost::json::object token_figures(const ShardIndex& index, std::span<const CountedFile> files) {
  boost::json::object figures;
  std::size_t at = 0;
  for (const ShardIndex::Corpus& corpus : index.corpora) {
    for (const ShardIndex::Text& text : corpus.texts) {
      if (at >= files.size() || files[at++].record.digest != text.digest) return {};
    }
    figures[corpus.name] = {{"examples", corpus.examples()},
                            {"src_tokens", corpus.src_tokens},
                            {"tgt_tokens", corpus.tgt_tokens},
                            {"unknown", corpus.unknown}};
  }
  return figures;
}

}  // namespace argosy::data
