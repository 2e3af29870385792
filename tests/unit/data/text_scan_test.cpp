#include "data/text_scan.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "core/random.hpp"
#include "support/temp_folder.hpp"

namespace argosy::data {
namespace {

void scan(TextScanner& scanner, const std::string& text, std::size_t piece_bytes) {
  std::string left;
  for (std::size_t at = 0; at < text.size() || at == 0; at += piece_bytes) {
    left += text.substr(at, piece_bytes);
    left.erase(0, scanner.scan(left, at + piece_bytes >= text.size()));
  }
  scanner.finish();
}

TextFigures figures_of(const std::string& text, std::size_t piece_bytes = 1 << 20) {
  TextScanner scanner;
  scan(scanner, text, piece_bytes);
  return scanner.figures();
}

/// newlines, words, characters and longest line as the wc of this machine says.
TextFigures figures_of_wc(const std::string& text) {
  const test::TempFolder folder;
  Files::system().write_atomically(folder / "text", text);
  FILE* pipe = popen(("LC_ALL=C.UTF-8 wc -lwmL < " + (folder / "text").string()).c_str(), "r");
  std::string output(200, '\0');
  output.resize(std::fread(output.data(), 1, output.size(), pipe));
  pclose(pipe);
  TextFigures figures;
  std::istringstream{output} >> figures.newlines >> figures.words >> figures.characters >> figures.longest_line;
  return figures;
}

void expect_equal_to_wc(const std::string& text, std::size_t piece_bytes = 1 << 20) {
  const auto known_to_wc = [](const TextFigures& of) {
    return std::tuple(of.newlines, of.words, of.characters, of.longest_line);
  };
  EXPECT_EQ(known_to_wc(figures_of(text, piece_bytes)), known_to_wc(figures_of_wc(text)));
}

TEST(TextScanner, AgreesWithWcOnHandPickedTexts) {
  for (const char* text :
       {"", "\n", "one", "one two\nthree\n", "\n\n\n", " leading and trailing \n", "a\tb\n\tc\t\td",
        "carriage\r\nreturn longer before\rshort\n", "form\ffeed \v vertical\n", "caf\u00e9 d\u2019\u00e9t\u00e9\n",
        "no\u00a0break\u202fspace \u3000 wide\u3000gap\n", "\u6f22\u5b57 \u304b\u306a\n", "\U0001F600 emoji\u200d\n",
        "soft\u00adhyphen combining e\u0301\n", "bell\x07 \x01 \x7f delete\n", "\u0085 \u2028 \u2029 x\n"}) {
    SCOPED_TRACE(text);
    expect_equal_to_wc(text);
  }
}

TEST(TextScanner, AgreesWithWcOnRandomTextsInPieces) {
  const std::vector<std::string> alphabet({"a", "b", " ", " ", "\n", "\t", "\r\n", "\u00e9", "\u2019", "\u00a0",
                                           "\u6f22", "\U0001F600", "word", "\x01",
                                           "0123456789012345678901234567890123456789012345678901234567890123456789"});
  for (std::uint64_t trial = 0; trial < 12; ++trial) {
    RandomStream random{7, trial};
    std::string text;
    for (int i = 0; i < 2000; ++i) text += alphabet[random.below(alphabet.size())];
    SCOPED_TRACE(trial);
    expect_equal_to_wc(text, 1 + random.below(200));
  }
}

TEST(TextScanner, CountsAnUnterminatedLineAndEmptyOnes) {
  const TextFigures figures = figures_of("one\n\n\r\n \nlast");
  EXPECT_EQ(figures.lines, 5);
  EXPECT_EQ(figures.newlines, 4);
  EXPECT_EQ(figures.empty_lines, 2);  // a lone CR is nothing, a blank is something
  EXPECT_EQ(figures_of("one\n").lines, 1);
  EXPECT_EQ(figures_of("").lines, 0);
}

TEST(TextScanner, CountsInvalidBytesApartAndNamesTheFirst) {
  const std::string text =
      "good\nb\xff"
      "ad \xc3\x28 cut \xe2\x82\nend\xf0\x9f\x98";
  for (const std::size_t piece_bytes : {1U, 2U, 3U, 100U}) {
    TextScanner scanner;
    scan(scanner, text, piece_bytes);
    EXPECT_EQ(scanner.figures().invalid_bytes, 7) << piece_bytes;
    EXPECT_EQ(scanner.figures().words, 5) << piece_bytes;
    ASSERT_TRUE(scanner.first_invalid());
    EXPECT_EQ(*scanner.first_invalid(), (BytePlace{.line = 1, .byte_offset = 6})) << piece_bytes;
  }
}

}  // namespace
}  // namespace argosy::data
