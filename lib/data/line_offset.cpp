#include "data/line_offset.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace argosy::data {

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

}  // namespace argosy::data
