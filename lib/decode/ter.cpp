#include "decode/ter.hpp"

#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "decode/words.hpp"

namespace argosy::decode {
namespace {

using WordIds = std::vector<std::int32_t>;  // equal words, equal ids

constexpr std::int64_t longest_move = 10, farthest_move = 50;  // words
constexpr std::int64_t enough_moves = 1000;                    // tried for a line
constexpr double least_beam = 25;                              // words on either side of the diagonal

/// What an edit does to the hypothesis.
enum class Edit : std::uint8_t { none, keep, replace, remove, insert };

/// The fewest edits that make a beginning of the hypothesis a beginning of the reference, and the last of them.
struct Cell {
  std::int64_t edits = std::numeric_limits<std::int64_t>::max() / 2;
  Edit last = Edit::none;
};

/// The cells of one beginning of the hypothesis and those beginnings of the reference that are near the diagonal.
struct EditRow {
  std::int64_t first = 0;  // words of the reference in the first cell
  std::vector<Cell> cells;
  [[nodiscard]] Cell at(std::int64_t words) const {
    const std::int64_t i = words - first;
    return i >= 0 && i < std::ssize(cells) ? cells[static_cast<std::size_t>(i)] : Cell{};
  }
};

/// Where `length` equal words start in the hypothesis, and the word before which they go.
struct Move {
  std::int64_t gain = 0;  // edits saved
  std::int64_t length = 0, start = 0, target = 0;
  [[nodiscard]] bool is_better_than(const Move& other) const {
    return std::tuple(gain, length, other.start, other.target) > std::tuple(other.gain, other.length, start, target);
  }
};

std::int32_t word(const WordIds& words, std::int64_t i) { return words[static_cast<std::size_t>(i)]; }

WordIds moved(const WordIds& words, const Move& move) {
  const auto at = [&](std::int64_t i) { return words.begin() + std::clamp<std::int64_t>(i, 0, std::ssize(words)); };
  const std::int64_t end = move.start + move.length;
  // A target inside the words themselves moves them to the right by as many words as it is from their start.
  const bool inside = move.target >= move.start && move.target <= end;
  const std::int64_t target = inside ? move.target + move.length : move.target;
  WordIds out;
  out.reserve(words.size());
  const auto append = [&](std::int64_t from, std::int64_t to) {
    if (from < to) out.insert(out.end(), at(from), at(to));
  };
  append(0, std::min(target, move.start));
  if (target > end) append(end, target);
  append(move.start, end);
  if (target < move.start) append(target, move.start);
  append(std::max(target, end), std::ssize(words));
  return out;
}

/// Edits one hypothesis into its reference.
class Editing {
 public:
  Editing(WordIds hypothesis, const WordIds& reference)
      : reference_(reference),
        size_(std::ssize(hypothesis)),
        ratio_(size_ > 0 ? static_cast<double>(std::ssize(reference)) / static_cast<double>(size_) : 1),
        // Wide enough that the parts of two rows overlap, however different the lengths.
        beam_(least_beam < ratio_ / 2 ? static_cast<std::int64_t>(std::ceil(ratio_ / 2 + least_beam))
                                      : static_cast<std::int64_t>(least_beam)),
        rows_(hypothesis.size() + 1) {
    for (std::int64_t j = 0; j <= std::ssize(reference); ++j) rows_.front().cells.push_back({j, Edit::insert});
    take(std::move(hypothesis), 0);
  }

  /// The edits, with each move as one.
  std::int64_t run() {
    std::int64_t moves = 0;
    while (const std::optional<Move> move = best_move()) {
      if (tried_ >= enough_moves || move->gain <= 0) break;
      take(moved(hypothesis_, *move), std::min(move->start, move->target));
      ++moves;
    }
    return moves + edits_of(rows_.back());
  }

 private:
  [[nodiscard]] std::int64_t edits_of(const EditRow& last) const { return last.at(std::ssize(reference_)).edits; }

  /// Replaces the hypothesis by one of which the first `same` words are equal.
  void take(WordIds hypothesis, std::int64_t same) {
    hypothesis_ = std::move(hypothesis);
    for (std::int64_t i = same; i < size_; ++i)
      extend(rows_[static_cast<std::size_t>(i)], i + 1, word(hypothesis_, i), rows_[static_cast<std::size_t>(i) + 1]);
  }

  /// The row of the first i words, of which the last is `next`, from the row above it.
  void extend(const EditRow& above, std::int64_t i, std::int32_t next, EditRow& row) const {
    const std::int64_t words = std::ssize(reference_);
    const auto diagonal = static_cast<std::int64_t>(std::floor(static_cast<double>(i) * ratio_));
    row.first = std::max<std::int64_t>(0, diagonal - beam_);
    const std::int64_t end = i == size_ ? words + 1 : std::min(words + 1, diagonal + beam_);
    row.cells.resize(static_cast<std::size_t>(end - row.first));
    Cell before;
    for (std::int64_t j = row.first; j < end; ++j) {
      Cell best;
      // Of equal numbers the first wins: it decides the alignment, and so which moves are tried.
      const auto offer = [&best](const Cell& from, std::int64_t cost, Edit edit) {
        if (from.edits + cost < best.edits) best = {from.edits + cost, edit};
      };
      if (j > 0) {
        const bool equal = next == word(reference_, j - 1);
        offer(above.at(j - 1), equal ? 0 : 1, equal ? Edit::keep : Edit::replace);
      }
      offer(above.at(j), 1, Edit::remove);
      offer(before, 1, Edit::insert);
      row.cells[static_cast<std::size_t>(j - row.first)] = before = best;
    }
  }

