#include "data/tokenizer.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "data/tokenizer_training.hpp"
#include "support/refusal.hpp"
#include "support/small_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

std::vector<std::string> training_lines() { return test::verses(400).of_both(); }

class EachShape : public testing::TestWithParam<spec::TokenLayout> {};

TEST_P(EachShape, TrainsWithTheIdsOfTheShapeAndReadsBackTheText) {
  const std::vector<std::string> lines = training_lines();
  const Tokenizer tokenizer = Tokenizer::load(train_tokenizer({.vocab_size = 300}, lines, GetParam()), {GetParam()});
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  EXPECT_EQ(vocabulary.pieces, 300);
  EXPECT_EQ(tokenizer.piece(vocabulary.eos), "</s>");
  EXPECT_EQ(tokenizer.piece(vocabulary.unk.value()), "<unk>");
  EXPECT_EQ(vocabulary.bos ? tokenizer.piece(*vocabulary.bos) : "<s>", "<s>");
  EXPECT_EQ(vocabulary.pad ? tokenizer.piece(*vocabulary.pad) : "<pad>", "<pad>");
  std::int64_t pieces = 0;
  for (const std::string& line : lines) {
    const std::vector<std::int32_t> ids = tokenizer.encode(line);
    pieces += static_cast<std::int64_t>(ids.size());
    EXPECT_EQ(tokenizer.decode(ids), line);
    for (const std::int32_t id : ids) EXPECT_FALSE(vocabulary.is_dead(id) || id == vocabulary.unk);  // coverage 1.0
  }
  EXPECT_GT(pieces, static_cast<std::int64_t>(lines.size()));
}

INSTANTIATE_TEST_SUITE_P(All, EachShape,
                         testing::Values(spec::TokenLayout::marian, spec::TokenLayout::pegasus, spec::TokenLayout::t5,
                                         spec::TokenLayout::llama));

TEST(TokenizerTraining, GivesTheSameBytesTwiceAndOthersForOtherSettings) {
  const std::vector<std::string> lines = training_lines();
  const std::string unigram = train_tokenizer({.vocab_size = 300}, lines, spec::TokenLayout::marian);
  EXPECT_EQ(unigram, train_tokenizer({.vocab_size = 300}, lines, spec::TokenLayout::marian));
  EXPECT_NE(unigram,
            train_tokenizer({.type = TokenizerType::bpe, .vocab_size = 300}, lines, spec::TokenLayout::marian));
  EXPECT_NE(unigram, train_tokenizer({.vocab_size = 310}, lines, spec::TokenLayout::marian));
}

TEST(TokenizerTraining, LeavesRareCharactersOutBelowFullCoverage) {
  std::vector<std::string> lines = training_lines();
  lines.push_back("a rare \u20ac sign");
  const auto has_euro = [&](double coverage) {
    return Tokenizer::load(
               train_tokenizer({.vocab_size = 300, .character_coverage = coverage}, lines, spec::TokenLayout::marian),
               {spec::TokenLayout::marian})
        .id_of("\u20ac")
        .has_value();
  };
  EXPECT_TRUE(has_euro(1.0));
  EXPECT_FALSE(has_euro(0.999));
}

TEST(TokenizerTraining, SaysThatTheTextIsTooSmall) {
  const std::string said = test::refusal(
      Fault::config, [] { (void)train_tokenizer({.vocab_size = 8000}, training_lines(), spec::TokenLayout::marian); });
  EXPECT_TRUE(test::says(said, "8000", "lower vocab_size"));
}

/// What a language model's tokenizer must give back: white space of all kinds, what SentencePiece uses itself, and what
/// other models normalize or have never seen.
constexpr const char* hard_texts[] = {"  two  spaces ",
                                      "if x:\n\ty = 1\n\n    return \n",
                                      "a\r\nb\r\n",
                                      "\n",
                                      " ",
                                      "\u2581",
                                      "a \u2581 b\u2581\u2581",
                                      " \u2047 \u2585",
                                      "<s></s><unk><0x0A><pad>",
                                      "\U0001F600\u200d caf\u00e9 cafe\u0301 \ufb01 \u00a0\u3000",
                                      "\ufeffmark \u2028 \x01\x7f"};

TEST(TokenizerTraining, OfALanguageModelKeepsEveryByte) {
  for (const TokenizerType type : {TokenizerType::unigram, TokenizerType::bpe, TokenizerType::char_}) {
    const TokenizerTraining training = resolve_training({.type = type, .vocab_size = 400}, false);
    const Tokenizer tokenizer = Tokenizer::load(train_tokenizer(training, training_lines(), spec::TokenLayout::llama),
                                                {spec::TokenLayout::llama});
    for (const char* text : hard_texts) {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(ids), text);
      EXPECT_EQ(std::ranges::count(ids, static_cast<std::int32_t>(*tokenizer.vocabulary().unk)), 0) << text;
    }
    // Parts of a text are the text.
    std::vector<std::int32_t> ids = tokenizer.encode("In the \n");
    std::ranges::copy(tokenizer.encode("  beginning"), std::back_inserter(ids));
    EXPECT_EQ(tokenizer.decode(ids), "In the \n  beginning");
  }
}

