#include "data/piece_table.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <boost/json.hpp>

#include "data/text_pairs.hpp"
#include "data/tokenizer.hpp"
#include "data/tokenizer_training.hpp"
#include "data/transforms/subword.hpp"
#include "support/refusal.hpp"
#include "support/small_text.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::HasSubstr;

class PieceTableTest : public testing::Test {
 protected:
  /// A model for each side, and a table of the pieces of both, the target's first.
  PieceTableTest() {
    parts.source = test::small_tokenizer(spec::TokenLayout::marian).model_bytes();
    parts.target = train_tokenizer({.vocab_size = 200}, test::verses(300).spanish, spec::TokenLayout::marian);
    for (const char* const piece : {"</s>", "<unk>"}) add(piece);
    for (const Tokenizer& side : {load(parts.target), load(parts.source)})
      for (std::int64_t id = 2; id < side.vocabulary().pieces; ++id) add(side.piece(id));
    add(">>fr<<");
    add("<pad>");
    parts.table = boost::json::serialize(ids);
  }
  static Tokenizer load(const std::string& bytes) { return Tokenizer::load(bytes, {spec::TokenLayout::marian}); }
  void add(const std::string& piece) { ids.emplace(piece, ids.size()); }
  [[nodiscard]] std::int32_t id(const char* piece) const {
    return static_cast<std::int32_t>(ids.at(piece).as_uint64());
  }
  /// What is said of the parts with another table.
  std::string refused(const std::string& table) {
    TableParts others = parts;
    others.table = table;
    return refused(others);
  }
  static std::string refused(const TableParts& others) {
    return test::refusal(Fault::data, [&] { const PieceTable made(others, "folder"); });
  }

  TableParts parts;
  boost::json::object ids;
};

TEST_F(PieceTableTest, AFileHoldsItsPartsByteForByte) {
  parts.table += "\n \n";
  const std::string bytes = pack(parts);
  EXPECT_TRUE(is_packed(bytes));
  EXPECT_FALSE(is_packed(parts.source) || is_packed(parts.table));
  EXPECT_EQ(unpack(bytes, "x"), parts);
}

TEST_F(PieceTableTest, RefusesADamagedFile) {
  const auto refused_file = [](const std::string& bytes) {
    return test::refusal(Fault::data, [&] { (void)unpack(bytes, "x.model"); });
  };
  const std::string bytes = pack(parts);
  EXPECT_THAT(refused_file(bytes.substr(0, bytes.size() - 1)), HasSubstr("x.model: expected"));
  EXPECT_THAT(refused_file(bytes.substr(0, 20)), HasSubstr("a first line"));
  EXPECT_THAT(refused_file(bytes + "\n"), HasSubstr("the bytes and the languages"));
  EXPECT_THAT(refused_file(R"({"argosy_pieces":2})"), HasSubstr("version 1"));
  EXPECT_THAT(refused_file(R"({"argosy_pieces":1,"source":-1})"), HasSubstr(R"("source")"));
  EXPECT_THAT(refused_file(R"({"argosy_pieces":1,"source":0,"target":0,"table":0})"), HasSubstr("the languages"));
}

TEST_F(PieceTableTest, EachSideHasItsModelAndBothHaveTheTable) {
  const PieceTable table{parts, "folder"};
  const Tokenizer source = load(parts.source), target = load(parts.target);
  int same = 0;
  for (const std::string& line : test::verses(50).of_both()) {
    for (const Side side : {Side::source, Side::target}) {
      const Tokenizer& own = side == Side::source ? source : target;
      std::vector<std::string> pieces, wanted;
      for (const std::int32_t id : table.encode(line, side)) pieces.push_back(table.piece(id));
      for (const std::int32_t id : own.encode(line)) wanted.push_back(own.piece(id));
      if (std::ranges::count(wanted, "<unk>") > 0) continue;  // the table may know what the model does not
      EXPECT_EQ(pieces, wanted);
      ++same;
    }
    EXPECT_EQ(table.decode(table.encode(line, Side::source)), line);
  }
  EXPECT_GT(same, 130);  // of 200
  EXPECT_NE(table.encode("In the beginning", Side::source), table.encode("In the beginning", Side::target));
  // What only the table knows is a piece; what nobody knows is unknown.
  EXPECT_THAT(table.encode("\u6f22", Side::source), ElementsAre(id("\u2581"), id("<unk>")));
  ids["\u6f22"] = ids.size();
  parts.table = boost::json::serialize(ids);
  EXPECT_THAT((PieceTable{parts, "folder"}.encode("\u6f22", Side::source)), ElementsAre(id("\u2581"), id("\u6f22")));
}

TEST_F(PieceTableTest, ATextMayBeginWithACode) {
  const PieceTable table{parts, "folder"};
  std::vector<std::int32_t> wanted = table.encode(" In the beginning", Side::source);
  wanted.insert(wanted.begin(), id(">>fr<<"));
  EXPECT_EQ(table.encode(">>fr<< In the beginning", Side::source), wanted);
  wanted.front() = id("<unk>");
  EXPECT_EQ(table.encode(">>xx<< In the beginning", Side::source), wanted);
  EXPECT_NE(table.encode("In >>fr<<", Side::source).back(), id(">>fr<<"));
  EXPECT_GT(table.encode(">>fr", Side::source).size(), 1U);
}

