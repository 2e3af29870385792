#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "tokenizer/lattice.hpp"
#include "tokenizer/piece_model.hpp"
#include "tokenizer/sampling.hpp"
#include "tokenizer/trie.hpp"

/// Cuts texts into pieces of a SentencePiece model by chance. The library draws from a generator of its thread, so what
/// it draws depends on what the thread has drawn before; here all comes from the caller's stream. Immutable, for any
/// number of threads.
namespace argosy::tokenizer {

class PieceSampler {
 public:
  /// Throws Error{config} for a model of words or characters, which cut a text in one way only.
  PieceSampler(const Pieces& pieces, const Sampling& how);

  [[nodiscard]] bool is_bpe() const { return is_bpe_; }
  /// Ids of a text as the model's normaliser leaves it: with U+2581 for blanks. Pieces that users have defined are
  /// never cut. With alpha so large that only the best segmentation is drawn (unigram), or 0 (BPE), as the library
  /// encodes.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view normalized, RandomStream& random) const;

 private:
  struct Symbol;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  void encode_stretch(std::string_view text, RandomStream& random, std::vector<std::int32_t>& ids) const;
  void merge(std::string_view text, std::vector<Symbol>& symbols, RandomStream& random) const;
  void add_unknown(std::string_view text, bool after_unknown, std::vector<std::int32_t>& ids) const;

  Sampling how_;
  Trie pieces_, user_defined_;  // by their ids
  std::vector<double> scores_;
  std::vector<Lattice::Weight> weights_;                                             // unigram
  boost::unordered_flat_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;  // BPE
  std::array<std::int32_t, 256> bytes_{};  // pieces that stand for bytes, or -1
  double unknown_score_ = 0;
  std::int32_t unknown_ = 0;
  bool is_bpe_ = false;
};

}  // namespace argosy::tokenizer
