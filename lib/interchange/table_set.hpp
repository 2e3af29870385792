#pragma once

#include <set>
#include <string>
#include <vector>

#include "interchange/piece_set.hpp"

namespace argosy::interchange {

/// A piece table: its models split text, and the table numbers what they make (data/piece_table.hpp). A piece that is
/// added is added to the models of both sides; it is made of what both made of it.
class TableSet final : public VocabularyFile {
 public:
  /// Borrows the tokenizer. Throws Error{data}, which begins with `where`, for models that are neither unigram nor BPE.
  TableSet(const data::Tokenizer& tokenizer, const std::string& where);

  [[nodiscard]] std::vector<bool> needed(std::vector<bool> used) const override;
  [[nodiscard]] std::string file_with(const std::vector<bool>& kept) const override;
  [[nodiscard]] std::string spelled(std::string_view line) const override { return sides_.front().spelled(line); }
  bool add(const std::string& piece) override;
  [[nodiscard]] std::string file() const override;
  /// Tokens of languages follow the table.
  [[nodiscard]] std::int64_t added_at() const override { return table_size_; }

 private:
  [[nodiscard]] std::vector<bool> of_side(const PieceSet& side, const std::vector<bool>& used) const;
  [[nodiscard]] std::string packed(data::TableParts parts, const std::vector<std::string>& pieces) const;
  void put(const std::string& piece);

  const data::Tokenizer& tokenizer_;
  data::TableParts parts_;
  std::vector<PieceSet> sides_;
  std::int64_t table_size_ = 0;  // without pad
  bool has_pad_ = false;         // the table has a last piece <pad>, which is none of the tokenizer
  std::set<std::string, std::less<>> new_pieces_;
};

}  // namespace argosy::interchange
