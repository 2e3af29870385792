#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "decode/translate.hpp"

/// A text of any length, translated part by part: from a file or standard input to a file or standard output, in
/// memory that does not grow with it. Rank 0 reads and writes; all ranks translate.
namespace argosy::decode {

/// What is read and written; absent: standard input, standard output, no references to compare with.
struct TextFiles {
  std::optional<Path> input{}, output{}, reference{};
  bool with_scores = false;             // the score and a tab before each translation
  std::size_t part_bytes = 8ULL << 20;  // of text translated at a time, at least a line; no line may be longer
};

struct TextReport {
  std::uint64_t lines = 0;
  std::optional<TranslationScores> scores{};  // with references; rank 0's
};

/// Translations of lines, of which the first is line `first` (from 0) of the text. Collective, the same on every rank.
using TranslateLines =
    std::function<std::vector<Translation>(const std::vector<std::string>& lines, std::uint64_t first)>;

class TextTranslation {
 public:
  /// Opens all files and reads the first part, so that what is wrong with them shows before a model is loaded.
  /// **Collective.** Throws Error{data} for a missing input, a folder and unequal numbers of lines, Error{usage} when
  /// the output is another of the files or none that can be replaced, Error{io}. Borrows the context.
  TextTranslation(comm::Context& context, TextFiles files);
  ~TextTranslation();
  TextTranslation(const TextTranslation&) = delete;
  TextTranslation& operator=(const TextTranslation&) = delete;

  /// Translates the text. The output file appears under its name when it is complete, in the place of one that was
  /// there; standard output gets each part at once. Bytes that are not UTF-8 become U+FFFD, with a warning. Once.
  /// **Collective.** Throws what the constructor and `translate` do.
  TextReport run(const TranslateLines& translate);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace argosy::decode