  [[nodiscard]] std::int64_t gain_of(const Move& move) {
    const WordIds after = moved(hypothesis_, move);
    const EditRow* above = &rows_[static_cast<std::size_t>(std::min(move.start, move.target))];
    for (std::int64_t i = std::min(move.start, move.target); i < size_; ++i) {
      EditRow& row = scratch_[static_cast<std::size_t>(i % 2)];
      extend(*above, i + 1, word(after, i), row);
      above = &row;
    }
    return edits_of(rows_.back()) - edits_of(*above);
  }

  /// For each word of the reference the word of the hypothesis that it is, replaces, or is inserted after (-1: before
  /// the first); and which words on either side are in an edit.
  void align() {
    word_of_.assign(reference_.size(), 0);
    wrong_in_reference_.assign(reference_.size(), false);
    wrong_in_hypothesis_.assign(hypothesis_.size(), false);
    std::int64_t i = size_, j = std::ssize(reference_);
    while (i > 0 || j > 0) {
      const Edit edit = rows_[static_cast<std::size_t>(i)].at(j).last;
      ARGOSY_CHECK(edit != Edit::none, "no way to edit {} words into {}", i, j);
      if (edit != Edit::insert) wrong_in_hypothesis_[static_cast<std::size_t>(i - 1)] = edit != Edit::keep;
      if (edit != Edit::remove) {
        word_of_[static_cast<std::size_t>(j - 1)] = i - 1;
        wrong_in_reference_[static_cast<std::size_t>(--j)] = edit != Edit::keep;
      }
      if (edit != Edit::insert) --i;
    }
  }

  /// The move that saves most edits; of those, the longest, the first in the hypothesis, the one with the first target.
  /// Words move to where the reference has the same words and the hypothesis has not.
  std::optional<Move> best_move() {
    align();
    std::optional<Move> best;
    const std::int64_t words = std::ssize(reference_);
    for (std::int64_t start = 0; start < size_; ++start) {
      const std::int64_t last = std::min(words - 1, start + farthest_move);
      for (std::int64_t there = std::max<std::int64_t>(0, start - farthest_move); there <= last; ++there) {
        const std::int64_t most = std::min({longest_move, size_ - start, words - there});
        for (std::int64_t length = 1; length <= most; ++length) {
          if (word(hypothesis_, start + length - 1) != word(reference_, there + length - 1)) break;
          if (!is_wrong(wrong_in_hypothesis_, start, length) || !is_wrong(wrong_in_reference_, there, length)) continue;
          const std::int64_t now = word_of_[static_cast<std::size_t>(there)];
          if (now >= start && now < start + length) continue;
          try_targets(start, there, length, best);
          if (tried_ >= enough_moves) return best;
        }
      }
    }
    return best;
  }

  void try_targets(std::int64_t start, std::int64_t there, std::int64_t length, std::optional<Move>& best) {
    for (std::int64_t offset = -1, before = -1; offset < length; ++offset) {
      const std::int64_t at = there + offset;
      const std::int64_t target = at < 0 ? 0 : word_of_[static_cast<std::size_t>(at)] + 1;
      if (target == before) continue;
      before = target;
      Move move{.length = length, .start = start, .target = target};
      move.gain = gain_of(move);
      ++tried_;
      if (!best || move.is_better_than(*best)) best = move;
    }
  }

  static bool is_wrong(const std::vector<bool>& wrong, std::int64_t start, std::int64_t length) {
    const auto from = wrong.begin() + start;
    return std::find(from, from + length, true) != from + length;
  }

  const WordIds& reference_;
  const std::int64_t size_;  // words of the hypothesis, also after moves
  const double ratio_;
  const std::int64_t beam_;
  WordIds hypothesis_;
  std::vector<EditRow> rows_;  // of its beginnings
  std::array<EditRow, 2> scratch_;
  std::vector<std::int64_t> word_of_;
  std::vector<bool> wrong_in_reference_, wrong_in_hypothesis_;
  std::int64_t tried_ = 0;
};

std::vector<std::string> lower_words_of(std::string_view text) {
  std::string lower;
  icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), narrow<std::int32_t>(text.size())))
      .toLower(icu::Locale::getRoot())
      .toUTF8String(lower);
  return words_of(lower);
}

}  // namespace

void TerCounts::add(std::string_view hypothesis, std::string_view reference) {
  std::unordered_map<std::string, std::int32_t> ids;
  const auto ids_of = [&ids](std::string_view text) {
    WordIds out;
    for (std::string& each : lower_words_of(text))
      out.push_back(ids.try_emplace(std::move(each), narrow<std::int32_t>(ids.size())).first->second);
    return out;
  };
  WordIds words = ids_of(hypothesis);
  const WordIds wanted = ids_of(reference);
  counts_[0] += wanted.empty() ? std::ssize(words) : Editing(std::move(words), wanted).run();
  counts_[1] += std::ssize(wanted);
}

double TerCounts::score() const {
  if (counts_[1] == 0) return counts_[0] > 0 ? 100 : 0;
  return 100 * (static_cast<double>(counts_[0]) / static_cast<double>(counts_[1]));
}

}  // namespace argosy::decode
