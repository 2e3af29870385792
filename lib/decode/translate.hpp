#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "data/tokenizer.hpp"
#include "decode/decode.hpp"

/// Translates lines of text, which are distributed over the ranks by length, and texts of any length: part by part in
/// bounded memory, from a file or standard input to a file or standard output.
namespace argosy::decode {

struct Translation {
  std::string text;
  double score = 0;  // length-normalised log-probability; 0 for an empty line
  double log_probability = 0;
  std::string alignment{};            // if asked for: "0-0 2-1", see TranslateOptions
  std::vector<Translation> others{};  // the next best, or the other samples: see SearchOptions::nbest
};

/// Lines of a text that are worked on together.
struct TextPart {
  std::vector<std::string> lines;
  std::uint64_t first = 0;             // number of the first line in the text, from 0
  std::vector<std::string> targets{};  // what is given of the target of each line; empty if nothing is
};

/// Tokens are pieces of the vocabulary by name, such as "<2fr>".
struct TranslateOptions {
  SearchOptions search{};
  std::vector<std::string> source_prefix{};  // tokens before each source or prompt
  std::vector<std::string> target_prefix{};  // tokens that each translation begins with, before TextPart::targets
  bool omit_prefix = false;                  // the text of a translation is what comes after the prefix
  /// The decoder layer, from 1, whose cross-attention aligns each piece of a translation with one of the source: pairs
  /// of positions, from 0, source first, without EOS. 0: the last layer; absent: no alignments. Encoder-decoder only.
  std::optional<std::int64_t> alignment{};
  std::vector<std::string> stop{};  // a translation ends when its text contains one of these, and is cut before it
  bool escapes =
      false;  // lines, targets and translations are escaped texts (escapes.hpp), which may have several lines
};

/// Translates each line with an encoder-decoder; continues it with a decoder-only model. Every rank gets all results in
/// order. A line that is empty or white space gives an empty translation, whatever its prefix. A line feed in a
/// translation becomes a space, unless it is escaped. part.targets: prefixes of the translations. **Collective** over
/// `world`. Throws Error{data}, which names the line, for a line or prefix longer than model.max_positions,
/// Error{usage} for a token that the vocabulary lacks, a layer that the model lacks, and a target prefix or alignments
/// with a decoder-only model, and what search() throws.
[[nodiscard]] std::vector<Translation> translate_lines(const comm::Communicator& world, model::Inference& model,
                                                       const data::Tokenizer& tokenizer, const TextPart& part,
                                                       const TranslateOptions& options);

struct TranslationScores {
  double bleu = 0, chrf = 0, ter = 0;  // in percent; of TER less is better, and it can exceed 100
};
/// The signature of each score, by its name above (scores.hpp).
[[nodiscard]] std::map<std::string, std::string> score_signatures();

/// Corpus scores of translations, with one reference each. Each rank counts a share of the lines. **Collective**, with
/// the same arguments and result on every rank.
[[nodiscard]] TranslationScores score_translations(const comm::Communicator& world,
                                                   const std::vector<Translation>& translations,
                                                   const std::vector<std::string>& references);

/// The files. Where absent: standard input, standard output, no references, no targets.
struct TextFiles {
  std::optional<Path> input{}, output{}, reference{};
  std::optional<Path> targets{};  // for TextPart::targets
  bool with_scores = false;       // the score and a tab before each translation
  bool with_alignments = false;   // " ||| " and the alignment after each translation
  bool nbest = false;  // all hypotheses in Marian's format: number of the line, text, F0= log-probability, score
  std::size_t part_bytes = 8ULL << 20;  // of text translated at a time; the longest line allowed
};

struct TextReport {
  std::uint64_t lines = 0;
  std::optional<TranslationScores> scores{};  // with references
  double scoring_s = 0;                       // the part of run() that compares with the references
};

/// Translates lines. **Collective**, with the same result on every rank.
using TranslateLines = std::function<std::vector<Translation>(const TextPart& part)>;

/// Rank 0 reads and writes; all ranks translate.
class TextTranslation {
 public:
  /// Opens all files and reads the first part, so that errors in them are found before a model is loaded. Borrows the
  /// context. **Collective.** Throws Error{data} for a missing input, a folder and unequal numbers of lines,
  /// Error{usage} when the output is also an input or not a file that can be replaced, Error{io}.
  TextTranslation(comm::Context& context, TextFiles files);
  ~TextTranslation();
  TextTranslation(const TextTranslation&) = delete;
  TextTranslation& operator=(const TextTranslation&) = delete;

  /// Translates the text. The output file gets its name when it is complete and replaces an older one; standard output
  /// gets each part at once. Of a pipe or terminal, what has arrived is a part. Bytes that are not UTF-8 become U+FFFD,
  /// with a warning. Call it once. **Collective.** Throws what the constructor and `translate` throw.
  TextReport run(const TranslateLines& translate);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace argosy::decode
