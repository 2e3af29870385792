#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "data/line_reader.hpp"
#include "interchange/vocabulary_change.hpp"

namespace argosy::interchange {
namespace {

constexpr std::size_t compared_lines = 100;

/// Throws Error{data} unless the tokenizer makes a piece of the text that it stands for. Of those that begin no word it
/// depends on the word.
void check_reachable(const data::Tokenizer& tokenizer, const std::string& piece, const std::string& line,
                     const Path& path) {
  if (!line.starts_with(' ')) return;
  const std::string text = line.substr(1);
  std::string got;
  for (const data::Side side : sides_of(tokenizer)) {
    for (const std::string& each : {line, text}) {  // a blank before a text may be the tokenizer's own
      const std::vector<std::int32_t> ids = tokenizer.encode(each, side);
      if (ids.size() == 1 && tokenizer.piece(ids.front()) == piece) return;
      got.clear();
      for (const std::int32_t id : ids) {
        if (!got.empty()) got += ' ';
        got += tokenizer.piece(id);
      }
    }
  }
  throw_claim(Fault::data,
              fmt::format("{}: the tokenizer would never make the piece \"{}\": \"{}\" becomes \"{}\"", path.string(),
                          piece, text, got),
              path.string(), "pieces as the tokenizer spells text", piece,
              "spell it as the tokenizer normalizes text, or leave it out");
}

/// A line with blanks for U+2581, which stands for them.
std::string with_blanks(std::string line, const Path& path) {
  constexpr std::string_view mark = tokenizer::space_mark;
  for (std::size_t at = 0; (at = line.find(mark, at)) != std::string::npos;) line.replace(at, mark.size(), 1, ' ');
  if (first_invalid_utf8(line))
    throw_error(Fault::data, path.string(), "pieces in UTF-8", fmt::format("\"{}\"", replace_invalid_utf8(line)),
                "correct the line, or leave it out");
  return line;
}

}  // namespace

ChangedVocabulary extend_vocabulary(comm::Context& context, const model::StoredModel& model, const Path& pieces,
                                    const std::vector<Path>& texts, const model::Forward& forward) {
  std::optional<model::StoredModel> changed;
  std::vector<VocabularyFigures> figures(1);
  std::int64_t skipped = 0, parts = 0;
  comm::agree(context.world, [&] {
    data::LineReader reader{context.files.open(pieces)};
    const std::unique_ptr<VocabularyFile> file = VocabularyFile::of(model.tokenizer, model.where);
    std::vector<std::pair<std::string, std::string>> added;  // and the line
    for (std::string line; reader.next(line);) {
      if (line.empty()) continue;
      line = with_blanks(std::move(line), pieces);
      std::string piece = file->spelled(line);
      if (file->add(piece)) {
        added.emplace_back(std::move(piece), line);
      } else {
        ++skipped;
      }
    }
    if (added.empty())
      throw_error(Fault::data, pieces.string(), "pieces that the tokenizer does not have",
                  fmt::format("{} that it has", skipped), "give a file with one new piece in a line");
    VocabularyChange change{.tokenizer = file->file(), .old_ids = {}, .added = file->added()};
    for (std::int64_t id = 0; id < model.tokenizer.spelled_ids(); ++id) {
      if (id == file->added_at()) change.old_ids.resize(change.old_ids.size() + change.added.size(), -1);
      change.old_ids.push_back(id);
    }
    if (file->added_at() == model.tokenizer.spelled_ids())
      change.old_ids.resize(change.old_ids.size() + change.added.size(), -1);
    append_unspelled(change.old_ids, model.tokenizer);
    parts = std::ssize(change.added) - std::ssize(added);
    changed.emplace(changed_model(model, change));
    for (const auto& [piece, line] : added) check_reachable(changed->tokenizer, piece, line, pieces);
  });
  comm::at_root(context.world, [&] {
    figures[0] = check_vocabulary(model, *changed, first_lines(context.files, texts, compared_lines), forward);
  });
  figures = context.world.broadcast(figures);
  figures[0].skipped = skipped;
  figures[0].parts = parts;
  return {std::move(*changed), figures.front()};
}

}  // namespace argosy::interchange