TEST(TokenizerTraining, NormalizesAsItIsTold) {
  const auto read_back = [](bool pairs, std::optional<Normalizer> normalizer) {
    const spec::TokenLayout layout = pairs ? spec::TokenLayout::marian : spec::TokenLayout::llama;
    TokenizerTraining training{.vocab_size = 400};
    training.normalizer = normalizer;
    const Tokenizer tokenizer =
        Tokenizer::load(train_tokenizer(resolve_training(training, pairs), training_lines(), layout), {layout});
    return tokenizer.decode(tokenizer.encode("the  earth"));
  };
  for (const bool pairs : {true, false}) {
    EXPECT_EQ(read_back(pairs, Normalizer::identity), "the  earth");
    EXPECT_EQ(read_back(pairs, Normalizer::nmt_nfkc), "the earth");
    EXPECT_EQ(read_back(pairs, {}), pairs ? "the earth" : "the  earth");
  }
}

TEST(TokenizerTraining, CharactersAndWordsArePieces) {
  const std::vector<std::string> lines = training_lines();
  const auto trained = [&](TokenizerType type) {
    return Tokenizer::load(train_tokenizer({.type = type, .vocab_size = 2000}, lines, spec::TokenLayout::marian),
                           {spec::TokenLayout::marian});
  };
  const Tokenizer characters = trained(TokenizerType::char_), words = trained(TokenizerType::word);
  EXPECT_LT(characters.vocabulary().pieces, 120);
  EXPECT_EQ(characters.encode("the earth").size(), 10U);  // a space in front of each word
  EXPECT_EQ(words.encode("the earth").size(), 2U);
  for (const std::string& line : lines) EXPECT_EQ(characters.decode(characters.encode(line)), line);
  EXPECT_EQ(words.decode(words.encode("the earth")), "the earth");
  EXPECT_EQ(words.encode("zyxw"), std::vector<std::int32_t>{static_cast<std::int32_t>(*words.vocabulary().unk)});
}

TEST(TokenizerTraining, SaysThatTheVocabularyIsTooSmallForTheCharacters) {
  for (const TokenizerType type : {TokenizerType::unigram, TokenizerType::bpe}) {
    const TokenizerTraining training = resolve_training({.type = type, .vocab_size = 280}, false);
    EXPECT_THAT(test::refusal(Fault::config,
                              [&] { (void)train_tokenizer(training, training_lines(), spec::TokenLayout::llama); }),
                HasSubstr("raise vocab_size"));
  }
}

TEST(TokenizerTraining, SamplesEachLineAtMostOnceAndTheSameEachTime) {
  const test::TempFolder folder;
  const Files files = Files::system();
  std::vector<CountedCorpus> corpora(1);
  for (const char* name : {"a", "b"}) {
    std::vector<std::string> lines;
    for (int i = 0; i < 500; ++i) lines.push_back(name + std::to_string(i));
    files.write_atomically(folder / name, test::joined(lines));
    CountedFile text{.path = folder / name, .record = {}, .text = folder / name};
    text.record.figures.lines = 500;
    corpora[0].source.push_back(text);
  }
  const std::vector<std::string> sample = sample_lines(files, training_texts(corpora), 100);
  EXPECT_EQ(sample.size(), 100U);
  EXPECT_EQ((std::set<std::string>{sample.begin(), sample.end()}.size()), 100U);
  EXPECT_EQ(sample, sample_lines(files, training_texts(corpora), 100));
  const auto from_b =
      std::count_if(sample.begin(), sample.end(), [](const std::string& line) { return line[0] == 'b'; });
  EXPECT_GT(from_b, 25);
  EXPECT_LT(from_b, 75);
  EXPECT_EQ(sample_lines(files, training_texts(corpora), 5000).size(), 1000U);
  // Of records the texts, line by line; a broken one says nothing.
  files.write_atomically(folder / "c",
                         std::string_view{"{\"text\": \"x\\n\\n\\t y\"}\n{\n{\"source\": \"s\", \"target\": \"t\"}\n"});
  corpora[0] = {.rules = {.format = TextFormat::jsonl},
                .source = {{.path = folder / "c", .record = {}, .text = folder / "c"}}};
  corpora[0].source[0].record.figures.lines = 3;
  EXPECT_EQ(sample_lines(files, training_texts(corpora), 5), (std::vector<std::string>{"x", " y", "st"}));
  corpora[0].languages = {"en", "es"};
  corpora[0].rules.pairs = true;
  EXPECT_EQ(sample_lines(files, training_texts(corpora, "es"), 5), (std::vector<std::string>{"t"}));
  EXPECT_EQ(sample_lines(files, training_texts(corpora, "en"), 5), (std::vector<std::string>{"s"}));
  EXPECT_TRUE(training_texts(corpora, "fr").empty());
}

