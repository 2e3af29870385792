// data.mode online: token shards hold where records stand, and training reads the same from there.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "core/utf8.hpp"
#include "preprocess_case.hpp"
#include "support/on_root.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

class Online : public Preprocess {
 protected:
  struct Item {
    std::vector<std::int32_t> source, target;
    std::vector<bool> loss;
    bool starts = false;
    bool operator==(const Item&) const = default;
  };
  /// What training reads.
  std::vector<Item> items(spec::TokenLayout layout, const std::optional<Draw>& draw = {}) {
    const Tokenizer tokenizer = read_tokenizer(layout);
    const TokenShards shards = open_shards(tokenizer);
    std::vector<Item> found;
    Example example;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      shards.read(i, draw, example);
      found.push_back({example.source, example.target, example.loss, shards.starts_document(i)});
    }
    return found;
  }
  /// Whether the shards of an index hold places.
  std::vector<bool> places(const ShardIndex& index) {
    std::vector<bool> found;
    for (const ShardIndex::Shard& shard : index.corpora.at(0).shards)
      found.push_back(TokenShard::open(files_, folder_ / "shards" / shard.file).has_places());
    return found;
  }
  /// Online gives what prepared gives, with places in all shards.
  void expect_same(spec::TokenLayout layout = spec::TokenLayout::marian) {
    settings_.data.mode = DataMode::prepared;
    const ShardIndex prepared = run().index;
    EXPECT_THAT(places(prepared), testing::Each(false));
    const std::vector<Item> wanted = items(layout);
    settings_.data.mode = DataMode::online;
    const ShardIndex online = run().index;
    EXPECT_THAT(places(online), testing::Each(true));
    EXPECT_EQ(online.corpora.at(0).dropped, prepared.corpora.at(0).dropped);
    EXPECT_EQ(online.corpora.at(0).tgt_tokens, prepared.corpora.at(0).tgt_tokens);
    EXPECT_FALSE(wanted.empty());
    EXPECT_TRUE(items(layout) == wanted);
  }
  void language_model(const std::string& source, DocumentUnit documents = DocumentUnit::line) {
    settings_.vocabulary.layout = spec::TokenLayout::llama;
    settings_.data.tokenizer = folder_ / "model/lm.model";
    settings_.data.tokenizer_training = {.vocab_size = 360};
    settings_.data.corpora = {{.name = "text", .source = source, .documents = documents}};
    settings_.retrain_tokenizer = true;
  }
};

TEST_F(Online, ReadsPairsOfAnyFormWhereTheyStand) {
  settings_.data.corpora[0].transforms = {{MaxLength{.source = 60, .target = 60}}, {LetterCase{.to = CaseKind::lower}}};
  expect_same();
  // Several files, one with a mark and CR LF, one packed; invalid bytes; an empty side.
  settings_.data.invalid_utf8 = InvalidUtf8::replace;
  const test::Verses text = test::verses(40);
  std::string tsv, jsonl, english = "\xef\xbb\xbf";
  for (std::size_t i = 0; i < 40; ++i) {
    english += (i == 7 ? "" : text.english[i]) + (i == 9 ? "\xff\r\n" : "\r\n");
    tsv += fmt::format("{}\t{}\t{}\n", i, text.english[i], text.spanish[i]);
    jsonl += boost::json::serialize(
                 boost::json::object{{"source", text.english[i]}, {"target", text.spanish[i] + "\n\u00e9"}}) +
             "\n";
  }
  settings_.data.tokenizer_training.reset();
  CorpusConfig& corpus = settings_.data.corpora[0];
  corpus.source = std::vector<std::string>{folder_ / "verses.en", folder_.write("b.en", english)};
  corpus.target = std::vector<std::string>{folder_ / "verses.es", folder_.write("b.es", test::joined(text.spanish))};
  expect_same();
  corpus.target.reset();
  corpus.source = folder_.write("b.tsv", tsv);
  corpus.fields = {.source = "2", .target = "3"};
  expect_same();
  corpus.source = folder_.write("b.jsonl", jsonl);
  corpus.fields = {};
  expect_same();
}

