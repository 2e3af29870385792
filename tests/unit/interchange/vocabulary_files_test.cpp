/// Vocabularies of tokenizer.json and of piece tables.
#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <map>

#include "data/tokenizer_training.hpp"
#include "interchange/hf_tokenizer.hpp"
#include "interchange/piece_set.hpp"
#include "interchange/table_set.hpp"
#include "support/refusal.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "unit/interchange/vocabulary_fixture.hpp"

namespace argosy::interchange {
namespace {

using boost::json::array, boost::json::object, boost::json::value;
using testing::ElementsAre, testing::HasSubstr;

std::string trained(data::TokenizerType type, const std::vector<std::string>& lines, spec::TokenLayout layout,
                    bool bytes = false) {
  return data::train_tokenizer({.type = type, .vocab_size = bytes ? 600 : 300, .byte_fallback = bytes}, lines, layout);
}

object as_json(const std::string& model, spec::TokenLayout layout) {
  return tokenizer_json(data::Tokenizer::load(model, {layout}), Wrapping::bos_before);
}

object added_token(std::int64_t id, const char* content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

/// The files of three kinds of model. Each has added tokens that the model does not have.
const std::string& json_of_kind(const std::string& kind) {
  static const auto all = [] {
    std::map<std::string, std::string> files;
    const std::vector<std::string> english = test::verses(600).english;
    const object bpe =
        as_json(trained(data::TokenizerType::bpe, english, spec::TokenLayout::llama, true), spec::TokenLayout::llama);
    object fallback = bpe;
    const auto size = static_cast<std::int64_t>(fallback["model"].at("vocab").as_object().size());
    fallback["added_tokens"].as_array().push_back(added_token(size, "<tag>", false));
    files["byte_fallback"] = boost::json::serialize(fallback);

    object unigram =
        as_json(trained(data::TokenizerType::unigram, test::verses(600).of_both(), spec::TokenLayout::llama),
                spec::TokenLayout::llama);
    unigram["added_tokens"].as_array().push_back(added_token(300, "<tag>", false));
    // A number that other writers would spell otherwise.
    std::string text = boost::json::serialize(unigram);
    files["unigram"] = text.insert(text.rfind("0E0]") + 1, ".000");

    object ids;
    for (int byte = 0; byte < 256; ++byte) {
      std::string character;
      const char bytes[] = {static_cast<char>(byte)};
      tokenizer::append_as_byte_characters(character, {bytes, 1});
      ids.emplace(character, ids.size());
    }
    array merges;
    for (const value& merge : bpe.at("model").at("merges").as_array()) {
      std::string both{merge.as_string()};
      for (std::size_t at; (at = both.find("▁")) != std::string::npos;) both.replace(at, 3, "Ġ");
      const std::size_t blank = both.find(' ');
      const std::string left = both.substr(0, blank), right = both.substr(blank + 1);
      if (!ids.contains(left) || !ids.contains(right)) continue;
      ids.emplace(left + right, ids.size());
      merges.push_back(array{left, right});
    }
    const auto begin = static_cast<std::int64_t>(ids.size());
    object split{{"type", "Split"},
                 {"pattern", {{"Regex", R"( ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+)"}}},
                 {"behavior", "Isolated"},
                 {"invert", false}};
    object to_bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    array steps{split, to_bytes};
    array single{{{"SpecialToken", {{"id", "<|begin|>"}, {"type_id", 0}}}},
                 {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
    object mark{{"id", "<|begin|>"}, {"ids", array{begin}}, {"tokens", array{"<|begin|>"}}};
    object file{{"version", "1.0"},
                {"padding", {{"strategy", "BatchLongest"}, {"pad_id", begin + 1}, {"pad_token", "<|end|>"}}},
                {"added_tokens", array{added_token(begin, "<|begin|>", true), added_token(begin + 1, "<|end|>", true)}},
                {"normalizer", nullptr},
                {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
                {"post_processor",
                 {{"type", "TemplateProcessing"},
                  {"single", single},
                  {"pair", single},
                  {"special_tokens", {{"<|begin|>", mark}}}}},
                {"decoder", to_bytes},
                {"model", {{"type", "BPE"}, {"ignore_merges", true}, {"vocab", ids}, {"merges", merges}}}};
    files["byte_level"] = boost::json::serialize(file);
    return files;
  }();
  return all.at(kind);
}

class JsonVocabularyTest : public VocabularyFixture, public testing::WithParamInterface<const char*> {
 protected:
  JsonVocabularyTest() { tokenizer_json = json_of_kind(GetParam()); }

  /// A language model with more rows than pieces, of which one is its pad.
  model::StoredModel opened_json() {
    const data::Tokenizer tokenizer = data::Tokenizer::load(tokenizer_json, {.ids = spec::TokenIds{}});
    const auto id = [&](const char* one, const char* other) {
      const auto found = tokenizer.id_of(one);
      return found ? *found : tokenizer.id_of(other).value();
    };
    language.token_ids = spec::TokenIds{.eos = id("<|end|>", "</s>"),
                                        .unk = tokenizer.unknown(),
                                        .bos = id("<|begin|>", "<s>"),
                                        .pad = tokenizer.spelled_ids() + 2};
    language.vocab_size = tokenizer.spelled_ids() + 5;
    return opened(language);
  }
  static std::string spelled_id(const model::StoredModel& model, std::optional<std::int64_t> id) {
    return model.tokenizer.piece(id.value());
  }
};

TEST_P(JsonVocabularyTest, TrimKeepsPiecesRowsAndTheFormOfTheFile) {
  const model::StoredModel old = opened_json();
  const ChangedVocabulary changed = trim(old, "some");
  const data::Tokenizer& tokenizer = changed.model.tokenizer;
  const spec::Vocabulary &before = old.tokenizer.vocabulary(), &after = tokenizer.vocabulary();
  EXPECT_LT(after.pieces, before.pieces - 5);
  EXPECT_EQ(changed.figures.same_lines, 15);
  for (const std::string& line : lines("some")) EXPECT_EQ(spelled(tokenizer, line), spelled(old.tokenizer, line));
  for (const std::string& line : lines("other")) {
    const std::vector<std::string> was = spelled(old.tokenizer, line);
    if (std::ranges::all_of(was, [&](const std::string& piece) { return tokenizer.id_of(piece).has_value(); })) {
      EXPECT_EQ(spelled(tokenizer, line), was);
    }
    if (std::string{GetParam()} != "unigram") {  // which has no pieces for bytes
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(line)), line);
    }
  }
  for (std::int64_t id = 0; id < tokenizer.spelled_ids(); ++id) {
    const std::int64_t was = old.tokenizer.id_of(tokenizer.piece(id)).value();
    EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", id), row(old, "decoder/embeddings/weight", was)) << id;
  }
  EXPECT_EQ(spelled_id(changed.model, after.eos), spelled_id(old, before.eos));
  EXPECT_EQ(spelled_id(changed.model, after.bos), spelled_id(old, before.bos));
  EXPECT_EQ(tokenizer.puts_before(*after.bos), true);
  // The pad, which no text has, is the only id without a piece that is left.
  EXPECT_EQ(after.pad, tokenizer.spelled_ids());
  EXPECT_EQ(after.pieces, tokenizer.spelled_ids() + 1);
  EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", *after.pad),
            row(old, "decoder/embeddings/weight", *before.pad));
  EXPECT_EQ(changed.model.config.vocab_size, after.pieces);
  const value was = boost::json::parse(old.tokenizer.model_bytes()), is = boost::json::parse(tokenizer.model_bytes());
  for (const char* const stage : {"normalizer", "pre_tokenizer", "decoder"}) EXPECT_EQ(is.at(stage), was.at(stage));
  EXPECT_EQ(is.at("added_tokens").as_array().size(), was.at("added_tokens").as_array().size());
  if (is.as_object().contains("padding") && is.at("padding").is_object()) {
    EXPECT_EQ(is.at("padding").at("pad_id"), after.eos);
  }
}

TEST_P(JsonVocabularyTest, AnExtendedPieceIsTakenWhereItsPartsWere) {
  const model::StoredModel old = opened_json();
  const std::int64_t pieces = old.tokenizer.spelled_ids();
  const ChangedVocabulary changed = extend(old, {" abominably", " unquestionableness", " the", " ö", "ization"});
  const data::Tokenizer& tokenizer = changed.model.tokenizer;
  EXPECT_EQ(changed.figures.skipped, 1);
  EXPECT_EQ(tokenizer.spelled_ids(), pieces + 4 + changed.figures.parts);
  for (const char* const word : {" abominably", " unquestionableness", " ö"}) {
    const std::vector<std::string> got = spelled(tokenizer, std::string{GetParam()} == "byte_level" ? word : word + 1);
    EXPECT_EQ(got.size(), 1U) << word;
    EXPECT_GE(tokenizer.id_of(got.front()).value(), pieces);
  }
  EXPECT_EQ(spelled(tokenizer, "realization").back(), "ization");
  for (std::int64_t id = 0; id < pieces; ++id) {  // also those of added tokens
    EXPECT_EQ(tokenizer.piece(id), old.tokenizer.piece(id));
    EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", id), row(old, "decoder/embeddings/weight", id));
  }
  for (const std::string& line : lines("other")) {
    const std::vector<std::int32_t> ids = tokenizer.encode(line);
    if (std::ranges::all_of(ids, [&](std::int32_t id) { return id < pieces; })) {
      EXPECT_EQ(ids, old.tokenizer.encode(line));
    }
  }
  const value map = boost::json::parse(changed.model.attachments.front().content);
  for (const value& made : map.at("added").as_array()) {
    if (made.at("piece") != value("ization")) continue;
    const std::vector<float> got = row(changed.model, "decoder/embeddings/weight", made.at("id").as_int64());
    std::string text;
    for (std::size_t c = 0; c < got.size(); ++c) {
      double sum = 0;
      for (const value& part : made.at("mean_of").as_array())
        sum += double{row(old, "decoder/embeddings/weight", part.as_int64())[c]};
      EXPECT_EQ(got[c], static_cast<float>(sum / static_cast<double>(made.at("mean_of").as_array().size())));
    }
    for (const value& part : made.at("mean_of").as_array()) text += old.tokenizer.piece(part.as_int64());
    EXPECT_EQ(text, "ization");
  }
  EXPECT_EQ(changed.model.tokenizer.vocabulary().pad, tokenizer.spelled_ids());
}

INSTANTIATE_TEST_SUITE_P(Kinds, JsonVocabularyTest, testing::Values("byte_level", "byte_fallback", "unigram"),
                         [](const auto& each) { return std::string{each.param}; });

TEST(JsonPiecesTest, UnigramScoresKeepTheirSpelling) {
  const std::string& file = json_of_kind("unigram");
  const data::Tokenizer tokenizer = data::Tokenizer::load(file, {.ids = spec::TokenIds{}});
  const PieceSet set{file, tokenizer.pipeline()};
  const std::string same = set.file_with(std::vector<bool>(static_cast<std::size_t>(tokenizer.spelled_ids()), true));
  EXPECT_EQ(boost::json::parse(same), boost::json::parse(file));
  EXPECT_EQ(tokenizer::JsonPieces(*tokenizer.pipeline(), same).scores,
            tokenizer::JsonPieces(*tokenizer.pipeline(), file).scores);
  EXPECT_THAT(same, HasSubstr("0.000E0]"));
}

/// Small merges: a b, ab c, b c and, of bytes, those of "é".
data::Tokenizer small_merges() {
  object ids;
  for (const char* const piece : {"a", "b", "c", "d", "ab", "bc", "abc", "<0xC3>", "<0xA9>", "<0xC3><0xA9>", "cd"})
    ids.emplace(piece, ids.size());
  const array merges{"a b", "b c", "a bc", "<0xC3> <0xA9>", "c d"};
  const object file{{"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", ids}, {"merges", merges}}}};
  return data::Tokenizer::load(boost::json::serialize(file), {.ids = spec::TokenIds{}});
}

std::vector<std::string> kept_with(const data::Tokenizer& tokenizer, const char* used) {
  const PieceSet set{tokenizer.model_bytes(), tokenizer.pipeline()};
  std::vector<bool> flags(static_cast<std::size_t>(tokenizer.spelled_ids()));
  flags[static_cast<std::size_t>(tokenizer.id_of(used).value())] = true;
  flags = set.needed(std::move(flags));
  std::vector<std::string> kept;
  for (std::size_t id = 0; id < flags.size(); ++id)
    if (flags[id] && !set.texts()[id].starts_with("<0x")) kept.push_back(set.texts()[id]);
  return kept;
}

TEST(JsonPiecesTest, APieceNeedsThePartsOnItsWay) {
  const data::Tokenizer tokenizer = small_merges();
  EXPECT_THAT(kept_with(tokenizer, "cd"), ElementsAre("c", "d", "cd"));
  // "abc" comes to be "ab c", so merges do not make it, except where bytes are before it: all that could stay.
  EXPECT_THAT(kept_with(tokenizer, "abc"), ElementsAre("a", "b", "c", "bc", "abc"));
  const PieceSet set{tokenizer.model_bytes(), tokenizer.pipeline()};
  std::vector<bool> flags(11);
  flags[9] = true;  // of two bytes
  EXPECT_TRUE(set.needed(flags)[7]);
}

TEST(JsonPiecesTest, APieceThatMergesCannotLeadToIsRefused) {
  const data::Tokenizer tokenizer = small_merges();
  PieceSet set{tokenizer.model_bytes(), tokenizer.pipeline()};
  EXPECT_THAT(test::refusal(Fault::data, [&] { set.add("abcb"); }),
              HasSubstr("its part \"abc\" is a piece that no merge"));
  EXPECT_TRUE(set.add("cdd"));
  EXPECT_FALSE(set.add("cdd"));
  EXPECT_TRUE(set.add("é"));
  EXPECT_THAT(set.added().back().made_of, ElementsAre(7, 8));
  EXPECT_TRUE(set.add("cddd"));
  const data::Tokenizer now = data::Tokenizer::load(set.file(), {.ids = spec::TokenIds{}});
  EXPECT_EQ(now.encode("cddd").size(), 1U);
  EXPECT_EQ(tokenizer::JsonPieces(*now.pipeline(), set.file()).merges.size(), 7U);  // one for each of the two
}

/// OPUS-MT's way: a model for each side, the pieces of both in one table.
class TableVocabularyTest : public VocabularyFixture, public testing::WithParamInterface<data::TokenizerType> {
 protected:
  TableVocabularyTest() {
    const test::Verses verses = test::verses(600);
    parts.source = trained(GetParam(), verses.english, spec::TokenLayout::marian);
    parts.target = trained(GetParam(), verses.spanish, spec::TokenLayout::marian);
    for (const char* const piece : {"</s>", "<unk>", ">>es<<"}) put(piece);
    for (const std::string& side : {parts.target, parts.source}) {
      const data::Tokenizer own = data::Tokenizer::load(side, {spec::TokenLayout::marian});
      for (std::int64_t id = 2; id < own.vocabulary().pieces; ++id)
        if (id != 100) put(own.piece(id));  // a piece that no text has
    }
    write_lines("two", {verses.english[0], verses.spanish[1], ">>es<< " + verses.english[2]});
    translation.vocab_multiple = 1;
  }
  void put(const std::string& piece) { ids.emplace(piece, ids.size()); }
  model::StoredModel opened_table() {
    parts.table = boost::json::serialize(ids);
    tokenizer_json = data::pack(parts);
    return opened(translation);
  }
  void expect_same(const model::StoredModel& old, const model::StoredModel& changed, const std::string& line) {
    for (const data::Side side : {data::Side::source, data::Side::target}) {
      const auto texts = [&](const data::Tokenizer& tokenizer) {
        std::vector<std::string> all;
        for (const std::int32_t id : tokenizer.encode(line, side)) all.push_back(tokenizer.piece(id));
        return all;
      };
      EXPECT_EQ(texts(changed.tokenizer), texts(old.tokenizer));
    }
  }

