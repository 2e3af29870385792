// What preprocess makes of texts of every form.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "data/pool_source.hpp"
#include "preprocess_case.hpp"
#include "support/on_root.hpp"

namespace argosy::data {
namespace {

using test::world;
using testing::AllOf, testing::HasSubstr;

class Inputs : public Preprocess {};

TEST_F(Inputs, TellsDocumentsOfALanguageModelApart) {
  settings_.vocabulary.layout = spec::TokenLayout::llama;
  settings_.data.tokenizer_training->vocab_size = 360;
  CorpusConfig corpus{.name = "book"};
  std::string text;
  const test::Verses verses = test::verses(300);
  for (std::size_t i = 0; i < verses.english.size(); ++i)
    text += (i % 10 == 0 && i > 0 ? "\n" : "") + verses.english[i] + "\n";
  corpus.source = folder_.write("book", text);
  for (const DocumentUnit documents : {DocumentUnit::line, DocumentUnit::blank_line, DocumentUnit::file}) {
    for (const std::int64_t lines : {11, 16, 400}) {  // at 11 every shard begins where a document begins
      settings_.lines_per_shard = lines;
      corpus.documents = documents;
      settings_.data.corpora = {corpus};
      const ShardIndex::Corpus made = run().index.corpora.at(0);
      EXPECT_EQ(made.src_tokens, 0);
      EXPECT_EQ(made.dropped.at("empty"), documents == DocumentUnit::line ? 29 : 0);
      const Tokenizer tokenizer = read_tokenizer(spec::TokenLayout::llama);
      const TokenShards shards = open_shards(tokenizer);
      std::int64_t starts = 0, ends = 0;
      Example example;
      for (std::uint64_t i = 0; i < shards.size(); ++i) {
        starts += shards.starts_document(i) ? 1 : 0;
        shards.read(i, std::nullopt, example);
        ends += std::ranges::count(example.target, static_cast<std::int32_t>(tokenizer.vocabulary().eos));
      }
      const std::int64_t wanted = documents == DocumentUnit::line ? 300 : documents == DocumentUnit::file ? 1 : 30;
      EXPECT_EQ(std::pair(starts, ends), std::pair(wanted, wanted));
      if (lines == 400) {
        EXPECT_EQ(static_cast<std::int64_t>(shards.size()), wanted);
      }
    }
  }
}

TEST_F(Inputs, KeepsEveryByteOfALanguageModelsText) {
  settings_.vocabulary.layout = spec::TokenLayout::llama;
  settings_.data.tokenizer_training->vocab_size = 360;
  const std::vector<std::string> texts{"int main() {\r\n\treturn 0;  \r\n}\r\n",
                                       "\n\n  \u2581 caf\u00e9 \U0001F600\n\n\tx = [\n    1,\n    2]\n",
                                       test::joined(test::verses(60).english) + "no line feed"};
  test::on_root([&] { Files::system().make_folders(folder_ / "src/more"); });
  const char* const names[] = {"src/a.c", "src/b.py", "src/more/c"};
  for (std::size_t i = 0; i < texts.size(); ++i) folder_.write(names[i], texts[i]);
  settings_.data.corpora = {{.name = "code", .source = (folder_ / "src/**/*").string()}};
  settings_.data.corpora[0].documents = DocumentUnit::file;
  settings_.lines_per_shard = 11;
  EXPECT_EQ(run().index.corpora.at(0).unknown, 0);
  const Tokenizer tokenizer = read_tokenizer(spec::TokenLayout::llama);
  const auto found = [&] {
    const TokenShards shards = open_shards(tokenizer);
    std::vector<std::string> documents;
    std::vector<std::int32_t> ends;
    Example example;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      if (shards.starts_document(i)) documents.emplace_back();
      shards.read(i, std::nullopt, example);
      EXPECT_EQ(example.target.size(), shards.lengths(i).target);
      documents.back() += tokenizer.decode(example.target);
      ends.push_back(static_cast<std::int32_t>(std::ranges::count(example.target, tokenizer.vocabulary().eos)));
    }
    return std::pair(documents, ends);
  };
  const auto prepared = found();
  EXPECT_EQ(prepared.first, texts);
  settings_.data.mode = DataMode::online;
  (void)run();
  EXPECT_EQ(found(), prepared);
}

/// What is not an answer bears no loss, whether it is stored as ids or as text.
TEST_F(Inputs, StoresWhichIdsOfAChatBearLoss) {
  settings_.vocabulary.layout = spec::TokenLayout::llama;
  settings_.data.tokenizer_training->vocab_size = 360;
  std::string lines;
  for (const std::string& verse : test::verses(60).english)
    lines +=
        boost::json::serialize(boost::json::object{
            {"messages", {{{"role", "user"}, {"content", "Say it."}}, {{"role", "assistant"}, {"content", verse}}}}}) +
        "\n";
  folder_.write("chat.jsonl", lines);
  settings_.data.corpora = {{.name = "chat", .source = (folder_ / "chat.jsonl").string()}};
  (void)run();
  const Tokenizer tokenizer = read_tokenizer(spec::TokenLayout::llama);
  const auto answers = [&] {
    const TokenShards shards = open_shards(tokenizer);
    EXPECT_FALSE(shards.is_exact());
    std::vector<std::string> found;
    Example example;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      shards.read(i, std::nullopt, example);
      EXPECT_EQ(example.loss.size(), example.target.size());
      std::vector<std::int32_t> ids;
      for (std::size_t k = 0; k < example.target.size(); ++k)
        if (example.loss.at(k)) ids.push_back(example.target[k]);
      found.push_back(tokenizer.decode(ids));
    }
    return found;
  };
  const std::vector<std::string> prepared = answers(), verses = test::verses(60).english;
  ASSERT_EQ(prepared.size(), verses.size());
  for (std::size_t i = 0; i < verses.size(); ++i) {
    EXPECT_THAT(prepared[i], testing::StartsWith(verses[i]));
    EXPECT_THAT(prepared[i], testing::Not(HasSubstr("Say it")));
  }
  settings_.data.mode = DataMode::online;
  (void)run();
  EXPECT_EQ(answers(), prepared);
}

