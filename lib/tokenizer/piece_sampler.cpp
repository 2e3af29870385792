#include "tokenizer/piece_sampler.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "core/error.hpp"
#include "tokenizer/lattice.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

constexpr std::uint64_t unigram_type = 1, bpe_type = 2;  // TrainerSpec.ModelType

Trie trie_of(const Pieces& pieces, PieceType type) {
  std::vector<std::pair<std::string, std::int32_t>> strings;
  for (std::size_t id = 0; id < pieces.texts.size(); ++id)
    if (pieces.types[id] == type) strings.emplace_back(pieces.texts[id], narrow<std::int32_t>(id));
  return Trie(std::move(strings));
}

}  // namespace

/// A stretch of text that is one piece so far, or one character; stretches are linked from left to right.
struct PieceSampler::Symbol {
  std::size_t begin, end;
  std::int32_t before, after;  // -1: none
};

PieceSampler::PieceSampler(const Pieces& pieces, const Sampling& how)
    : how_(how),
      pieces_(trie_of(pieces, PieceType::normal)),
      user_defined_(trie_of(pieces, PieceType::user)),
      scores_(pieces.scores.begin(), pieces.scores.end()),
      is_bpe_(pieces.model_type == bpe_type) {
  if (pieces.model_type != unigram_type && pieces.model_type != bpe_type)
    throw_error(Fault::config, "the transform subword",
                "a unigram or BPE tokenizer, which can cut a word in several ways", "one of words or characters",
                "set its alpha to 0");
  constexpr double below_the_lowest = 10;
  double lowest = std::numeric_limits<double>::infinity();
  bytes_.fill(-1);
  for (std::size_t id = 0; id < pieces.texts.size(); ++id) {
    const auto number = narrow<std::int32_t>(id);
    if (pieces.types[id] == PieceType::unknown) unknown_ = number;
    if (pieces.types[id] != PieceType::normal) continue;
    lowest = std::min(lowest, scores_[id]);
    if (is_bpe_) ids_.emplace(pieces.texts[id], number);
  }
  unknown_score_ = lowest - below_the_lowest;
  if (!is_bpe_) weights_ = Lattice::weights_of(scores_, how.alpha);
  if (!pieces.byte_fallback) return;
  const Trie bytes = trie_of(pieces, PieceType::byte);
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte)
    bytes_[byte] = bytes.find(byte_piece(static_cast<unsigned char>(byte)));
}

std::vector<std::int32_t> PieceSampler::encode(std::string_view normalized, RandomStream& random) const {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < normalized.size();) {
    std::size_t longest = 0;
    std::int32_t found = -1;
    user_defined_.prefixes(normalized.substr(at), [&](std::size_t length, std::int32_t id) {
      longest = length;
      found = id;
    });
    if (found < 0) {
      static_cast<void>(next_character(normalized, at));
      continue;
    }
    encode_stretch(normalized.substr(begin, at - begin), random, ids);
    ids.push_back(found);
    begin = at += longest;
  }
  encode_stretch(normalized.substr(begin), random, ids);
  return ids;
}

void PieceSampler::encode_stretch(std::string_view text, RandomStream& random, std::vector<std::int32_t>& ids) const {
  bool after_unknown = false;
  const auto add = [&](std::size_t begin, std::size_t end, std::int32_t id) {
    if (id < 0)
      add_unknown(text.substr(begin, end - begin), after_unknown, ids);
    else
      ids.push_back(id);
    after_unknown = id < 0;
  };
  if (!is_bpe_) {
    for (const Lattice::Step& step : Lattice(pieces_, scores_, unknown_score_, weights_).sample(text, how_, random))
      add(step.begin, step.end, step.id);
    return;
  }
  std::vector<Symbol> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    static_cast<void>(next_character(text, at));
    const auto number = narrow<std::int32_t>(symbols.size());
    symbols.push_back({begin, at, number - 1, at < text.size() ? number + 1 : -1});
  }
  merge(text, symbols, random);
  for (const Symbol& symbol : symbols)
    if (symbol.begin < symbol.end)
      add(symbol.begin, symbol.end, pieces_.find(text.substr(symbol.begin, symbol.end - symbol.begin)));
}

/// Of all pieces that two neighbours make, the one of the highest score comes first, then the leftmost. Each that comes
/// up is passed over with probability alpha, for good.
void PieceSampler::merge(std::string_view text, std::vector<Symbol>& symbols, RandomStream& random) const {
  struct Candidate {
    double score;
    std::int32_t left, right;
    std::size_t size;
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  const auto symbol = [&](std::int32_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return;
    const std::size_t begin = symbol(left).begin, size = symbol(right).end - begin;
    const auto found = ids_.find(text.substr(begin, size));
    if (found != ids_.end()) queue.push({scores_[static_cast<std::size_t>(found->second)], left, right, size});
  };
  for (std::int32_t at = 0; at + 1 < narrow<std::int32_t>(symbols.size()); ++at) consider(at, at + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol &left = symbol(best.left), &right = symbol(best.right);
    const bool is_as_it_was = left.begin < left.end && right.begin < right.end && right.end - left.begin == best.size;
    if (!is_as_it_was || random.uniform() < how_.alpha) continue;
    left.end = right.end;
    right.begin = right.end;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = best.left;
    consider(left.before, best.left);
    consider(best.left, left.after);
  }
}

/// The pieces of its bytes, or the unknown piece, which stands for all unknown characters in a row.
void PieceSampler::add_unknown(std::string_view text, bool after_unknown, std::vector<std::int32_t>& ids) const {
  const bool has_bytes =
      std::ranges::all_of(text, [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; });
  if (has_bytes)
    for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
  else if (!after_unknown)
    ids.push_back(unknown_);
}

}  // namespace argosy::tokenizer
