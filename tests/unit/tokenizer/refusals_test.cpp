#include <gmock/gmock.h>

#include "core/error.hpp"
#include "support/refusal.hpp"
#include "support/tokenizer_files.hpp"

namespace argosy::tokenizer {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;
using test::changed;
using test::says;

std::string refused(const std::string& file, std::initializer_list<std::pair<const char*, value>> changes) {
  return test::refusal(Fault::data, [&] { static_cast<void>(changed(file, changes)); });
}

std::string refused_text(std::string_view text) {
  return test::refusal(Fault::data, [&] { static_cast<void>(Pipeline::load(text, "some/tokenizer.json")); });
}

TEST(Refusals, NameAFileThatIsNoTokenizer) {
  EXPECT_TRUE(says(refused_text("not JSON"), "some/tokenizer.json", "tokenizer.json of Hugging Face"));
  EXPECT_TRUE(says(refused_text("[1]"), "no JSON object"));
  EXPECT_TRUE(says(refused_text("{}"), "the key model"));
  EXPECT_TRUE(says(refused_text(std::string(100, '[')), "some/tokenizer.json"));
}

TEST(Refusals, NameTheComponentThatIsNotRead) {
  EXPECT_TRUE(
      says(refused("words", {{"/normalizer", {{"type", "BertNormalizer"}}}}), "normalizer BertNormalizer", "NFKC"));
  EXPECT_TRUE(
      says(refused("words", {{"/normalizer/normalizers/1", {{"type", "NFX"}}}}), "normalizer.normalizers.1", "NFX"));
  EXPECT_TRUE(says(refused("words", {{"/pre_tokenizer", {{"type", "BertPreTokenizer"}}}}),
                   "pre-tokenizer BertPreTokenizer", "Metaspace"));
  EXPECT_TRUE(says(refused("words", {{"/decoder", {{"type", "WordPiece"}}}}), "decoder WordPiece", "ByteFallback"));
  EXPECT_TRUE(says(refused("words", {{"/post_processor", {{"type", "Other"}}}}), "post-processor Other", "Roberta"));
  EXPECT_TRUE(says(refused("words", {{"/model/type", "WordPiece"}}), "model WordPiece", "Unigram"));
}

TEST(Refusals, NameOptionsThatChangeTheIds) {
  EXPECT_TRUE(says(refused("words", {{"/model/dropout", 0.1}}), "model.dropout"));
  EXPECT_TRUE(says(refused("words", {{"/model/continuing_subword_prefix", "##"}}), "##"));
  EXPECT_TRUE(says(refused("words", {{"/model/end_of_word_suffix", "</w>"}}), "</w>"));
  EXPECT_NO_THROW(static_cast<void>(changed("words", {{"/model/end_of_word_suffix", ""}, {"/model/dropout", 0.0}})));
}

TEST(Refusals, NameIdsThatDoNotFit) {
  for (const value& id :
       {value(-1), value(49), value(1.5), value("1"), value(UINT64_MAX), value(1e300), value(nullptr)})
    EXPECT_TRUE(says(refused("words", {{"/model/vocab/a", id}}), "model.vocab")) << id;
  EXPECT_TRUE(says(refused("words", {{"/model/vocab/a", 2}}), "one piece for each id", "a and b for 2"));
  for (const value& id : {value(-1), value(46), value(49), value(UINT64_MAX)})
    EXPECT_TRUE(says(refused("words", {{"/added_tokens/1/id", id}}), "added_tokens.1")) << id;
  EXPECT_TRUE(
      says(refused("words", {{"/added_tokens/0/id", 47}}), "the id 0 for [UNK], which is the one of this piece"));
  EXPECT_TRUE(says(refused("words", {{"/added_tokens/1/id", 48}}), "the id 47 for [CLS], which is the next free one"));
  EXPECT_TRUE(says(refused("unigram", {{"/model/unk_id", 25}}), "model.unk_id"));
  EXPECT_TRUE(says(refused("unigram", {{"/model/unk_id", nullptr}}), "the key unk_id"));
  EXPECT_TRUE(says(refused("words", {{"/model/unk_token", "none"}}), "model.unk_token"));
  EXPECT_TRUE(says(refused("words", {{"/post_processor/cls/1", 49}}), "post_processor.cls.1"));
  EXPECT_TRUE(says(refused("unigram", {{"/post_processor/special_tokens/<~1s>/ids/0", 25}}), "ids.0"));
}

TEST(Refusals, NameMergesAndScoresThatAreNone) {
  EXPECT_TRUE(
      says(refused("words", {{"/model/merges/1", "q qq"}}), "model.merges.1", "pieces of the vocabulary, got qq"));
  EXPECT_TRUE(says(refused("words", {{"/model/merges/1", "a z"}}), "got az"));
  for (const value& merge : {value("a"), value("a b c"), value(array{"a"}), value(array{"a", 1}), value(7)})
    EXPECT_TRUE(says(refused("words", {{"/model/merges/1", merge}}), "model.merges.1")) << merge;
  for (const value& piece :
       {value(array{"a"}), value(array{"a", "b"}), value(array{1, 1.0}), value("a"), value(array{"a", 1.0, 2})})
    EXPECT_TRUE(says(refused("unigram", {{"/model/vocab/5", piece}}), "model.vocab.5")) << piece;
  EXPECT_TRUE(says(refused_text(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 1e999]]}})"),
                   "some/tokenizer.json"));
}