/// A prompt of four characters and an answer of one, each a piece: loss on the answer and the end, whether ids or text
/// are stored, and in the rows that a model reads.
TEST_F(Inputs, ACompletionAloneBearsLoss) {
  settings_.vocabulary.layout = spec::TokenLayout::llama;
  settings_.data.tokenizer_training = {.type = TokenizerType::char_, .vocab_size = 320};
  settings_.data.corpora = {{.name = "sums",
                             .source = folder_.write("sums.jsonl",
                                                     "{\"source\": \"2+2=\", \"target\": \"4\"}\n"
                                                     "{\"source\": \"7=\", \"target\": \"7\"}\n")}};
  for (const DataMode mode : {DataMode::prepared, DataMode::online}) {
    settings_.data.mode = mode;
    (void)run();
    const Tokenizer tokenizer = read_tokenizer(spec::TokenLayout::llama);
    const TokenShards shards = open_shards(tokenizer);
    Example example;
    ASSERT_EQ(shards.size(), 2U);
    shards.read(0, std::nullopt, example);
    EXPECT_THAT(example.loss, testing::ElementsAre(false, false, false, false, true, true));
    shards.read(1, std::nullopt, example);
    EXPECT_THAT(example.loss, testing::ElementsAre(false, false, true, true));
    PoolSettings pools;
    pools.sizes = {.global_size = 1, .micro_size = 1, .micro_batches = 1, .accumulation = 1};
    pools.batch.unit = BatchUnit::examples;
    pools.batch.sequence_length = 12;  // of both: a start, 4 + 1 or 2 + 1 characters, an end
    const Batch batch = PoolMaker{shards, tokenizer.vocabulary(), pools}.make({})->assemble(0, 0);
    const auto eos = static_cast<std::int64_t>(tokenizer.vocabulary().eos);
    const std::int64_t four = *tokenizer.id_of("4"), seven = *tokenizer.id_of("7");
    const bool is_first = batch.target_labels[2] == no_label;  // the order is drawn
    if (is_first) {
      EXPECT_THAT(batch.target_labels, testing::ElementsAre(-1, -1, -1, -1, four, eos, -1, -1, -1, seven, eos, -1));
      EXPECT_THAT(batch.prompts, testing::ElementsAre(5, 5, 5, 5, 5, 0, 0, 10, 10, 10, 0, 0));
    } else {
      EXPECT_THAT(batch.target_labels, testing::ElementsAre(-1, -1, seven, eos, -1, -1, -1, -1, -1, four, eos, -1));
      EXPECT_THAT(batch.prompts, testing::ElementsAre(3, 3, 3, 0, 0, 10, 10, 10, 10, 10, 0, 0));
    }
  }
}

