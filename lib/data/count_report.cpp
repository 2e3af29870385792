#include "data/count_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace argosy::data {
namespace {

constexpr const char* row_format = "{:>12} {:>10} {:>12} {:>13} {:>14} {:>9} {:>9}  {}\n";

CountRecord sum_of(std::span<const CountedFile> files) {
  CountRecord sum;
  for (const CountedFile& file : files) {
    const TextFigures& figures = file.record.figures;
    sum.size_bytes += file.record.size_bytes;
    sum.figures.lines += figures.lines;
    sum.figures.empty_lines += figures.empty_lines;
    sum.figures.words += figures.words;
    sum.figures.characters += figures.characters;
    sum.figures.longest_line = std::max(sum.figures.longest_line, figures.longest_line);
    sum.figures.invalid_bytes += figures.invalid_bytes;
  }
  return sum;
}

std::string row_of(const CountRecord& record, const std::string& name) {
  const TextFigures& figures = record.figures;
  return fmt::format(fmt::runtime(row_format), figures.lines, figures.empty_lines, figures.words, figures.characters,
                     record.size_bytes, figures.longest_line, figures.invalid_bytes, name);
}

}  // namespace

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
