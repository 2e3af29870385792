#include "data/corpora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "data/records.hpp"
#include "data/text_files.hpp"

namespace argosy::data {

std::vector<CountedCorpus> count_corpora(const comm::Communicator& world, const Files& files, const Log& log,
                                         const DataConfig& data, const CountSettings& settings) {
  // Rank 0 looks for all: over a network file system others might see other files. Of each corpus sources and targets.
  std::vector<std::vector<std::string>> names;
  comm::at_root(world, [&] {
    for (const TextFiles& found : find_text_files(files, data))
      for (const std::vector<Path>* side : {&found.source, &found.target}) {
        std::vector<std::string>& list = names.emplace_back();
        for (const Path& path : *side) list.push_back(path.native());
      }
  });
  names = comm::from_message<std::vector<std::vector<std::string>>>(world.broadcast(comm::to_message(names)));
  // A file of several corpora, as of both directions, is counted once.
  std::vector<Path> paths;
  std::map<std::string, std::size_t> place_of;
  for (const std::vector<std::string>& list : names)
    for (const std::string& name : list)
      if (place_of.emplace(name, paths.size()).second) paths.emplace_back(name);
  const std::vector<CountedFile> counted = count_files(world, files, log, paths, settings);
  std::vector<CountedCorpus> corpora;
  corpora.reserve(data.corpora.size());
  for (std::size_t c = 0; c < data.corpora.size(); ++c) {
    CountedCorpus& corpus = corpora.emplace_back(CountedCorpus{.rules = rules_of(data.corpora[c], data)});
    corpus.languages = data.corpora[c].languages;
    for (const std::string& name : names[2 * c]) corpus.source.push_back(counted[place_of.at(name)]);
    for (const std::string& name : names[2 * c + 1]) corpus.target.push_back(counted[place_of.at(name)]);
  }
  return corpora;
}

std::vector<CountedCorpus> online_corpora(const comm::Communicator& world, const Files& files, const Log& log,
                                          const DataConfig& data, const Path& run_dir) {
  if (data.mode != DataMode::online) return {};
  const Path cache = cache_folder(data, run_dir);
  return count_corpora(world, files, log, data, {.cache = cache / "count", .unpack = unpack_settings(data, cache)});
}

void require_readable(std::span<const CountedCorpus> corpora) {
  for (const CountedCorpus& corpus : corpora) {
    for (const std::vector<CountedFile>* side : {&corpus.source, &corpus.target}) {
      std::int64_t lines = 0, words = 0;
      for (const CountedFile& text : *side) {
        lines += text.record.figures.lines;
        words += text.record.figures.words;
      }
      if (!side->empty() && words == 0)
        throw_error(Fault::data, side->front().path.string(), "a text with words",
                    lines == 0 ? "an empty file" : fmt::format("{} lines without any", lines),
                    "correct data.corpora or the file");
      for (const CountedFile& text : *side) {
        if (const auto& zero = text.record.first_zero)
          throw_error(Fault::data,
                      fmt::format("{} line {}, byte {}", text.path.string(), zero->line + 1, zero->byte_offset), "text",
                      "a zero byte: the file is binary, or in another encoding than UTF-8",
                      "leave the file out, or convert it to UTF-8");
        const auto& place = text.record.first_invalid;
        if (!place || corpus.rules.invalid_utf8 != InvalidUtf8::reject) continue;
        throw_error(Fault::data,
                    fmt::format("{} line {}, byte {}", text.path.string(), place->line + 1, place->byte_offset),
                    "UTF-8", fmt::format("{} invalid bytes", text.record.figures.invalid_bytes),
                    "correct the text, or use --set data.invalid_utf8=replace");
      }
    }
    for (std::size_t f = 0; f < corpus.target.size(); ++f) {
      const auto lines = [](const CountedFile& text) { return static_cast<std::uint64_t>(text.record.figures.lines); };
      const CountedFile &source = corpus.source[f], &target = corpus.target[f];
      if (lines(source) != lines(target)) throw_unequal_lines(source.path, lines(source), target.path, lines(target));
    }
  }
}

Digest digest_of_texts(std::span<const CountedFile> texts) {
  if (texts.size() == 1) return texts[0].record.digest;
  Hasher hasher;
  for (const CountedFile& text : texts) hasher.update(std::as_bytes(std::span{text.record.digest.bytes}));
  return hasher.digest();
}

std::vector<CountedFile> files_of(std::span<const CountedCorpus> corpora) {
  std::vector<CountedFile> all;
  std::set<Path> seen;
  for (const CountedCorpus& corpus : corpora)
    for (const std::vector<CountedFile>* side : {&corpus.source, &corpus.target})
      for (const CountedFile& file : *side)
        if (seen.insert(file.path).second) all.push_back(file);
  return all;
}

boost::json::object token_figures(const ShardIndex& index, std::span<const CountedCorpus> corpora) {
  boost::json::object figures;
  if (index.corpora.size() != corpora.size()) return figures;
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const ShardIndex::Corpus& corpus = index.corpora[c];
    const std::vector<CountedFile>& target = corpora[c].target.empty() ? corpora[c].source : corpora[c].target;
    if (corpus.texts.empty() || corpus.texts.front().digest != digest_of_texts(corpora[c].source) ||
        corpus.texts.back().digest != digest_of_texts(target))
      return {};
    figures[corpus.name] = {{"examples", corpus.examples()},
                            {"src_tokens", corpus.src_tokens},
                            {"tgt_tokens", corpus.tgt_tokens},
                            {"unknown", corpus.unknown}};
  }
  return figures;
}

}  // namespace argosy::data