TEST_F(Inputs, JoinsTheFilesOfACorpusInShards) {
  const test::Verses text = test::verses(300);
  test::on_root([&] { Files::system().make_folders(folder_ / "parts"); });
  for (std::size_t i = 0; i < 300; i += 50) {
    const auto part = [&](const std::vector<std::string>& lines) {
      const auto at = lines.begin() + static_cast<std::ptrdiff_t>(i);
      return test::joined(std::vector<std::string>(at, at + 50));
    };
    folder_.write(fmt::format("parts/{:03}.en", i), part(text.english));
    folder_.write(fmt::format("parts/{:03}.es", i), part(text.spanish));
  }
  const ShardIndex::Corpus whole = run().index.corpora.at(0);
  settings_.data.corpora[0].source = folder_ / "parts/*.en";
  settings_.data.corpora[0].target = std::vector<std::string>{folder_ / "parts/0??.es", folder_ / "parts/[12]*.es"};
  settings_.retrain_tokenizer = true;
  const PreprocessReport report = run();
  EXPECT_EQ(report.index.corpora.at(0).shards.size(), 5U);
  EXPECT_EQ(report.index.corpora.at(0).examples(), whole.examples());
  const Tokenizer pieces = read_tokenizer();
  const TokenShards shards = open_shards(pieces);
  Example example;
  for (const std::uint64_t i : {0U, 49U, 50U, 63U, 64U, 149U, 299U}) {
    shards.read(i, std::nullopt, example);
    EXPECT_EQ(pieces.decode(example.source), text.english[i]);
    EXPECT_EQ(pieces.decode(example.target), text.spanish[i]);
  }
  folder_.write("parts/050.es", "una\n");
  EXPECT_THAT(refusal(Fault::data), AllOf(HasSubstr("050.en and "), HasSubstr("050.es"), HasSubstr("50 and 1")));
  settings_.data.corpora[0].target = folder_ / "parts/0*.es";
  EXPECT_THAT(refusal(Fault::data), HasSubstr("corpus verses: expected as many target files as source files, got 6 of "
                                              "source and 2 of target"));
}

TEST_F(Inputs, ReadsPairsFromTsvAndJsonl) {
  const test::Verses text = test::verses(300);
  std::string tsv, jsonl;
  for (std::size_t i = 0; i < 300; ++i) {
    tsv += fmt::format("{}\t{}\t{}\n", i, text.english[i], text.spanish[i]);
    jsonl += boost::json::serialize(
                 boost::json::object{{"t", {{"en", text.english[i]}, {"es", text.spanish[i]}}}, {"n", i}}) +
             "\n";
  }
  const ShardIndex::Corpus plain = run().index.corpora.at(0);
  settings_.data.tokenizer_training.reset();  // the same for all
  CorpusConfig& corpus = settings_.data.corpora[0];
  corpus.target.reset();
  for (const bool is_json : {false, true}) {
    corpus.source = is_json ? folder_.write("v.jsonl", jsonl) : folder_.write("v.tsv", tsv);
    corpus.fields = {.source = is_json ? "/t/en" : "2", .target = is_json ? "/t/es" : "3"};
    const ShardIndex::Corpus made = run().index.corpora.at(0);
    EXPECT_EQ(std::tuple(made.examples(), made.src_tokens, made.tgt_tokens),
              std::tuple(300U, plain.src_tokens, plain.tgt_tokens));
    EXPECT_TRUE(open_shards(read_tokenizer()).has_source());
  }
  corpus.source = folder_.write("v.jsonl", jsonl + "{\"t\": 3}\n");
  EXPECT_THAT(refusal(Fault::data), HasSubstr("v.jsonl line 301, byte"));
  settings_.data.broken_records = BrokenRecords::skip;
  EXPECT_EQ(run().index.corpora.at(0).dropped.at("broken"), 1);
}

TEST_F(Inputs, TakesTheSameFilesInBothDirections) {
  settings_.data.corpora[0].source_prefix = {"<to_{to}>"};
  settings_.data.corpora[0].directions = Directions::both;
  expand_directions(settings_.data);
  const PreprocessReport report = run();
  ASSERT_EQ(report.index.corpora.size(), 2U);
  const ShardIndex::Corpus &there = report.index.corpora[0], &back = report.index.corpora[1];
  EXPECT_EQ(std::tuple(there.examples(), back.examples()), std::tuple(300U, 300U));
  EXPECT_EQ(std::tuple(back.src_tokens, back.tgt_tokens), std::tuple(there.tgt_tokens + 300, there.src_tokens - 300));

  const Tokenizer pieces = read_tokenizer();
  const TokenShards shards = open_shards(pieces);
  Example example, reversed;
  for (const std::uint64_t i : {0U, 64U, 299U}) {
    shards.read(i, std::nullopt, example);
    shards.read(300 + i, std::nullopt, reversed);
    EXPECT_EQ(example.source.front(), pieces.id_of("<to_es>"));
    EXPECT_EQ(reversed.source.front(), pieces.id_of("<to_en>"));
    example.source.erase(example.source.begin());
    reversed.source.erase(reversed.source.begin());
    EXPECT_EQ(example.source, reversed.target);
    EXPECT_EQ(example.target, reversed.source);
  }
}

TEST_F(Inputs, ATokenizerSeesEachFileOnce) {
  static_cast<void>(run());
  const std::string model = model_bytes();
  settings_.data.corpora[0].directions = Directions::both;
  expand_directions(settings_.data);
  EXPECT_FALSE(run().tokenizer_trained);
  EXPECT_EQ(model_bytes(), model);
}

}  // namespace
}  // namespace argosy::data
