#include "interchange/piece_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/scores.hpp"

namespace argosy::interchange {
namespace {

using tokenizer::PieceType, tokenizer::space_mark;

constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (const char byte : text) {
    if ((static_cast<unsigned char>(byte) & 0xc0U) == 0x80U && !characters.empty()) {
      characters.back() += byte;
    } else {
      characters.emplace_back(1, byte);
    }
  }
  return characters;
}

}  // namespace

const PieceBuilder::Known* PieceBuilder::find(std::string_view piece) const {
  const auto found = by_text_.find(piece);
  return found == by_text_.end() ? nullptr : &found->second;
}

std::vector<std::string> PieceBuilder::merged(std::string_view text, std::int64_t end,
                                              std::vector<std::int64_t>* on_the_way) const {
  std::vector<std::string> symbols = characters_of(text);
  for (;;) {
    std::size_t best = symbols.size();
    const Known* made = nullptr;
    double best_score = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = has_merges_ ? ranks_.find(std::pair{symbols[i], symbols[i + 1]}) : ranks_.end();
      if (has_merges_ && rank == ranks_.end()) continue;
      const Known* const known = find(symbols[i] + symbols[i + 1]);
      if (known == nullptr || known->id >= end) continue;
      const double score = has_merges_ ? -static_cast<double>(rank->second) : known->score;
      if (made != nullptr && score <= best_score) continue;
      best_score = score;
      made = known;
      best = i;
    }
    if (made == nullptr) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    if (on_the_way != nullptr) on_the_way->push_back(made->id);
  }
}

std::vector<std::string> PieceBuilder::best_split(std::string_view text, std::int64_t end_id) const {
  const std::vector<std::string> characters = characters_of(text);
  constexpr double unknown = -1e6;  // worse than any pieces
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
  };
  std::vector<Best> best(characters.size() + 1);
  best[0].score = 0;
  for (std::size_t begin = 0; begin < characters.size(); ++begin) {
    const auto offer = [&](std::size_t end, double score) {
      if (best[begin].score + score > best[end].score) best[end] = {best[begin].score + score, begin};
    };
    offer(begin + 1, unknown);
    std::string piece;
    for (std::size_t end = begin; end < characters.size(); ++end) {
      piece += characters[end];
      if (const Known* const known = find(piece); known != nullptr && known->id < end_id) offer(end + 1, known->score);
    }
  }
  std::vector<std::string> pieces;
  for (std::size_t end = characters.size(); end > 0; end = best[end].begin) {
    pieces.emplace_back();
    for (std::size_t i = best[end].begin; i < end; ++i) pieces.back() += characters[i];
  }
  std::ranges::reverse(pieces);
  return pieces;
}

std::vector<std::int64_t> PieceBuilder::built(std::string_view piece) const {
  std::vector<std::int64_t> ids;
  if (merged(piece, no_end, &ids).size() > 1) return {};
  for (const std::string& character : characters_of(has_merges_ ? piece : ""))
    if (const Known* const known = find(character)) ids.push_back(known->id);
  return ids;
}

PieceSet::PieceSet(std::string bytes, const tokenizer::Pipeline* pipeline)
    : bytes_(std::move(bytes)), builder_(false, false) {
  if (pipeline != nullptr) {
    json_.emplace(*pipeline, bytes_);
    texts_ = json_->texts;
    types_ = json_->types;
    is_bpe_ = pipeline->is_bpe();
    for (std::int32_t id = 0; id < pipeline->size(); ++id)
      scores_.push_back(static_cast<std::size_t>(id) < json_->scores.size()
                            ? tokenizer::as_serde_json(json_->scores[static_cast<std::size_t>(id)])
                            : 0);
  } else {
    const tokenizer::Pieces pieces{bytes_};
    if (pieces.model_type != 1 && pieces.model_type != 2)
      throw_claim(Fault::data, "tokenizer.model splits text into words or characters", "tokenizer.model",
                  "a unigram or BPE model", fmt::format("model type {}", pieces.model_type),
                  "use a model whose tokenizer was trained with data.tokenizer_training.type unigram or bpe");
    texts_ = pieces.texts;
    types_ = pieces.types;
    scores_.assign(pieces.scores.begin(), pieces.scores.end());
    is_bpe_ = pieces.model_type == 2;
  }
  old_size_ = std::ssize(texts_);
  builder_ = PieceBuilder(is_bpe_, is_bpe_ && json_);
  for (std::size_t id = 0; id < texts_.size(); ++id) {
    ids_.emplace(texts_[id], static_cast<std::int64_t>(id));
    if (types_[id] == PieceType::normal) lowest_ = std::min(lowest_, scores_[id]);
    if (json_ ? id < json_->in_model : types_[id] == PieceType::normal)
      builder_.add(texts_[id], static_cast<std::int64_t>(id), scores_[id]);
  }
  if (json_)
    for (const auto& [left, right] : json_->merges) builder_.add_merge(left, right);
}

