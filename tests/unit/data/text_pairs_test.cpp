#include "data/text_pairs.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "data/line_reader.hpp"
#include "support/refusal.hpp"
#include "support/small_text.hpp"
#include "support/temp_folder.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::HasSubstr;

class TextFiles : public testing::Test {
 protected:
  Path write(const std::string& name, const std::string& text) {
    files_.write_atomically(folder_ / name, text);
    return folder_ / name;
  }
  template <class Body>
  static std::string refused_text(const Body& body) {
    return test::refusal(Fault::data, body);
  }
  test::TempFolder folder_;
  Files files_ = Files::system();
};

TEST_F(TextFiles, ReadsLinesWithAnyEnd) {
  EXPECT_THAT(read_lines(files_, write("a", "one\ntwo\r\n\nlast"), InvalidUtf8::reject),
              ElementsAre("one", "two", "", "last"));
  EXPECT_THAT(read_lines(files_, write("b", "\n"), InvalidUtf8::reject), ElementsAre(""));
  EXPECT_THAT(read_lines(files_, write("c", "a\rb\r"), InvalidUtf8::reject), ElementsAre("a\rb\r"));
}

TEST_F(TextFiles, ReadsLinesLongerThanTheBuffer) {
  const std::string lengthy(3 << 20, 'x');
  EXPECT_THAT(read_lines(files_, write("a", "first\n" + lengthy + "\nlast\n"), InvalidUtf8::reject),
              ElementsAre("first", lengthy, "last"));
}

TEST_F(TextFiles, NamesFileLineAndByteOfInvalidText) {
  const Path path = write("bad",
                          "good\nb\xff"
                          "d\n");
  const std::string text = refused_text([&] { (void)read_lines(files_, path, InvalidUtf8::reject); });
  EXPECT_TRUE(test::says(text, "bad line 2, byte 6", "0xff"));
  EXPECT_THAT(read_lines(files_, path, InvalidUtf8::replace), ElementsAre("good", "b\uFFFDd"));
}

TEST_F(TextFiles, RefusesMissingEmptyAndUnequalFiles) {
  write("empty", "");
  for (const char* name : {"none", "empty"})
    EXPECT_THAT(refused_text([&] { (void)read_lines(files_, folder_ / name, InvalidUtf8::reject); }), HasSubstr(name));
  const TextRules rules{.pairs = true};
  const Path two = write("two", "1\n2\n"), three = write("three", "1\n2\n3");
  const std::string text = refused_text([&] { (void)read_parallel_text(files_, rules, {{two}, {three}}, {}); });
  EXPECT_TRUE(test::says(text, "2 and 3", two.string(), three.string()));
  EXPECT_EQ(read_parallel_text(files_, rules, {{two}, {two}}, {}).target, (std::vector<std::string>{"1", "2"}));
}

TEST_F(TextFiles, ReaderStartsAtAnyLine) {
  const Path path = write("a", "zero\none\ntwo\xff\n");
  LineReader reader{files_.open(path), 5, 1, InvalidUtf8::reject};
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(line, "one");
  EXPECT_THAT(refused_text([&] { (void)reader.next(line); }), HasSubstr("line 3, byte 12"));
}

ParallelText some_verses(std::size_t count) {
  const test::Verses text = test::verses(count);
  return {text.english, text.spanish};
}

TEST(BatchesOf, HoldsEveryLineOnceWithinTheBudget) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  const ParallelText text = some_verses(150);
  const std::vector<Batch> batches = batches_of(tokenizer, text, BatchUnit::padded_tokens, 1500);
  std::vector<std::uint64_t> lines;
  for (const Batch& batch : batches) {
    EXPECT_TRUE(batch.padded_tokens <= 1500 || batch.rows == 1);
    lines.insert(lines.end(), batch.examples.begin(), batch.examples.end());
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < batch.target_lengths[row]; ++i)
        ids.push_back(
            static_cast<std::int32_t>(batch.target_labels[static_cast<std::size_t>(r * batch.target_width + i)]));
      EXPECT_EQ(ids.back(), 0);
      EXPECT_EQ(tokenizer.decode(ids), text.target[batch.examples[row]]);
    }
  }
  std::sort(lines.begin(), lines.end());
  std::vector<std::uint64_t> all(150);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(lines, all);
}

TEST(BatchesOf, PutsPrefixesBeforeEachLine) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  ParallelText text = some_verses(1);
  const Batch plain = batches_of(tokenizer, text, BatchUnit::examples, 1).at(0);
  text.prefixes = {.source = {tokenizer.piece(40), tokenizer.piece(41)}, .target = {tokenizer.piece(42)}};
  const Batch prefixed = batches_of(tokenizer, text, BatchUnit::examples, 1).at(0);
  EXPECT_EQ(std::tuple(prefixed.source_width, prefixed.target_width),
            std::tuple(plain.source_width + 2, plain.target_width + 1));
  EXPECT_EQ(std::tuple(prefixed.source.at(0), prefixed.source.at(1), prefixed.source.at(2)),
            std::tuple(40, 41, plain.source.at(0)));
  EXPECT_EQ(std::tuple(prefixed.target_labels.at(0), prefixed.target_labels.at(1)),
            std::tuple(42, plain.target_labels.at(0)));
  text.prefixes.source = {"<none>"};
  EXPECT_THAT(test::refusal(Fault::config, [&] { (void)batches_of(tokenizer, text, BatchUnit::examples, 1); }),
              HasSubstr("<none>"));
}