TEST_F(PieceTableTest, DecodesWithoutControlPieces) {
  const PieceTable table{parts, "folder"};
  std::vector<std::int32_t> of_text = table.encode("In the beginning", Side::source);
  of_text.insert(of_text.begin(), id("</s>"));
  of_text.push_back(id("<pad>"));
  EXPECT_EQ(table.decode(of_text), "In the beginning");
  EXPECT_EQ(table.decode(std::vector{id("<unk>")}), "\u2047");
}

TEST_F(PieceTableTest, LanguagesFollowTheTable) {
  parts.target.clear();
  parts.languages = "m2m100";
  const auto size = static_cast<std::int32_t>(ids.size());
  const PieceTable table{parts, "folder"};
  EXPECT_EQ(table.size(), size + 100);
  EXPECT_EQ(table.id_of("__af__"), size);
  EXPECT_EQ(table.id_of("__zu__"), size + 99);
  EXPECT_EQ(table.piece(size + 16), "__de__");
  EXPECT_EQ(table.decode(std::vector{size, id("\u2581")}), "");
  EXPECT_NE(table.encode(">>fr<<", Side::source).front(), id(">>fr<<"));
  parts.languages = "wmt21";
  EXPECT_EQ((PieceTable{parts, "folder"}.id_of("__de__")), size + 7);
  parts.languages = "nllb";
  EXPECT_THAT(refused(parts), HasSubstr("m2m100 or wmt21"));
  add("__af__");
  parts.languages = "m2m100";
  EXPECT_THAT(refused(boost::json::serialize(ids)), HasSubstr("a table without __af__"));
}

TEST_F(PieceTableTest, RefusesTablesAndModelsThatAreNone) {
  EXPECT_THAT(refused("[]"), HasSubstr("folder: vocab.json: expected a JSON object"));
  EXPECT_THAT(refused("{"), HasSubstr("a JSON object"));
  EXPECT_THAT(refused(R"({"</s>": 0, "<unk>": 0})"), HasSubstr("each of the ids 0 to 1 once"));
  EXPECT_THAT(refused(R"({"</s>": 0, "<unk>": 2})"), HasSubstr(R"("<unk>": 2)"));
  EXPECT_THAT(refused(R"({"</s>": 0, "<unk>": -1})"), HasSubstr("-1"));
  EXPECT_THAT(refused(R"({"</s>": 0, "<unk>": "1"})"), HasSubstr("each of the ids"));
  EXPECT_THAT(refused(R"({"</s>": 0, "": 1})"), HasSubstr("an empty one"));
  EXPECT_THAT(refused(R"({"</s>": 0, "a": 1})"), HasSubstr("the piece <unk>"));
  EXPECT_THAT(refused(R"({"<unk>": 0})"), HasSubstr("the piece </s>"));
  EXPECT_THAT(refused("{}"), HasSubstr("the piece <unk>"));
  parts.target = "no model";
  EXPECT_THAT(refused(parts), HasSubstr("a SentencePiece model for the target"));
}

TEST_F(PieceTableTest, TheTokenizerKnowsItsKindAndThatItsPaddingIsNoPiece) {
  const Tokenizer tokenizer = Tokenizer::load(pack(parts), {spec::TokenLayout::marian, 1});
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::table);
  const auto size = static_cast<std::int64_t>(ids.size());
  EXPECT_EQ(tokenizer.vocabulary().pieces, size - 1);
  EXPECT_EQ(tokenizer.vocabulary().pad, size - 1);
  EXPECT_EQ(tokenizer.piece(size - 1), "<pad>");
  EXPECT_EQ(tokenizer.id_of("<pad>"), std::nullopt);
  EXPECT_EQ(tokenizer.unknown(), 1);
  EXPECT_EQ(tokenizer.encode("a b", Side::source), (PieceTable{parts, "folder"}.encode("a b", Side::source)));
  EXPECT_EQ(tokenizer.encode("a b"), (PieceTable{parts, "folder"}.encode("a b", Side::target)));
  const std::int64_t own = *tokenizer.id_of(load(parts.target).piece(100));
  EXPECT_EQ(tokenizer.score(own), load(parts.target).score(100));
  const auto refused_layout = [&] { (void)Tokenizer::load(pack(parts), {spec::TokenLayout::t5}, "x.model"); };
  EXPECT_THAT(test::refusal(Fault::data, refused_layout), HasSubstr("eos 0, unk 1"));
}

TEST_F(PieceTableTest, SidesOfTrainingPairsAreSplitByTheirModels) {
  const Tokenizer tokenizer = Tokenizer::load(pack(parts), {spec::TokenLayout::marian, 1});
  Example example;
  example.source_text = example.target_text = "In the beginning";
  EXPECT_TRUE(Subword{}.make({.tokenizer = tokenizer, .languages = {}})->apply(example, nullptr));
  EXPECT_EQ(example.source, tokenizer.encode("In the beginning", Side::source));
  EXPECT_EQ(example.target, tokenizer.encode("In the beginning", Side::target));
  const std::vector<Batch> batches =
      batches_of(tokenizer, {{"In the beginning"}, {"In the beginning"}}, BatchUnit::examples, 1);
  ASSERT_EQ(batches.size(), 1U);
  std::vector<std::int32_t> with_eos = example.source;
  with_eos.push_back(0);
  EXPECT_EQ(batches[0].source, std::vector<std::int64_t>(with_eos.begin(), with_eos.end()));
  EXPECT_NE(batches[0].source, batches[0].target_labels);
}

}  // namespace
}  // namespace argosy::data