TEST_F(Online, ReadsDocumentsOfAnyFormWhereTheyStand) {
  const test::Verses text = test::verses(1000);
  std::string book = "\xef\xbb\xbf\n\n", chats;
  for (std::size_t line = 0; line < 3000; ++line) {
    const std::size_t i = line % 1000;
    book += text.english[i] + (i % 3 == 0 ? "\r\n" : "\n") + (i % 700 == 600 ? "\n\n" : "");
    if (i % 10 == 0)
      chats += boost::json::serialize(boost::json::object{{"messages",
                                                           {{{"role", "user"}, {"content", text.spanish[i]}},
                                                            {{"role", "assistant"}, {"content", text.english[i]}}}}}) +
               "\n";
  }
  for (const DocumentUnit documents : {DocumentUnit::line, DocumentUnit::blank_line, DocumentUnit::file}) {
    language_model(folder_.write("book", book), documents);
    settings_.lines_per_shard = 2500;
    expect_same(spec::TokenLayout::llama);
    const std::size_t count = items(spec::TokenLayout::llama).size();
    if (documents == DocumentUnit::line) {
      EXPECT_EQ(count, 3000U);
    } else {
      EXPECT_GT(count, 3U) << "cut at 64 KiB";
    }
  }
  language_model(folder_.write("chats.jsonl", chats), DocumentUnit::record);
  expect_same(spec::TokenLayout::llama);
  // A line that is cut into parts, and a record.
  const std::string line = test::joined(text.english) + test::joined(text.spanish);
  language_model(folder_.write("line.jsonl", boost::json::serialize(boost::json::object{{"text", line}}) + "\n"));
  settings_.data.corpora[0].documents = DocumentUnit::record;
  expect_same(spec::TokenLayout::llama);
  EXPECT_GT(items(spec::TokenLayout::llama).size(), 2U);
}

TEST_F(Online, ReadsTheLinesBeforeALine) {
  settings_.data.corpora[0].transforms = {{Concatenate{.probability = 0.5, .lines = 2}}};
  settings_.data.mode = DataMode::prepared;
  (void)run();
  const Draw draw{.seed = 1, .epoch = 2, .example = 3};
  const std::vector<Item> wanted = items(spec::TokenLayout::marian, draw), plain = items(spec::TokenLayout::marian);
  settings_.data.mode = DataMode::online;
  EXPECT_THAT(places(run().index), testing::Each(true));
  EXPECT_TRUE(items(spec::TokenLayout::marian, draw) == wanted);
  EXPECT_TRUE(items(spec::TokenLayout::marian) == plain);
  EXPECT_FALSE(wanted == plain);
}

TEST_F(Online, StoresTextWhereALineIsTooLong) {
  settings_.data.corpora[0].source = folder_.write("a", std::string(2U << 20U, 'a') + "\nthe earth\n");
  settings_.data.corpora[0].target = folder_.write("b", "la\ntierra\n");
  settings_.data.tokenizer =
      folder_.write("given.model", test::small_tokenizer(spec::TokenLayout::marian).model_bytes());
  settings_.data.tokenizer_training.reset();
  (void)run();
  const std::vector<Item> wanted = items(spec::TokenLayout::marian);
  settings_.data.mode = DataMode::online;
  EXPECT_THAT(places(run().index), testing::Each(false));
  EXPECT_TRUE(items(spec::TokenLayout::marian) == wanted);
}

TEST_F(Online, NoticesATextThatChanged) {
  settings_.data.mode = DataMode::online;
  (void)run();
  const Tokenizer tokenizer = read_tokenizer();
  const Log log{test::world().rank(), LogLevel::error};
  const std::vector<CountedCorpus> corpora =
      online_corpora(test::world(), files_, log, settings_.data, settings_.cache.parent_path());
  const auto read_last = [&] {
    const TokenShards shards = TokenShards::open(files_, settings_.data, tokenizer, Part::train, corpora);
    Example example;
    shards.read(shards.size() - 1, {}, example);
  };
  std::string text = Files::system().read_text(folder_ / "verses.en");
  test::world().barrier("read");
  text[text.size() - 5] = '\xff';
  folder_.write("verses.en", text);
  EXPECT_THAT(test::refusal(Fault::data, read_last),
              HasSubstr("verses.en changed after it was counted: it has invalid UTF-8 in line 300 now"));
  test::world().barrier("refused");  // all ranks have read the text before it changes again
  folder_.write("verses.en", text + "more\n");
  EXPECT_THAT(test::refusal(Fault::data, read_last), HasSubstr("another size"));
}

}  // namespace
}  // namespace argosy::data