  data::TableParts parts;
  object ids;
};

TEST_P(TableVocabularyTest, TrimKeepsWhatBothSidesMake) {
  put("<pad>");
  const model::StoredModel old = opened_table();
  const ChangedVocabulary changed = trim(old, "two");
  const data::Tokenizer& tokenizer = changed.model.tokenizer;
  EXPECT_LT(tokenizer.vocabulary().pieces, old.tokenizer.vocabulary().pieces);
  EXPECT_EQ(tokenizer.vocabulary().pad, tokenizer.vocabulary().pieces);
  EXPECT_EQ(changed.figures.same_lines, 3);
  for (const std::string& line : lines("two")) expect_same(old, changed.model, line);
  for (std::int64_t id = 0; id < tokenizer.spelled_ids(); ++id)
    EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", id),
              row(old, "decoder/embeddings/weight", old.tokenizer.id_of(tokenizer.piece(id)).value()));
  const data::TableParts is = data::unpack(tokenizer.model_bytes(), "x");
  EXPECT_LT(tokenizer::Pieces(is.source).texts.size(), tokenizer::Pieces(parts.source).texts.size());
  EXPECT_LT(tokenizer::Pieces(is.target).texts.size(), tokenizer::Pieces(parts.target).texts.size());
  EXPECT_EQ(boost::json::parse(is.table).at("<pad>"), tokenizer.spelled_ids());
  EXPECT_TRUE(tokenizer.id_of(">>es<<"));
  (void)format_named("hf").write(context.get(), changed.model, folder / "hf", {});
}