std::string PieceSet::spelled(std::string_view line) const {
  std::string piece;
  if (json_ && json_->is_byte_level) {
    tokenizer::append_as_byte_characters(piece, line);
    return piece;
  }
  for (const char byte : line) piece += byte == ' ' ? std::string{space_mark} : std::string(1, byte);
  return piece;
}

std::vector<bool> PieceSet::needed(std::vector<bool> used) const {
  std::vector<std::int64_t> open;
  const auto keep = [&](std::int64_t id) {
    if (used[static_cast<std::size_t>(id)]) return;
    used[static_cast<std::size_t>(id)] = true;
    open.push_back(id);
  };
  std::optional<std::int64_t> lowest, highest;
  for (std::int64_t id = 0; id < std::ssize(texts_); ++id) {
    const auto at = static_cast<std::size_t>(id);
    if (used[at]) open.push_back(id);
    if (types_[at] != PieceType::normal) {
      used[at] = true;  // text does not make it of parts
      continue;
    }
    if (!lowest || scores_[at] < scores_[static_cast<std::size_t>(*lowest)]) lowest = id;
    if (!highest || scores_[at] > scores_[static_cast<std::size_t>(*highest)]) highest = id;
  }
  if (!is_bpe_) {
    if (lowest) used[static_cast<std::size_t>(*lowest)] = used[static_cast<std::size_t>(*highest)] = true;
    return used;
  }
  while (!open.empty()) {
    const std::string& piece = texts_[static_cast<std::size_t>(open.back())];
    open.pop_back();
    const std::vector<std::int64_t> parts = builder_.built(piece);
    for (const std::int64_t part : parts) keep(part);
    if (!parts.empty() || !json_) continue;
    // Characters that are spelled by bytes: any merge may make it.
    for (const auto& [left, right] : json_->merges)
      if (left.size() + right.size() == piece.size() && left + right == piece)
        for (const std::string& part : {left, right}) keep(ids_.at(part));
  }
  return used;
}

std::string PieceSet::file_with(const std::vector<bool>& kept) const {
  std::vector<std::int64_t> old_ids;
  const auto stays = [&](const std::string& piece) { return kept[static_cast<std::size_t>(ids_.at(piece))]; };
  for (std::int64_t id = 0; id < std::ssize(texts_); ++id)
    if (kept[static_cast<std::size_t>(id)]) old_ids.push_back(id);
  const auto take = [&](auto& from, auto& to) {
    to.clear();
    for (const std::int64_t id : old_ids)
      if (static_cast<std::size_t>(id) < from.size()) to.push_back(from[static_cast<std::size_t>(id)]);
  };
  if (!json_) {
    const tokenizer::Pieces all{bytes_};
    tokenizer::Pieces pieces = all;
    take(all.texts, pieces.texts);
    take(all.scores, pieces.scores);
    take(all.types, pieces.types);
    return with_pieces(bytes_, pieces);
  }
  tokenizer::JsonPieces pieces = *json_;
  take(json_->texts, pieces.texts);
  take(json_->types, pieces.types);
  take(json_->scores, pieces.scores);
  pieces.in_model = static_cast<std::size_t>(
      std::ranges::count_if(old_ids, [&](std::int64_t id) { return id < static_cast<std::int64_t>(json_->in_model); }));
  std::erase_if(pieces.merges, [&](const auto& merge) {
    return !stays(merge.first) || !stays(merge.second) || !stays(merge.first + merge.second);
  });
  return with_pieces(bytes_, pieces, old_ids);
}

