#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/tokenizer.hpp"
#include "data/tokenizer_training.hpp"

/// The committed verses (English, Spanish) and a small tokenizer trained on them, for tests.
namespace argosy::test {

struct Verses {
  std::vector<std::string> english, spanish;
  [[nodiscard]] std::vector<std::string> of_both() const {
    std::vector<std::string> lines = english;
    lines.insert(lines.end(), spanish.begin(), spanish.end());
    return lines;
  }
};

/// The first `count` pairs. ARGOSY_SOURCE_DIR is set by ctest.
inline Verses verses(std::size_t count) {
  const char* source = std::getenv("ARGOSY_SOURCE_DIR");
  const Path path = Path{source != nullptr ? source : "."} / "tests/support/text/kjv_rv.tsv";
  std::istringstream table{Files::system().read_text(path)};
  Verses found;
  for (std::string line; found.english.size() < count && std::getline(table, line);) {
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (second == std::string::npos) continue;
    found.english.push_back(line.substr(first + 1, second - first - 1));
    found.spanish.push_back(line.substr(second + 1));
  }
  return found;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// A unigram tokenizer of 300 pieces over both languages, trained at first use (a second).
inline const data::Tokenizer& small_tokenizer(spec::TokenLayout shape) {
  const auto train = [](spec::TokenLayout of) {
    return data::Tokenizer::load(data::train_tokenizer({.vocab_size = 300}, verses(600).of_both(), of), {of});
  };
  if (shape == spec::TokenLayout::llama) {
    static const data::Tokenizer llama = train(spec::TokenLayout::llama);
    return llama;
  }
  if (shape == spec::TokenLayout::t5) {
    static const data::Tokenizer t5 = train(spec::TokenLayout::t5);
    return t5;
  }
  static const data::Tokenizer marian = train(spec::TokenLayout::marian);
  return marian;
}

}  // namespace argosy::test
