#include "interchange/table_set.hpp"

#include <boost/json.hpp>

#include "core/error.hpp"
#include "interchange/vocabulary_change.hpp"

namespace argosy::interchange {
namespace {

/// What no text spells, and codes such as >>fr<<.
bool is_special_entry(const std::string& piece) {
  return piece == "<s>" || piece == "</s>" || piece == "<pad>" || piece == "<unk>" ||
         (piece.starts_with(">>") && piece.ends_with("<<"));
}

}  // namespace

TableSet::TableSet(const data::Tokenizer& tokenizer, const std::string& where)
    : tokenizer_(tokenizer), parts_(data::unpack(tokenizer.model_bytes(), where)) {
  sides_.emplace_back(parts_.source, nullptr);
  if (!parts_.target.empty()) sides_.emplace_back(parts_.target, nullptr);
  const boost::json::value table = boost::json::parse(parts_.table);
  const boost::json::object& ids = table.as_object();
  const boost::json::value* const pad = ids.if_contains("<pad>");
  has_pad_ = parts_.languages.empty() && pad != nullptr && *pad == std::ssize(ids) - 1;
  table_size_ = std::ssize(ids) - (has_pad_ ? 1 : 0);
}

/// Which pieces of a side's model stay with those of the table. Pieces that the table does not have stand for unknown
/// ones, and stay.
std::vector<bool> TableSet::of_side(const PieceSet& side, const std::vector<bool>& used) const {
  std::vector<bool> kept;
  for (const std::string& piece : side.texts()) {
    const auto id = tokenizer_.id_of(piece);
    kept.push_back(!id || used[static_cast<std::size_t>(*id)]);
  }
  return side.needed(std::move(kept));
}

std::vector<bool> TableSet::needed(std::vector<bool> used) const {
  for (std::size_t id = 0; id < used.size(); ++id)
    if (static_cast<std::int64_t>(id) >= table_size_ ||
        is_special_entry(tokenizer_.piece(static_cast<std::int64_t>(id))))
      used[id] = true;
  for (const PieceSet& side : sides_) {
    const std::vector<bool> kept = of_side(side, used);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto id = kept[i] ? tokenizer_.id_of(side.texts()[i]) : std::nullopt;
      if (id) used[static_cast<std::size_t>(*id)] = true;
    }
  }
  return used;
}

std::string TableSet::file_with(const std::vector<bool>& kept) const {
  data::TableParts parts = parts_;
  parts.source = sides_.front().file_with(of_side(sides_.front(), kept));
  if (sides_.size() > 1) parts.target = sides_.back().file_with(of_side(sides_.back(), kept));
  std::vector<std::string> pieces;
  for (std::int64_t id = 0; id < table_size_; ++id)
    if (kept[static_cast<std::size_t>(id)]) pieces.push_back(tokenizer_.piece(id));
  return packed(std::move(parts), pieces);
}

std::string TableSet::packed(data::TableParts parts, const std::vector<std::string>& pieces) const {
  boost::json::object table;
  for (const std::string& piece : pieces) table.emplace(piece, static_cast<std::int64_t>(table.size()));
  if (has_pad_) table.emplace("<pad>", static_cast<std::int64_t>(table.size()));
  parts.table = boost::json::serialize(table);
  return data::pack(parts);
}

bool TableSet::add(const std::string& piece) {
  if (tokenizer_.id_of(piece) || new_pieces_.contains(piece)) return false;
  for (PieceSet& side : sides_) {
    const std::size_t before = side.added().size();
    side.add(piece);
    for (std::size_t i = before; i < side.added().size(); ++i) put(side.added()[i].piece);
  }
  put(piece);  // of which both models may have known before
  return true;
}

void TableSet::put(const std::string& piece) {
  if (tokenizer_.id_of(piece) || !new_pieces_.insert(piece).second) return;
  Added& made = added_.emplace_back(Added{piece, {}});
  for (const PieceSet& side : sides_)
    for (const std::int64_t part : side.made_of(piece)) {
      const auto id = tokenizer_.id_of(side.texts()[static_cast<std::size_t>(part)]);
      made.made_of.push_back(id ? *id : tokenizer_.unknown().value());
    }
}

std::string TableSet::file() const {
  data::TableParts parts = parts_;
  parts.source = sides_.front().file();
  if (sides_.size() > 1) parts.target = sides_.back().file();
  std::vector<std::string> pieces;
  for (std::int64_t id = 0; id < table_size_; ++id) pieces.push_back(tokenizer_.piece(id));
  for (const Added& made : added_) pieces.push_back(made.piece);
  return packed(std::move(parts), pieces);
}

std::unique_ptr<VocabularyFile> VocabularyFile::of(const data::Tokenizer& tokenizer, const std::string& where) {
  require_one(tokenizer);
  if (tokenizer.kind() == data::TokenizerKind::table) return std::make_unique<TableSet>(tokenizer, where);
  return std::make_unique<PieceSet>(tokenizer.model_bytes(), tokenizer.pipeline());
}

}  // namespace argosy::interchange
