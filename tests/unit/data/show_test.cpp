#include "data/show.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "data/pipeline.hpp"
#include "support/counted_text.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

class Show : public testing::Test {
 protected:
  test::TempFolder folder;
  DataConfig config;

  Show() {
    write("en", "IN THE BEGINNING\nGod said said said\n\nAnd it was so\n");
    write("es", "En el principio\nDijo\n\nY fue\n");
    config.corpora = {{.name = "verses", .source = path("en"), .target = path("es")}};
  }
  void write(const std::string& name, const std::string& text) {
    Files::system().write_atomically(folder / name, text);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }
  [[nodiscard]] std::string shown(std::int64_t count) const {
    const CountedCorpus corpus = test::counted({.pairs = true}, {folder / "en"}, {folder / "es"});
    return show_examples(Files::system(), config, {&corpus, 1}, tokenizer_with_symbols(), count, 1);
  }
  static std::string ids_line(std::vector<std::int32_t> ids) {
    std::vector<std::string> pieces;
    for (const std::int32_t id : ids) pieces.push_back(tokenizer_with_symbols().piece(id));
    return fmt::format("pieces {} | ids {} | text {}\n", fmt::join(pieces, " "), fmt::join(ids, " "),
                       tokenizer_with_symbols().decode(ids));
  }
  static std::vector<std::int32_t> encoded(const char* text) { return tokenizer_with_symbols().encode(text); }
};

TEST_F(Show, PrintsEachStepAndWhyExamplesAreLeftOut) {
  config.corpora[0].transforms = {{Repetition{}}, {LetterCase{}}, {Context{.source_previous = 1}}};
  std::vector<std::int32_t> with_context = encoded("in the beginning");
  const std::vector<std::int32_t> last = encoded("and it was so");
  EXPECT_EQ(shown(9),
            "verses, example 1\n"
            "    source  IN THE BEGINNING\n"
            "    target  En el principio\n"
            "  repetition: unchanged\n"
            "  case\n"
            "    source  in the beginning\n"
            "    target  en el principio\n"
            "  subword\n"
            "    source  " +
                ids_line(encoded("in the beginning")) + "    target  " + ids_line(encoded("en el principio")) +
                "  context: unchanged\n"
                "verses, example 2\n"
                "    source  God said said said\n"
                "    target  Dijo\n"
                "  repetition: left out: source: \"d sai\" is followed by at least 2 copies\n"
                "verses, example 3\n"
                "    target  \n"
                "  repetition: unchanged\n"
                "  case: unchanged\n"
                "  subword\n"
                "    target  pieces  | ids  | text \n"
                "  left out: empty\n"
                "verses, example 4\n"
                "    source  And it was so\n"
                "    target  Y fue\n"
                "  repetition: unchanged\n"
                "  case\n"
                "    source  and it was so\n"
                "    target  y fue\n"
                "  subword\n"
                "    source  " +
                ids_line(last) + "    target  " + ids_line(encoded("y fue")) + "  context: unchanged\n");
}

TEST_F(Show, TakesTheDrawsOfTheFirstEpoch) {
  config.corpora[0].transforms = {{Context{.source_previous = 1, .target_previous = 1}},
                                  {TokenMask{.temperature = .001}}};
  const Pipeline pipeline{config.corpora[0], tokenizer_with_symbols()};
  Example example = pair_of("God said said said", "Dijo");
  example.before = {{"IN THE BEGINNING", "En el principio"}};
  const Lengths longest = pipeline.plan(example).longest;
  EXPECT_FALSE(pipeline.finish(example, Draw{.seed = 1, .epoch = 0, .example = 1}, longest));
  const std::string text = shown(2);
  EXPECT_THAT(text, HasSubstr("  token_mask\n    source  " + ids_line(example.source)));
  EXPECT_THAT(text, HasSubstr(fmt::format("loss on {} of {} pieces", encoded("Dijo").size(), example.target.size())));
  EXPECT_EQ(text, shown(2));
}

TEST_F(Show, SaysWhatGrowsBeyondItsPlan) {
  config.corpora[0].transforms = {{CharacterNoise{.repeat = 1, .growth = 0}}};
  EXPECT_THAT(shown(1), HasSubstr("more pieces than planned"));
}

TEST_F(Show, TellsWhyMaxLengthLeavesAnExampleOut) {
  config.corpora[0].transforms = {{MaxLength{.source = 2, .target = 3}}};
  EXPECT_THAT(shown(1), HasSubstr(fmt::format("  max_length: left out: {} and {} pieces, at most 2 and 3\n",
                                              encoded("IN THE BEGINNING").size(), encoded("En el principio").size())));
}

TEST_F(Show, PrintsTheBeginningOfLongDocuments) {
  std::string words = "a";  // then é of two bytes: no cut is within one
  for (int i = 0; i < 1500; ++i) words += "é";
  write("en", words + "\n");
  config.corpora = {{.name = "verses", .source = path("en")}};
  const CountedCorpus corpus = test::counted({}, {folder / "en"});
  const std::string text = show_examples(Files::system(), config, {&corpus, 1}, tokenizer_with_symbols(), 1, 1);
  EXPECT_THAT(text, HasSubstr("    target  " + words.substr(0, 1999) + " … (1002 more bytes)\n"));
  const std::vector<std::int32_t> ids = encoded(words.c_str());
  ASSERT_GT(ids.size(), 200U);
  const std::vector<std::int32_t> first{ids.begin(), ids.begin() + 200};
  std::string line = ids_line(first);
  line.insert(line.find(" | ids"), fmt::format(" … ({} more)", ids.size() - 200));
  EXPECT_THAT(text, HasSubstr(line));
}

TEST(DocumentLines, EndWhereASideIsEmpty) {
  DocumentLines document{2};
  EXPECT_TRUE(document.before().empty());
  for (const char* line : {"a", "b", "c"}) document.add(line, line);
  ASSERT_EQ(document.before().size(), 2U);
  EXPECT_EQ(document.before().front().source + document.before().back().target, "bc");
  document.add("", "d");
  EXPECT_TRUE(document.before().empty());
  document.add("e", "e");
  EXPECT_EQ(document.before().size(), 1U);
  DocumentLines none{0};
  none.add("a", "a");
  EXPECT_TRUE(none.before().empty());
}

}  // namespace
}  // namespace argosy::data
