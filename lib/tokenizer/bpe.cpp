/// Byte pair encoding (Sennrich et al., arXiv:1508.07909).
#include <array>
#include <boost/json/object.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <queue>

#include "core/error.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

constexpr std::int32_t no_id = -1;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
}

/// A piece of the word that is being merged; pieces are linked from left to right.
struct Symbol {
  std::int32_t id;
  std::int32_t before, after;  // -1: none
  bool gone = false;           // merged into the one before
};

struct Merge {
  std::int32_t rank, id;
};

/// A merge that was possible when it was found. The lowest rank comes first, then the leftmost.
struct Candidate {
  Merge merge;
  std::int32_t at;
  bool operator<(const Candidate& other) const {
    return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : at > other.at;
  }
};

class Bpe final : public Model {
 public:
  explicit Bpe(const JsonNode& node) {
    refuse_what_is_not_read(node);
    fuses_unknown_ = node.flag("fuse_unk", false);
    takes_whole_words_ = node.flag("ignore_merges", false);
    read_pieces(node.at("vocab"));
    if (const auto unknown = node.find("unk_token")) {
      unknown_ = id_or_none(unknown->text());
      if (unknown_ == no_id) unknown->refuse("a piece of the vocabulary", unknown->text());
    }
    bytes_.fill(no_id);
    if (node.flag("byte_fallback", false))
      for (std::size_t byte = 0; byte < bytes_.size(); ++byte)
        bytes_[byte] = id_or_none(byte_piece(static_cast<unsigned char>(byte)));
    read_merges(node.at("merges"));
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    if (takes_whole_words_)
      if (const std::int32_t id = id_or_none(word); id != no_id) return ids.push_back(id);
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    begin(word, symbols);
    merge(symbols, [] { return false; });
    add(symbols, ids);
  }
  void sample(std::string_view word, const Sampling& how, RandomStream& random,
              std::vector<std::int32_t>& ids) const override {
    std::vector<Symbol> symbols;
    begin(word, symbols);
    bool skipped = false;
    merge(symbols, [&] {
      const bool skips = random.uniform() < how.alpha;
      skipped = skipped || skips;
      return skips;
    });
    if (!skipped) return encode(word, ids);  // a word that is a piece may have none of its merges
    add(symbols, ids);
  }
  [[nodiscard]] bool is_bpe() const override { return true; }

  [[nodiscard]] std::int32_t size() const override { return narrow<std::int32_t>(pieces_.size()); }
  [[nodiscard]] const std::string& piece(std::int32_t id) const override {
    return pieces_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] float score(std::int32_t id) const override { return scores_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view piece) const override {
    const std::int32_t id = id_or_none(piece);
    return id == no_id ? std::nullopt : std::optional{id};
  }
  [[nodiscard]] std::optional<std::int32_t> unknown() const override {
    return unknown_ == no_id ? std::nullopt : std::optional{unknown_};
  }

