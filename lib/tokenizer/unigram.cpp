/// The unigram language model (Kudo, arXiv:1804.10959): the segmentation with the greatest sum of log-probabilities.
#include <algorithm>
#include <array>
#include <limits>

#include "core/error.hpp"
#include "tokenizer/lattice.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/scores.hpp"
#include "tokenizer/trie.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

class Unigram final : public Model {
 public:
  Unigram(const JsonNode& node, std::string_view json) : scores_(unigram_scores(json)), trie_({}) {
    std::vector<std::pair<std::string, std::int32_t>> ids;
    for (const JsonNode& element : node.at("vocab").elements()) {
      const auto both = element.elements();
      if (both.size() != 2) element.refuse("a piece and its score", fmt::format("{} values", both.size()));
      ids.emplace_back(both[0].text(), narrow<std::int32_t>(pieces_.size()));
      pieces_.push_back(ids.back().first);
      static_cast<void>(both[1].number());
    }
    if (scores_.size() != pieces_.size())
      node.at("vocab").refuse("one score for each piece", fmt::format("{} for {}", scores_.size(), pieces_.size()));
    constexpr double below_the_lowest = 10;
    unknown_score_ = (scores_.empty() ? 0 : std::ranges::min(scores_)) - below_the_lowest;
    unknown_ = narrow<std::int32_t>(node.at("unk_id").whole(narrow<std::int64_t>(pieces_.size())));
    trie_ = Trie(std::move(ids));
    bytes_.fill(-1);
    if (node.flag("byte_fallback", false))
      for (std::size_t byte = 0; byte < bytes_.size(); ++byte)
        bytes_[byte] = trie_.find(byte_piece(static_cast<unsigned char>(byte)));
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const std::vector<Best> best = best_paths(word);
    std::vector<Lattice::Step> steps;
    for (std::size_t end = word.size(); end > 0; end = steps.back().begin)
      steps.push_back({best[end].begin, end, best[end].id == unknown_ ? -1 : best[end].id});
    std::ranges::reverse(steps);
    add(word, steps, ids);
  }
  void sample(std::string_view word, const Sampling& how, RandomStream& random,
              std::vector<std::int32_t>& ids) const override {
    add(word, Lattice(trie_, scores_, unknown_score_).sample(word, how, random), ids);
  }
  [[nodiscard]] bool is_bpe() const override { return false; }

  [[nodiscard]] std::int32_t size() const override { return narrow<std::int32_t>(pieces_.size()); }
  [[nodiscard]] const std::string& piece(std::int32_t id) const override {
    return pieces_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] float score(std::int32_t id) const override {
    return static_cast<float>(scores_[static_cast<std::size_t>(id)]);
  }
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view piece) const override {
    const std::int32_t id = trie_.find(piece);
    return id < 0 ? std::nullopt : std::optional{id};
  }
  [[nodiscard]] std::optional<std::int32_t> unknown() const override { return unknown_; }

 private:
  /// The best path that ends at a byte.
  struct Best {
    double score = 0;
    std::size_t begin = nowhere;  // of its last piece
    std::int32_t id = 0;          // of its last piece
    static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();
  };

  [[nodiscard]] std::vector<Best> best_paths(std::string_view word) const {
    std::vector<Best> best(word.size() + 1);
    for (std::size_t begin = 0, after = 0; begin < word.size(); begin = after) {
      static_cast<void>(next_character(word, after));
      const double before = best[begin].score;
      const auto offer = [&](std::size_t end, double score, std::int32_t id) {
        Best& there = best[end];
        if (there.begin == Best::nowhere || before + score > there.score) there = {before + score, begin, id};
      };
      bool known = false;  // this character is a piece
      trie_.prefixes(word.substr(begin), [&](std::size_t length, std::int32_t id) {
        offer(begin + length, scores_[static_cast<std::size_t>(id)], id);
        known = known || begin + length == after;
      });
      if (!known) offer(after, unknown_score_, unknown_);
    }
    return best;
  }

  /// The pieces of a path; unknown characters in a row are one.
  void add(std::string_view word, const std::vector<Lattice::Step>& steps, std::vector<std::int32_t>& ids) const {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Lattice::Step first = steps[i];
      if (first.id < 0)
        while (i + 1 < steps.size() && steps[i + 1].id < 0) ++i;
      add(word.substr(first.begin, steps[i].end - first.begin), ids);
    }
  }

  /// The id of a piece of a path; if it is none: the pieces of its bytes, or the unknown one.
  void add(std::string_view piece, std::vector<std::int32_t>& ids) const {
    if (const std::int32_t id = trie_.find(piece); id >= 0) return ids.push_back(id);
    const bool all =
        std::ranges::all_of(piece, [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; });
    if (!all) return ids.push_back(unknown_);
    for (const char byte : piece) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
  }

  std::vector<std::string> pieces_;
  std::vector<double> scores_;
  Trie trie_;
  std::array<std::int32_t, 256> bytes_{};  // pieces that stand for bytes
  double unknown_score_ = 0;
  std::int32_t unknown_ = 0;
};

}  // namespace

std::unique_ptr<Model> unigram_of(const JsonNode& node, std::string_view json) {
  return std::make_unique<Unigram>(node, json);
}

std::unique_ptr<Model> model_of(const JsonNode& node, std::string_view json) {
  // Files of early versions do not say the type: a unigram model has an unknown id.
  const bool unigram = node.find("type") ? node.type() == "Unigram" : node.find("unk_id").has_value();
  if (unigram) return unigram_of(node, json);
  if (!node.find("type") || node.type() == "BPE") return bpe_of(node);
  node.refuse_type("model", "BPE and Unigram");
}

std::string byte_piece(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace argosy::tokenizer