bool PieceSet::add(const std::string& piece) {
  if (ids_.contains(piece)) return false;
  if (is_bpe_) {
    build(piece);
    return true;
  }
  constexpr double preference = 0.1;  // over its parts: much more than fp32 loses in sums of scores
  double score = preference;
  for (const std::string& part : builder_.split(piece, no_end)) {
    const PieceBuilder::Known* const known = builder_.find(part);
    score += known == nullptr ? lowest_ : known->score;
  }
  put(piece, std::max(score, lowest_));  // a lower one would change the score of unknown pieces
  return true;
}

/// BPE puts two neighbours together at a time, and new pieces after all others.
void PieceSet::build(const std::string& piece) {
  std::string text;
  for (const std::string& symbol : builder_.split(piece, no_end)) {
    if (!ids_.contains(symbol)) put(symbol, lowest_ -= 1);
    if (json_ && !text.empty() && !builder_.has_merge(text, symbol)) {
      const auto old = ids_.find(text + symbol);
      if (old != ids_.end() && old->second < old_size_)
        throw_claim(Fault::data,
                    fmt::format("the piece \"{}\" cannot be built: its part \"{}\" is a piece that no merge makes of "
                                "\"{}\" and \"{}\"",
                                piece, text + symbol, text, symbol),
                    "the pieces to add", "pieces that the tokenizer's merges can lead to", piece, "leave it out");
      builder_.add_merge(text, symbol);
      json_->merges.emplace_back(text, symbol);
    }
    text += symbol;
    if (!ids_.contains(text)) put(text, lowest_ -= 1);
  }
}

void PieceSet::put(const std::string& piece, double score) {
  added_.push_back({piece, made_of(piece)});
  builder_.add(piece, std::ssize(texts_), score);
  ids_.emplace(piece, std::ssize(texts_));
  texts_.push_back(piece);
  scores_.push_back(score);
  types_.push_back(PieceType::normal);
}

std::vector<std::int64_t> PieceSet::made_of(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for (const std::string& part : builder_.split(text, old_size_)) {
    if (const PieceBuilder::Known* const known = builder_.find(part); known != nullptr && known->id < old_size_) {
      ids.push_back(known->id);
      continue;
    }
    std::vector<std::int64_t> bytes;
    for (const char byte : part) {
      const auto found = ids_.find(tokenizer::byte_piece(static_cast<unsigned char>(byte)));
      if (found != ids_.end() && types_[static_cast<std::size_t>(found->second)] == PieceType::byte)
        bytes.push_back(found->second);
    }
    const auto unknown = std::ranges::find(types_, PieceType::unknown);
    if (bytes.size() == part.size())
      ids.insert(ids.end(), bytes.begin(), bytes.end());
    else if (unknown != types_.end() && (ids.empty() || ids.back() != unknown - types_.begin()))  // several are one
      ids.push_back(unknown - types_.begin());
  }
  if (!ids.empty()) return ids;
  throw_claim(Fault::data, fmt::format("the tokenizer makes nothing of \"{}\", which is to be a piece", text),
              "the pieces to add", "pieces whose text the tokenizer spells", std::string{text}, "leave it out");
}

std::string PieceSet::file() const {
  if (!json_) {
    tokenizer::Pieces pieces{bytes_};
    pieces.texts = texts_;
    pieces.types = types_;
    pieces.scores.assign(scores_.begin(), scores_.end());
    return with_pieces(bytes_, pieces);
  }
  // Added tokens become pieces of the model as well: they keep their ids, and the new pieces follow.
  tokenizer::JsonPieces pieces = *json_;
  const std::size_t lowest = static_cast<std::size_t>(std::ranges::min_element(scores_) - scores_.begin());
  std::vector<std::int64_t> old_ids(texts_.size(), -1);
  for (std::size_t id = 0; id < texts_.size(); ++id) {
    const bool is_old = static_cast<std::int64_t>(id) < old_size_;
    if (is_old) old_ids[id] = static_cast<std::int64_t>(id);
    if (!is_bpe_ && id >= json_->in_model)
      pieces.scores.push_back(is_old ? json_->scores.at(lowest) : fmt::format("{}", scores_[id]));
  }
  pieces.texts = texts_;
  pieces.types = types_;
  pieces.in_model = texts_.size();
  return with_pieces(bytes_, pieces, old_ids);
}

}  // namespace argosy::interchange