TEST_P(TableVocabularyTest, AnAddedPieceIsMadeOfWhatBothSidesMadeOfIt) {
  put("<pad>");
  const model::StoredModel old = opened_table();
  const ChangedVocabulary changed = extend(old, {" abominably", " the", " corazoncito"});
  const data::Tokenizer& tokenizer = changed.model.tokenizer;
  EXPECT_EQ(changed.figures.skipped, 1);
  for (const char* const word : {"abominably", "corazoncito"})
    for (const data::Side side : {data::Side::source, data::Side::target})
      EXPECT_THAT(tokenizer.encode(word, side), ElementsAre(tokenizer.id_of(std::string{"▁"} + word).value())) << word;
  const value map = boost::json::parse(changed.model.attachments.front().content);
  const auto made = std::ranges::find_if(map.at("added").as_array(),
                                         [](const value& each) { return each.at("piece") == "▁corazoncito"; });
  std::vector<std::int32_t> both = old.tokenizer.encode("corazoncito", data::Side::source);
  for (const std::int32_t id : old.tokenizer.encode("corazoncito", data::Side::target)) both.push_back(id);
  EXPECT_EQ(made->at("mean_of"), boost::json::value_from(both));
  EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", tokenizer.vocabulary().pad.value()),
            row(old, "decoder/embeddings/weight", old.tokenizer.vocabulary().pad.value()));
}

TEST_P(TableVocabularyTest, TokensOfLanguagesMoveBehindTheTable) {
  parts.target.clear();
  parts.languages = "m2m100";
  translation.token_ids = spec::TokenIds{.eos = 0, .unk = 1, .start = 0};
  const model::StoredModel old = opened_table();
  const auto expect_moved = [&](const ChangedVocabulary& changed) {
    const data::Tokenizer& tokenizer = changed.model.tokenizer;
    for (const char* const code : {"__af__", "__fr__", "__zu__"}) {
      const std::int64_t was = old.tokenizer.id_of(code).value(), is = tokenizer.id_of(code).value();
      EXPECT_NE(is, was);
      EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", is), row(old, "decoder/embeddings/weight", was));
    }
  };
  expect_moved(trim(old, "two"));
  expect_moved(extend(old, {" abominably"}));
}

INSTANTIATE_TEST_SUITE_P(Types, TableVocabularyTest,
                         testing::Values(data::TokenizerType::unigram, data::TokenizerType::bpe), [](const auto& each) {
                           return std::string{each.param == data::TokenizerType::bpe ? "bpe" : "unigram"};
                         });

}  // namespace
}  // namespace argosy::interchange