 private:
  static void refuse_what_is_not_read(const JsonNode& node) {
    if (const auto dropout = node.find("dropout"); dropout && dropout->number() != 0)
      dropout->refuse("0, since a text must always have the same ids", fmt::format("{}", dropout->number()));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const auto affix = node.find(key); affix && !affix->text().empty())
        affix->refuse("none, which is what Argosy reads", affix->text());
  }

  void read_pieces(const JsonNode& node) {
    if (!node.value().is_object()) node.refuse("an object of pieces and ids", "another value");
    const boost::json::object& vocabulary = node.value().get_object();
    const auto size = narrow<std::int64_t>(vocabulary.size());
    pieces_.resize(vocabulary.size());
    scores_.resize(vocabulary.size());
    ids_.reserve(vocabulary.size());
    std::vector<bool> taken(vocabulary.size());
    for (const auto& [piece, id] : vocabulary) {
      const auto at = static_cast<std::size_t>(node.at(piece).whole(size));
      if (taken[at])
        node.refuse("one piece for each id", fmt::format("{} and {} for {}", pieces_[at], std::string_view{piece}, at));
      taken[at] = true;
      pieces_[at] = piece;
      ids_.emplace(piece, narrow<std::int32_t>(at));
    }
  }

  void read_merges(const JsonNode& node) {
    std::int32_t rank = 0;
    boost::unordered_flat_set<std::int32_t> made;
    for (const JsonNode& element : node.elements()) {
      std::string left, right;
      if (element.value().is_array()) {
        const auto both = element.elements();
        if (both.size() != 2) element.refuse("two pieces", fmt::format("{}", both.size()));
        left = both[0].text();
        right = both[1].text();
      } else {
        const std::string both = element.text();
        if (both.starts_with("#version")) continue;
        const std::size_t blank = both.find(' ');
        if (blank == both.npos || both.find(' ', blank + 1) != both.npos)
          element.refuse("two pieces with a blank between them", both);
        left = both.substr(0, blank);
        right = both.substr(blank + 1);
      }
      std::array<std::int32_t, 3> ids{};
      for (std::size_t i = 0; const std::string& piece : {left, right, left + right}) {
        ids[i] = id_or_none(piece);
        if (ids[i++] == no_id) element.refuse("pieces of the vocabulary", piece);
      }
      merges_.insert_or_assign(pair_of(ids[0], ids[1]), Merge{rank, ids[2]});
      if (made.insert(ids[2]).second) scores_[static_cast<std::size_t>(ids[2])] = -static_cast<float>(rank);
      ++rank;
    }
  }

  [[nodiscard]] std::int32_t id_or_none(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? no_id : found->second;
  }

  /// A symbol for each character: its piece, the pieces of its bytes, or the unknown piece. As in the tokenizers
  /// library, an unknown piece comes after the bytes of later characters.
  void begin(std::string_view word, std::vector<Symbol>& symbols) const {
    std::int32_t waiting = 0;  // unknown pieces that are not written yet
    const auto add = [&](std::int32_t id) {
      const auto at = narrow<std::int32_t>(symbols.size());
      symbols.push_back({id, at - 1, at + 1});
    };
    const auto add_unknown = [&] {
      for (; waiting > 0; --waiting) add(unknown_);
    };
    for (std::size_t begin = 0, at = 0; at < word.size(); begin = at) {
      static_cast<void>(next_character(word, at));
      const std::string_view character = word.substr(begin, at - begin);
      if (const std::int32_t id = id_or_none(character); id != no_id) {
        add_unknown();
        add(id);
      } else if (has_bytes(character)) {
        for (const char byte : character) add(bytes_[static_cast<unsigned char>(byte)]);
      } else if (unknown_ != no_id) {
        if (!fuses_unknown_) add_unknown();
        waiting = 1;
      }
    }
    add_unknown();
    if (!symbols.empty()) symbols.back().after = -1;
  }

  [[nodiscard]] bool has_bytes(std::string_view character) const {
    for (const char byte : character)
      if (bytes_[static_cast<unsigned char>(byte)] == no_id) return false;
    return true;
  }

  static void add(const std::vector<Symbol>& symbols, std::vector<std::int32_t>& ids) {
    for (const Symbol& symbol : symbols)
      if (!symbol.gone) ids.push_back(symbol.id);
  }

  /// skips(): whether the merge that comes next is passed over, for good.
  template <class Skips>
  void merge(std::vector<Symbol>& symbols, Skips&& skips) const {
    std::priority_queue<Candidate> queue;
    const auto consider = [&](std::int32_t left, std::int32_t right) {
      const auto found = merges_.find(
          pair_of(symbols[static_cast<std::size_t>(left)].id, symbols[static_cast<std::size_t>(right)].id));
      if (found != merges_.end()) queue.push({found->second, left});
    };
    for (std::int32_t at = 0; at + 1 < narrow<std::int32_t>(symbols.size()); ++at) consider(at, at + 1);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<std::size_t>(best.at)];
      if (left.gone || left.after < 0) continue;
      Symbol& right = symbols[static_cast<std::size_t>(left.after)];
      const auto found = merges_.find(pair_of(left.id, right.id));
      if (found == merges_.end() || found->second.id != best.merge.id) continue;  // one of the two has been merged
      if (skips()) continue;
      left.id = best.merge.id;
      left.after = right.after;
      right.gone = true;
      if (left.after >= 0) {
        symbols[static_cast<std::size_t>(left.after)].before = best.at;
        consider(best.at, left.after);
      }
      if (left.before >= 0) consider(left.before, best.at);
    }
  }

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  boost::unordered_flat_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  boost::unordered_flat_map<std::uint64_t, Merge> merges_;
  std::array<std::int32_t, 256> bytes_{};  // pieces that stand for bytes
  std::int32_t unknown_ = no_id;
  bool fuses_unknown_ = false, takes_whole_words_ = false;
};

}  // namespace

std::unique_ptr<Model> bpe_of(const JsonNode& node) { return std::make_unique<Bpe>(node); }

}  // namespace argosy::tokenizer
