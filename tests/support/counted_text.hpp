#pragma once

#include <algorithm>
#include <vector>

#include "data/corpora.hpp"

namespace argosy::test {

/// Files of one side, counted without MPI.
inline std::vector<data::CountedFile> counted(const std::vector<Path>& paths) {
  std::vector<data::CountedFile> files;
  for (const Path& path : paths) {
    const std::string text = Files::system().read_text(path);
    data::CountedFile& file = files.emplace_back(data::CountedFile{.path = path, .record = {}, .text = path});
    const auto newlines = std::ranges::count(text, '\n');
    file.record.size_bytes = text.size();
    file.record.figures.newlines = newlines;
    file.record.figures.lines = newlines + (text.empty() || text.ends_with('\n') ? 0 : 1);
    file.record.block_newlines = {static_cast<std::uint32_t>(newlines)};
  }
  return files;
}

/// A corpus of files, counted without MPI.
inline data::CountedCorpus counted(const data::TextRules& rules, const std::vector<Path>& source,
                                   const std::vector<Path>& target = {}) {
  return {.rules = rules, .source = counted(source), .target = counted(target)};
}

}  // namespace argosy::test
