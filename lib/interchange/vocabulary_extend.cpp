#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "data/line_reader.hpp"
#include "interchange/vocabulary_change.hpp"

namespace argosy::interchange {
namespace {

constexpr std::size_t compared_lines = 100;

/// What a unigram model gains by an added piece over its parts: much more than fp32 loses in sums of scores.
constexpr float preference = 0.1F;

/// Adds pieces to a tokenizer, one after the other.
class Extension {
 public:
  Extension(const data::Tokenizer& tokenizer, spec::VocabularyRule rule)
      : tokenizer_(tokenizer),
        verbatim_(data::Tokenizer::load(without_normalization(tokenizer.model_bytes()), rule)),
        pieces_(tokenizer.model_bytes()),
        builder_(pieces_) {
    for (std::size_t id = 0; id < pieces_.texts.size(); ++id) {
      known_.insert(pieces_.texts[id]);
      if (pieces_.types[id] == PieceType::normal) lowest_ = std::min(lowest_, pieces_.scores[id]);
      change_.kept.push_back(static_cast<std::int64_t>(id));
    }
  }

  /// False: the piece exists.
  bool add(const std::string& piece) {
    if (known_.contains(piece)) return false;
    if (builder_.is_bpe()) {
      build(piece);
      return true;
    }
    float score = preference;
    for (const std::int64_t part : builder_.split(piece))
      score += part < 0 ? lowest_ : pieces_.scores[static_cast<std::size_t>(part)];
    put(piece, std::max(score, lowest_));  // a lower one would change the score of unknown pieces
    return true;
  }

  /// Pieces that were added to build others.
  [[nodiscard]] std::int64_t parts() const noexcept { return parts_; }
  [[nodiscard]] VocabularyChange take() {
    change_.tokenizer = with_pieces(tokenizer_.model_bytes(), pieces_);
    return std::move(change_);
  }

 private:
  /// BPE puts two neighbours together at a time, and new pieces after all others.
  void build(const std::string& piece) {
    std::string text;
    for (const std::string& symbol : builder_.symbols(piece)) {
      if (!known_.contains(symbol)) put_part(symbol, piece);
      text += symbol;
      if (!known_.contains(text)) put_part(text, piece);
    }
  }
  void put_part(const std::string& part, const std::string& piece) {
    put(part, lowest_ -= 1);
    if (part != piece) ++parts_;
  }

  void put(const std::string& piece, float score) {
    const std::vector<std::int32_t> made_of = verbatim_.encode(piece);
    known_.insert(piece);
    builder_.add(piece, std::ssize(pieces_.texts), score);
    pieces_.texts.push_back(piece);
    pieces_.scores.push_back(score);
    pieces_.types.push_back(PieceType::normal);
    change_.added.push_back({piece, {made_of.begin(), made_of.end()}});
  }

  const data::Tokenizer& tokenizer_;
  const data::Tokenizer verbatim_;
  Pieces pieces_;
  PieceBuilder builder_;
  std::set<std::string, std::less<>> known_;
  float lowest_ = 0;
  std::int64_t parts_ = 0;
  VocabularyChange change_;
};

/// A line as SentencePiece spells it.
std::string spelled(std::string line) {
  for (std::size_t blank = 0; (blank = line.find(' ', blank)) != std::string::npos;) line.replace(blank, 1, space_mark);
  return line;
}

/// Throws Error{data} unless the tokenizer makes a piece of the text that it stands for. Of those that begin no word it
/// depends on the word.
void check_reachable(const data::Tokenizer& tokenizer, const std::string& piece, const Path& path) {
  if (!piece.starts_with(space_mark)) return;
  std::string text;
  for (std::size_t at = std::string_view{space_mark}.size(); at < piece.size();) {
    const bool is_space = std::string_view{piece}.substr(at).starts_with(space_mark);
    text += is_space ? ' ' : piece[at];
    at += is_space ? std::string_view{space_mark}.size() : 1;
  }
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (ids.size() == 1 && tokenizer.piece(ids.front()) == piece) return;
  std::string got;
  for (const std::int32_t id : ids) got += (got.empty() ? "" : " ") + tokenizer.piece(id);
  throw_claim(Fault::data,
              fmt::format("{}: the tokenizer would never make the piece \"{}\": \"{}\" becomes \"{}\"", path.string(),
                          piece, text, got),
              path.string(), "pieces as the tokenizer spells text", piece,
              "spell it as the tokenizer normalizes text, or leave it out");
}

}  // namespace

ChangedVocabulary extend_vocabulary(comm::Context& context, const model::StoredModel& model, const Path& pieces,
                                    const std::vector<Path>& texts, const model::Forward& forward) {
  require_spelled_ids(model);
  std::optional<model::StoredModel> changed;
  std::vector<VocabularyFigures> figures(1);
  std::int64_t skipped = 0, parts = 0;
  comm::agree(context.world, [&] {
    data::LineReader reader{context.files.open(pieces)};
    Extension extension{model.tokenizer, spec::vocabulary_rule(model.config)};
    std::vector<std::string> added;
    for (std::string line; reader.next(line);) {
      if (line.empty()) continue;
      std::string piece = spelled(line);
      if (extension.add(piece)) {
        added.push_back(std::move(piece));
      } else {
        ++skipped;
      }
    }
    if (added.empty())
      throw_error(Fault::data, pieces.string(), "pieces that the tokenizer does not have",
                  fmt::format("{} that it has", skipped), "give a file with one new piece in a line");
    parts = extension.parts();
    changed.emplace(changed_model(model, extension.take()));
    for (const std::string& piece : added) check_reachable(changed->tokenizer, piece, pieces);
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