TEST(BatchesOf, DealsTheSameBatchesOverAnyNumberOfRanks) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  const ParallelText text = some_verses(100);
  const std::vector<Batch> alone = batches_of(tokenizer, text, BatchUnit::examples, 7);
  ASSERT_EQ(alone.size(), 15U);
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<Batch> mine = batches_of(tokenizer, text, BatchUnit::examples, 7, rank, 4);
    ASSERT_EQ(mine.size(), rank < 3 ? 4U : 3U);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].examples, alone[i * 4 + static_cast<std::size_t>(rank)].examples);
      EXPECT_EQ(mine[i].source, alone[i * 4 + static_cast<std::size_t>(rank)].source);
    }
  }
}

TEST(BatchesOf, LeavesTheTargetOutForTranslation) {
  const std::vector<Batch> batches =
      batches_of(test::small_tokenizer(spec::TokenLayout::marian), {some_verses(5).source, {}}, BatchUnit::examples, 5);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(std::tuple(batches[0].rows, batches[0].target_width, batches[0].tgt_tokens), std::tuple(5, 0, 0));
}

TEST(LmBatchesOf, ScoresEachDocumentWithItsEnd) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::llama);
  // A document of two parts, one that has no pieces, one that ends in an empty part.
  std::vector<Record> records(5);
  for (const auto& [i, text, starts, ends] : {std::tuple{0U, "In the beginning", true, false},
                                              {1U, "and the earth", false, true},
                                              {2U, " ", true, true},
                                              {3U, "a new document", true, false},
                                              {4U, "", false, true}}) {
    records[i].target = text;
    records[i].starts_document = starts;
    records[i].ends_document = ends;
  }
  std::int64_t ids = 2;
  for (const Record& record : records) ids += std::ssize(tokenizer.encode(record.target));
  std::int64_t tgt_tokens = 0, starts = 0;
  for (const int rank : {0, 1})
    for (const Batch& batch : lm_batches_of(tokenizer, records, 8, 2, rank, 2)) {
      tgt_tokens += batch.tgt_tokens;
      starts += std::count(batch.target_input.begin(), batch.target_input.end(), tokenizer.vocabulary().start);
    }
  EXPECT_EQ(tgt_tokens, ids);
  EXPECT_EQ(starts, 2);
}

TEST(LabelBytes, AreThoseOfTheTextWhereverRowsAreCut) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::llama);
  std::vector<Record> records(2);
  records[0].target = "In the beginning God created the heaven and the earth.";
  records[1].target = "And the earth was without form";
  std::int64_t wanted = 0;
  for (Record& record : records) {
    record.starts_document = record.ends_document = true;
    wanted += std::ssize(record.target) + 1;
  }
  for (const int length : {4, 7, 64})
    for (const int world : {1, 2}) {
      std::int64_t bytes = 0;
      for (int rank = 0; rank < world; ++rank)
        for (const Batch& batch : lm_batches_of(tokenizer, records, length, 2, rank, world))
          bytes += label_bytes(tokenizer, batch);
      EXPECT_EQ(bytes, wanted) << length << " of " << world;
    }
}

TEST(LabelBytes, OfPairsAreThoseOfTheTargets) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  const ParallelText text{.source = {"In the beginning", "God"}, .target = {"the earth was", "And the heaven"}};
  std::int64_t bytes = 0;
  for (const Batch& batch : batches_of(tokenizer, text, BatchUnit::examples, 2)) bytes += label_bytes(tokenizer, batch);
  EXPECT_EQ(bytes, 13 + 1 + 14 + 1);
}

TEST(LmBatches, LabelWhatBearsLossAlone) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::llama);
  const std::string question = "In the beginning ", answer = "God created";
  Record record{.source = {}, .target = question + answer, .loss_on_all = false};
  record.loss = {{question.size(), question.size() + answer.size()}};
  const std::vector<Batch> batches = lm_batches_of(tokenizer, {record}, 64, 2);
  ASSERT_EQ(batches.size(), 1U);
  std::vector<std::int32_t> labels;
  for (const std::int64_t label : batches[0].target_labels)
    if (label != no_label) labels.push_back(static_cast<std::int32_t>(label));
  std::vector<std::int32_t> wanted = tokenizer.encode(answer);
  wanted.push_back(static_cast<std::int32_t>(tokenizer.vocabulary().eos));
  EXPECT_EQ(labels, wanted);
  EXPECT_EQ(batches[0].tgt_tokens, std::ssize(wanted));
}

}  // namespace
}  // namespace argosy::data
