#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.hpp"
#include "data/tokenizer.hpp"
#include "data/transforms/transform.hpp"

/// The transforms of a corpus around its tokenizer. Filters decide once, on the text without noise; what is random is
/// applied while training and never leaves an example out, so that the plan of an epoch needs no text. Immutable; any
/// number of threads may apply it.
namespace argosy::data {

/// The lines before a pair in its document, pair after pair in the order of the text. A pair with an empty side ends a
/// document.
class DocumentLines {
 public:
  explicit DocumentLines(std::int64_t most) : most_(most) {}
  /// Nearest last, at most `most`.
  [[nodiscard]] const std::vector<Example::Lines>& before() const noexcept { return lines_; }
  /// Goes on behind a pair.
  void add(const std::string& source, const std::string& target);

 private:
  std::int64_t most_;
  std::vector<Example::Lines> lines_;
};

class Pipeline {
 public:
  /// tokenizer: of all corpora. Throws Error{config} when a transform does not fit the tokenizer or the corpus.
  Pipeline(const CorpusConfig& corpus, const Tokenizer& tokenizer, DataMode mode = DataMode::prepared);
  /// The same of transforms as they are, one of which tokenizes; `unknown`: the id of the unknown piece, or -1.
  Pipeline(Transforms transforms, bool has_source, std::int32_t unknown, DataMode mode = DataMode::prepared);

  /// That of the corpus: of its languages, where there is one for each.
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Whether examples are stored as text: where the tokenizer or a transform before it is random, where training reads
  /// the lines before them, and under data.mode online. Else they are ids.
  [[nodiscard]] bool stores_text() const noexcept { return stored_at_ <= tokenizer_at_; }
  /// Whether that text is the corpus's own, so that its place is enough: under data.mode online.
  [[nodiscard]] bool stores_places() const noexcept { return stores_places_; }
  /// Whether training draws anything.
  [[nodiscard]] bool is_random() const noexcept { return first_random_ < transforms_.size(); }
  /// How many lines before an example its transforms read.
  [[nodiscard]] std::int64_t lines_before() const;
  [[nodiscard]] const Transforms& transforms() const noexcept { return transforms_; }
  /// Text of all that decides what it does.
  [[nodiscard]] std::string recipe() const;

  /// What preprocess does: the example comes in as text and goes out in its stored form. A stored text begins with the
  /// lines before it, each ended by a zero byte, which no text has.
  struct Plan {
    std::optional<std::string_view> left_out{};  // the reason: a transform's type, or "empty"
    Lengths plain{};                             // ids without chance, EOS not counted
    Lengths longest{};                           // the most ids that training may make
    std::int64_t unknown = 0;                    // ids that are the unknown piece
  };
  [[nodiscard]] Plan plan(Example& example) const;

  /// What training does: from the stored form to ids, without EOS. By the draw; without one, plainly. An example that
  /// would get more ids than planned is made plainly, so that no micro-batch outgrows its plan. True: that was so.
  bool finish(Example& example, const std::optional<Draw>& draw, Lengths longest) const;

  /// What transform i alone does. False: it leaves the example out.
  [[nodiscard]] bool apply(std::size_t i, Example& example, const std::optional<Draw>& draw) const;

 private:
  Pipeline(const CorpusConfig& corpus, std::unique_ptr<const Tokenizer> tokenizer, DataMode mode);
  /// How long hardly any draw makes an example, as it comes to the first transform that draws: by mean and deviation of
  /// a few draws, not much above the longest of them, which may be one of two.
  [[nodiscard]] Lengths longest_drawn(const Example& text) const;

  std::unique_ptr<const Tokenizer> tokenizer_;  // transforms borrow it
  Transforms transforms_;                       // on text, the one that tokenizes, on ids
  std::size_t tokenizer_at_ = 0, first_random_ = 0;
  std::size_t stored_at_ = 0;  // examples are stored as they come to this transform
  bool has_source_, stores_places_;
  std::int32_t unknown_;
  bool is_planned_by_draws_ = false;
};

}  // namespace argosy::data