TEST(Tokenizer, SpellsDeadIdsAndSkipsThemInText) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  EXPECT_EQ(tokenizer.vocabulary().rows, 320);
  EXPECT_EQ(tokenizer.piece(300), "<unused_0>");
  EXPECT_EQ(tokenizer.piece(319), "<pad>");
  std::vector<std::int32_t> ids = tokenizer.encode("In the beginning");
  ids.push_back(0);
  ids.push_back(319);
  ids.insert(ids.begin(), 305);
  EXPECT_EQ(tokenizer.decode(ids), "In the beginning");
  EXPECT_EQ(tokenizer.id_of("</s>"), 0);
  EXPECT_EQ(tokenizer.id_of("no such piece"), std::nullopt);
  EXPECT_LT(tokenizer.score(10), 0);
}

TEST(Tokenizer, OwnIdsFitAnyModelAndIdsBeyondItHaveNoText) {
  const std::string& model = test::small_tokenizer(spec::TokenLayout::marian).model_bytes();
  const Tokenizer own =
      Tokenizer::load(model, {spec::TokenLayout::llama, 64, spec::TokenIds{.eos = 0, .pad = 7}, /*least_pieces=*/310});
  EXPECT_EQ(std::tuple(own.vocabulary().pieces, own.vocabulary().rows, own.vocabulary().unk),
            std::tuple(310, 320, std::nullopt));
  EXPECT_EQ(own.piece(300), "<unused_0>");
  std::vector<std::int32_t> ids = own.encode("In the beginning");
  ids.push_back(305);
  EXPECT_EQ(own.decode(ids), "In the beginning");
  EXPECT_EQ(own.id_of("<unused_0>"), std::nullopt);
}

TEST(Tokenizer, RefusesAFileThatIsNoneAndIdsOfAnotherShape) {
  const spec::VocabularyRule marian{spec::TokenLayout::marian};
  const auto refused = [&](const std::string& model) {
    return test::refusal(Fault::data, [&] { (void)Tokenizer::load(model, marian, "x.model"); });
  };
  EXPECT_THAT(refused("not a model"), HasSubstr("x.model"));
  EXPECT_THAT(refused(test::small_tokenizer(spec::TokenLayout::llama).model_bytes()), HasSubstr("bos 1, eos 2, unk 0"));
  const std::string said = test::refusal(Fault::data, [&] {
    (void)Tokenizer::load(test::small_tokenizer(spec::TokenLayout::marian).model_bytes(), {spec::TokenLayout::llama});
  });
  EXPECT_TRUE(test::says(said, "it lacks bos", "spm_train --bos_id=1 --eos_id=2 --unk_id=0 --pad_id=-1"));
  const test::TempFolder folder;
  const auto read = [&] { (void)Tokenizer::read(Files::system(), folder / "none.model", marian); };
  EXPECT_THAT(test::refusal(Fault::data, read), HasSubstr("run preprocess"));
}

TEST(TokenizerJson, IsReadByItsFirstByteAndHasTheIdsOfItsLayout) {
  const auto [json, line] = test::small_file("byte_fallback");
  const Tokenizer tokenizer = Tokenizer::load(json, {spec::TokenLayout::llama});
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::json);
  EXPECT_EQ(test::small_tokenizer(spec::TokenLayout::llama).kind(), TokenizerKind::sentence_piece);
  EXPECT_EQ(tokenizer.model_bytes(), json);
  EXPECT_EQ(tokenizer.vocabulary().pieces, 283);
  EXPECT_EQ(tokenizer.vocabulary().rows, 320);
  EXPECT_EQ(tokenizer.piece(2), "</s>");
  EXPECT_EQ(tokenizer.piece(283), "<unused_0>");
  EXPECT_EQ(tokenizer.id_of("\u2581the"), 278);
  EXPECT_EQ(tokenizer.unknown(), 0);
  EXPECT_EQ(tokenizer.score(278), -2);
  std::vector<std::int32_t> ids = tokenizer.encode("the hello");
  ids.push_back(300);
  ids.insert(ids.begin(), 1);
  EXPECT_EQ(tokenizer.decode(ids), "the hello");
}

TEST(TokenizerJson, HasTheIdsThatTheModelSays) {
  const std::string json = test::small_file("byte_level").first;
  const auto refused = [&](spec::TokenLayout layout) {
    return test::refusal(Fault::data, [&] { (void)Tokenizer::load(json, {layout}, "x.json"); });
  };
  EXPECT_TRUE(test::says(refused(spec::TokenLayout::llama), "x.json", "bos 1, eos 2, unk 0", "bos -1, eos -1, unk -1",
                         "model.token_ids"));
  const Tokenizer tokenizer =
      Tokenizer::load(json, {.ids = spec::TokenIds{.eos = 267, .bos = 266}, .least_pieces = 290});
  EXPECT_EQ(tokenizer.vocabulary().pieces, 290);
  EXPECT_EQ(tokenizer.vocabulary().eos, 267);
  EXPECT_EQ(tokenizer.piece(289), "<unused_19>");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\tcaf\u00e9 \u65e5")), "a\tcaf\u00e9 \u65e5");
}

}  // namespace
}  // namespace argosy::data
