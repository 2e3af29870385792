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
};

/// Translates each line with an encoder-decoder; continues it with a decoder-only model. Every rank gets all results in
/// order. A line that is empty or white
/// space gives an empty translation. A line feed in a translation becomes a space. first: number of the first line in
/// the text, from 0, for errors. **Collective** over `world`. Throws Error{data}, which names the line, for one longer
/// than model.max_positions, and what search() throws.
[[nodiscard]] std::vector<Translation> translate_lines(const comm::Communicator& world, model::Inference& model,
                                                       const data::Tokenizer& tokenizer,
                                                       const std::vector<std::string>& lines,
                                                       const SearchOptions& options, std::uint64_t first = 0);

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

/// The files. Where absent: standard input, standard output, no references.
struct TextFiles {
  std::optional<Path> input{}, output{}, reference{};
  bool with_scores = false;             // the score and a tab before each translation
  std::size_t part_bytes = 8ULL << 20;  // of text translated at a time; the longest line allowed
};

struct TextReport {
  std::uint64_t lines = 0;
  std::optional<TranslationScores> scores{};  // with references; rank 0's
};

/// Translates lines; `first` is the number of the first one in the text, from 0. **Collective**, with the same result
/// on every rank.
using TranslateLines =
    std::function<std::vector<Translation>(const std::vector<std::string>& lines, std::uint64_t first)>;

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
