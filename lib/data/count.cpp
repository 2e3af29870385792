#include "data/count.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <functional>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/line_reader.hpp"

namespace argosy::data {
namespace {

constexpr std::size_t most_carried_bytes = 3;  // of a character that a block's end cuts

/// What one rank found in a range of blocks of a file, or in a whole one. Plain, as it travels.
struct RangeFigures {
  std::size_t file = 0, range = 0;  // ranges of a file in their order
  TextFigures figures{};
  std::optional<BytePlace> first_invalid{}, first_zero{};
  bool has_byte_order_mark = false, is_packed = false;
  std::uint64_t size_bytes = 0;  // of the whole text
  Digest packed{};               // of a compressed file
  std::size_t blocks = 0;
};
struct BlockFigures {
  Digest digest;
  std::uint32_t newlines = 0;
};
struct RangeCount {
  RangeFigures found;
  std::vector<BlockFigures> blocks;
};

bool begins_with_mark(std::span<const char> text) {
  return std::string_view{text.data(), text.size()}.starts_with(byte_order_mark);
}

BlockFigures figures_of(std::span<const char> block) {
  return {digest_of(as_bytes(block)), static_cast<std::uint32_t>(std::count(block.begin(), block.end(), '\n'))};
}

void take_figures(const TextScanner& scanner, RangeFigures& found) {
  found.figures = scanner.figures();
  found.first_invalid = scanner.first_invalid();
  found.first_zero = scanner.first_zero();
}

/// Hashes the blocks [first, last), at least one, and counts the lines that begin in them, reading on to the end of the
/// last line.
RangeCount count_range(const File& file, std::uint64_t size_bytes, std::uint64_t first, std::uint64_t last) {
  RangeCount count;
  std::vector<char> buffer(most_carried_bytes + std::min(count_block_bytes, size_bytes - first * count_block_bytes));
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
    if (ours) count.blocks.push_back(figures_of(block));
    if (at == 0) count.found.has_byte_order_mark = begins_with_mark(block);
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
  take_figures(scanner, count.found);
  for (auto* place : {&count.found.first_invalid, &count.found.first_zero})
    if (*place) (*place)->byte_offset += static_cast<std::int64_t>(scan_begin);
  count.found.size_bytes = size_bytes;
  return count;
}

/// The same of a whole text that comes piece by piece. read: fills what it is given, less only at the end. take: gets
/// the text.
RangeCount count_stream(const std::function<std::size_t(std::span<char>)>& read,
                        const std::function<void(std::span<const char>)>& take) {
  RangeCount count;
  std::vector<char> buffer(most_carried_bytes + count_block_bytes);
  std::size_t carried = 0;
  TextScanner scanner;
  for (bool more = true; more;) {
    const std::span<char> room = std::span{buffer}.subspan(carried, count_block_bytes);
    const std::span<const char> block = room.first(read(room));
    more = block.size() == room.size();
    if (count.blocks.empty()) count.found.has_byte_order_mark = begins_with_mark(block);
    if (!block.empty()) count.blocks.push_back(figures_of(block));
    take(block);
    count.found.size_bytes += block.size();
    const std::span<const char> text = std::span{buffer}.first(carried + block.size());
    const std::span<const char> rest = text.subspan(scanner.scan(text, !more));
    std::ranges::copy(rest, buffer.begin());
    carried = rest.size();
  }
  scanner.finish();
  take_figures(scanner, count.found);
  return count;
}

/// Joins what was found in the ranges of a file, which are in their order.
CountRecord join(std::span<const RangeCount> ranges) {
  CountRecord record;
  Hasher hasher;
  for (const RangeCount& range : ranges) {
    const RangeFigures& found = range.found;
    for (const auto& [from, to] :
         {std::pair{&found.first_invalid, &record.first_invalid}, {&found.first_zero, &record.first_zero}}) {
      if (!*from || *to) continue;
      *to = *from;
      (*to)->line += record.figures.newlines;
    }
    record.figures += found.figures;
    record.size_bytes = found.size_bytes;
    record.has_byte_order_mark = record.has_byte_order_mark || found.has_byte_order_mark;
    for (const BlockFigures& block : range.blocks) {
      hasher.update(std::as_bytes(std::span{block.digest.bytes}));
      record.block_newlines.push_back(block.newlines);
    }
  }
  record.digest = hasher.digest();
  return record;
}

/// A file that is to be counted, as rank 0 sees it. Plain, as it travels.
struct ToCount {
  std::size_t file = 0;
  std::uint64_t size_bytes = 0;
  Compression compression = Compression::none;
};

/// This rank's share. Range r of W of a large file goes to rank (r + file) mod W; other files go whole to rank file mod
/// W.
std::vector<RangeCount> count_share(const comm::Communicator& world, const Files& files, std::span<const Path> paths,
                                    std::span<const ToCount> wanted, const CountSettings& settings) {
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  std::vector<RangeCount> counts;
  for (const ToCount& file : wanted) {
    const std::size_t r = (rank + ranks - file.file % ranks) % ranks;
    const Path& path = paths[file.file];
    if (file.compression != Compression::none) {
      if (r != 0) continue;
      const auto unpack = [&](const std::function<void(std::span<const char>)>& take) {
        Unpacker unpacker{files.open(path), file.compression, settings.unpack.limit};
        RangeCount& count = counts.emplace_back(count_stream([&](auto to) { return unpacker.read(to); }, take));
        count.found.is_packed = true;
        return count.found.packed = unpacker.packed_digest();
      };
      if (settings.unpack.folder.empty())
        unpack([](std::span<const char>) {});
      else
        write_unpacked(files, settings.unpack.folder, unpack);
      counts.back().found.file = file.file;
      continue;
    }
    const std::uint64_t blocks = (file.size_bytes + count_block_bytes - 1) / count_block_bytes;
    const std::size_t ranges = blocks <= 1 ? 1 : ranks;
    const std::uint64_t first = (blocks * r + ranges - 1) / ranges, last = (blocks * (r + 1) + ranges - 1) / ranges;
    if (r >= ranges || first >= last) continue;
    RangeCount& count = counts.emplace_back(count_range(files.open(path), file.size_bytes, first, last));
    count.found.file = file.file;
    count.found.range = r;
  }
  for (RangeCount& count : counts) count.found.blocks = count.blocks.size();
  return counts;
}

/// **Collective.** The ranges of all ranks, sorted by file and range.
std::vector<RangeCount> gather(const comm::Communicator& world, const std::vector<RangeCount>& mine) {
  std::vector<RangeFigures> figures;
  std::vector<BlockFigures> blocks;
  for (const RangeCount& count : mine) {
    figures.push_back(count.found);
    blocks.insert(blocks.end(), count.blocks.begin(), count.blocks.end());
  }
  const std::vector<std::vector<RangeFigures>> all_figures = world.all_gather(figures);
  const std::vector<std::vector<BlockFigures>> all_blocks = world.all_gather(blocks);
  std::vector<RangeCount> all;
  for (std::size_t rank = 0; rank < all_figures.size(); ++rank) {
    auto next = all_blocks[rank].begin();
    for (const RangeFigures& found : all_figures[rank]) {
      const auto end = next + static_cast<std::ptrdiff_t>(found.blocks);
      all.push_back({found, {next, end}});
      next = end;
    }
  }
  std::ranges::sort(all, {}, [](const RangeCount& count) { return std::pair{count.found.file, count.found.range}; });
  return all;
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

bool is_of_size(const Files& files, const Path& path, std::uint64_t size_bytes) {
  const std::optional<FileStat> stat = files.stat(path);
  return stat && stat->size_bytes == size_bytes;
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
  std::vector<Path> places;
  places.reserve(paths.size());
  for (const Path& path : paths) places.push_back(std::filesystem::absolute(path).lexically_normal());
  CountCache cache{files, settings.cache, places};
  std::vector<CountedFile> counted;
  counted.reserve(places.size());
  for (const Path& path : places) counted.push_back({.path = path, .record = {}, .from_cache = true, .text = path});

  // Rank 0 looks at the files and the cache for all: over a network file system other ranks might see other times.
  std::vector<FileStat> stats;
  std::vector<ToCount> wanted;
  std::string known;  // a line for each file that is not wanted
  comm::at_root(world, [&] {
    const auto find = [&](std::size_t i) -> std::optional<KnownFile> {
      if (settings.content_hash) return std::nullopt;
      try {
        if (i == 0) cache.load();
        return cache.find(i, stats[i]);
      } catch (const Error& error) {  // only time is lost
        log.warn("cached counts are not used, and {} is counted again: {}", places[i].string(), error.what());
        return std::nullopt;
      }
    };
    for (std::size_t i = 0; i < places.size(); ++i) {
      stats.push_back(settled(files, places[i]));
      const std::optional<KnownFile> file = find(i);
      const bool unpacked =
          !file || !file->packed || settings.unpack.folder.empty() ||
          is_of_size(files, unpacked_path(settings.unpack.folder, *file->packed), file->record.size_bytes);
      if (file && unpacked)
        known += fmt::format("{} {}\n", file->packed ? file->packed->hex() : "-", text_of(file->record));
      else
        wanted.push_back({i, stats[i].size_bytes, compression_of(files, places[i])});
    }
  });
  wanted = world.broadcast(wanted);
  known = world.broadcast(std::move(known));
  std::vector<RangeCount> mine;
  comm::agree(world, [&] { mine = count_share(world, files, places, wanted, settings); });
  const std::vector<RangeCount> found = gather(world, mine);

  const auto text_path = [&](const std::optional<Digest>& packed, const Path& path) {
    if (!packed) return path;
    return settings.unpack.folder.empty() ? Path{} : unpacked_path(settings.unpack.folder, *packed);
  };
  std::vector<std::optional<Digest>> packed(places.size());
  for (const ToCount& file : wanted) counted[file.file].from_cache = false;
  std::string_view lines = known;
  auto range = found.begin();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (counted[i].from_cache) {
      const std::size_t space = lines.find(' '), end = lines.find('\n');
      packed[i] = Digest::from_hex(lines.substr(0, space));
      counted[i].record = record_of_text(lines.substr(space + 1, end - space - 1)).value();
      lines.remove_prefix(end + 1);
    } else {
      const auto begin = range;
      while (range != found.end() && range->found.file == i) ++range;
      counted[i].record = join(std::span{begin, range});
      if (begin != range && begin->found.is_packed) packed[i] = begin->found.packed;
    }
    counted[i].text = text_path(packed[i], places[i]);
  }
  comm::at_root(world, [&] {
    for (const ToCount& file : wanted) {
      const FileStat after = stat_of(files, places[file.file]), &before = stats[file.file];
      if (after.size_bytes != before.size_bytes || after.mtime_ns != before.mtime_ns)
        throw_claim(Fault::data, places[file.file].string() + " changed while it was read", places[file.file].string(),
                    "a file at rest", "one that changed", "run again when no program writes to it");
    }
    try {
      for (const ToCount& file : wanted)
        cache.keep(file.file, stats[file.file], {counted[file.file].record, packed[file.file]});
      if (!wanted.empty()) cache.flush();
    } catch (const Error& error) {  // only time is lost
      log.warn("counts are not kept for the next call: {}", error.what());
    }
  });
  return counted;
}

CountedFile count_standard_input(const comm::Communicator& world, const Files& files) {
  std::string record;
  comm::at_root(world, [&] {
    File input = files.standard_input();
    const auto read = [&](std::span<char> to) { return input.read(as_writable_bytes(to)); };
    record = text_of(join(std::array{count_stream(read, [](std::span<const char>) {})}));
  });
  return {.path = "-", .record = record_of_text(world.broadcast(std::move(record))).value()};
}

std::string count_table(std::span<const CountedFile> files) {
  std::string table = fmt::format(fmt::runtime(row_format), "lines", "empty", "words", "characters", "bytes", "longest",
                                  "invalid", "file");
  for (const CountedFile& file : files) table += row_of(file.record, file.path.string());
  if (files.size() > 1) table += row_of(sum_of(files), "total");
  return table;
}

void log_warnings(const Log& log, std::span<const CountedFile> files) {
  for (const CountedFile& file : files) {
    for (const auto& [place, what] : {std::pair{&file.record.first_invalid, "is not valid UTF-8"},
                                      {&file.record.first_zero, "is binary or not in UTF-8: it has a zero byte"}}) {
      if (*place)
        log.warn("{} {} at line {}, byte {} (the first such place)", file.path.string(), what, (*place)->line + 1,
                 (*place)->byte_offset);
    }
  }
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

}  // namespace argosy::data