TEST(Refusals, NameAMapOfCharactersThatIsNone) {
  const auto map = [](const char* base64) {
    return refused("unigram", {{"/normalizer/normalizers/0/precompiled_charsmap", base64}});
  };
  EXPECT_TRUE(says(map("!!!!"), "normalizers.0.precompiled_charsmap", "base64"));
  EXPECT_TRUE(says(map("AAAA="), "other text"));  // 3 bytes: no size
  EXPECT_TRUE(says(map("AAAAAA"), "a table of 0 bytes"));
  EXPECT_TRUE(says(map("/////wAAAAA"), "a table of 4294967295 bytes in 4"));
  EXPECT_TRUE(says(map("BAAAAAAAAAD/"), "not UTF-8"));
}

TEST(Refusals, LeaveOffsetsOutsideOfAMapUnused) {  // its only unit leads outside of it, or to a text that is not there
  for (const char* base64 : {"BAAAAAAAAAA", "BAAAAP////8", "CAAAAAAEAABhCQAA"})
    EXPECT_EQ(changed("unigram", {{"/normalizer/normalizers/0/precompiled_charsmap", base64}}).encode("ab").size(), 3U);
}

TEST(Refusals, NameExpressionsThatCannotBeRead) {
  const auto split = [](const char* expression) {
    return refused(
        "words",
        {{"/pre_tokenizer",
          {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}}}});
  };
  EXPECT_TRUE(says(split("(a"), "pre_tokenizer.pattern.Regex", "U_REGEX_MISMATCHED_PAREN"));
  EXPECT_TRUE(says(split("\\p{N}{1,3}+"), "}+ in it"));
  EXPECT_TRUE(says(split("\\h+"), "\\h in it"));
  EXPECT_TRUE(says(split("(?m:a.b)"), "(?m in it"));
  EXPECT_NO_THROW(static_cast<void>(changed("words", {{"/pre_tokenizer",
                                                       {{"type", "Split"},
                                                        {"pattern", {{"Regex", "(?i:a)\\p{N}+"}}},
                                                        {"behavior", "Isolated"},
                                                        {"invert", false}}}})));
  EXPECT_TRUE(says(refused("words", {{"/pre_tokenizer/pretokenizers/3/pattern", {{"String", ""}}}}),
                   "a string with characters"));
  EXPECT_TRUE(
      says(refused("words", {{"/pre_tokenizer/pretokenizers/3/behavior", "Other"}}), "MergedWithNext", "Other"));
}

TEST(Refusals, EndExpressionsThatTakeTooLong) {
  const Pipeline pipeline = changed(
      "words",
      {{"/pre_tokenizer",
        {{"type", "Split"}, {"pattern", {{"Regex", "(a|a)*b"}}}, {"behavior", "Isolated"}, {"invert", false}}}});
  EXPECT_TRUE(says(test::refusal(Fault::data, [&] { static_cast<void>(pipeline.encode(std::string(60, 'a'))); }),
                   "takes too long on a text of 60 bytes"));
}

TEST(Refusals, EndChangesThatFillTheMemory) {
  const object doubles{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const array forty(40, doubles);
  const auto encoded = [](const Pipeline& pipeline) {
    return test::refusal(Fault::data, [&] { static_cast<void>(pipeline.encode("a")); });
  };
  EXPECT_TRUE(says(encoded(changed("words", {{"/normalizer/normalizers", forty}})), "of a text of 1"));
  const object large{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10'000, 'a')}};
  EXPECT_TRUE(says(encoded(changed("words", {{"/normalizer", large}})), "of a text of 1"));
  const array bytes(40, object{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}});
  EXPECT_TRUE(says(encoded(changed("words", {{"/pre_tokenizer/pretokenizers", bytes}})), "of a text of 1"));
  const Pipeline decodes = changed("words", {{"/decoder", {{"type", "Sequence"}, {"decoders", forty}}}});
  EXPECT_TRUE(says(test::refusal(Fault::data, [&] { static_cast<void>(decodes.decode(decodes.encode("a"))); }),
                   "makes more than"));
}

TEST(Refusals, NameTemplatesWithoutTheText) {
  EXPECT_TRUE(says(refused("unigram", {{"/post_processor/single", array{}}}), "a template without it"));
  const value b{{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
  EXPECT_TRUE(says(refused("unigram", {{"/post_processor/single", array{b}}}), "the text A once"));
  EXPECT_TRUE(says(refused("unigram", {{"/post_processor/special_tokens", object{}}}), "the key </s>"));
}

TEST(Refusals, NameContradictionsOfMetaspace) {
  EXPECT_TRUE(
      says(refused("unigram", {{"/pre_tokenizer/add_prefix_space", false}}), "prepend_scheme", "expected never"));
  EXPECT_TRUE(says(refused("unigram", {{"/pre_tokenizer/prepend_scheme", "some"}}), "always, first or never"));
  EXPECT_TRUE(says(refused("unigram", {{"/pre_tokenizer/replacement", "ab"}}), "one character"));
}

}  // namespace
}  // namespace argosy::tokenizer
