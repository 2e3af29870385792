#include "interchange/vocabulary.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <numeric>

#include "data/tokenizer_training.hpp"
#include "interchange/vocabulary_change.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/vocabulary_fixture.hpp"

namespace argosy::interchange {
namespace {

using testing::ElementsAre, testing::HasSubstr;
using tokenizer::Pieces;

class VocabularyTest : public VocabularyFixture {
 protected:
  model::StoredModel with_bpe(const spec::ModelConfig& config) {
    static const std::string bytes = data::train_tokenizer({.type = data::TokenizerType::bpe, .vocab_size = 300},
                                                           test::verses(600).english, spec::TokenLayout::llama);
    model::StoredModel model = opened(config);
    model.tokenizer = data::Tokenizer::load(bytes, spec::vocabulary_rule(config));
    return model;
  }
  /// Every text that the trimmed model was made for has its old pieces, and each piece its old rows.
  void expect_trimmed(const model::StoredModel& old, const ChangedVocabulary& changed) {
    const data::Tokenizer& tokenizer = changed.model.tokenizer;
    EXPECT_LT(tokenizer.vocabulary().pieces, 300);
    EXPECT_EQ(tokenizer.vocabulary().rows % 64, 0);
    EXPECT_EQ(changed.figures.pieces_before, 300);
    EXPECT_EQ(changed.figures.pieces_after, tokenizer.vocabulary().pieces);
    EXPECT_EQ(changed.figures.lines, 15);
    EXPECT_EQ(changed.figures.same_lines, 15);
    EXPECT_EQ(changed.figures.length_before, changed.figures.length_after);
    for (const std::string& line : lines("some")) EXPECT_EQ(spelled(tokenizer, line), spelled(old.tokenizer, line));
    for (std::int64_t id = 0; id < tokenizer.vocabulary().pieces; ++id) {
      const std::int64_t was = old.tokenizer.id_of(tokenizer.piece(id)).value();
      for (const char* const name : {"decoder/embeddings/weight", "decoder/projection/bias"})
        EXPECT_EQ(row(changed.model, name, id), row(old, name, was)) << id;
    }
  }
};

TEST_F(VocabularyTest, TrimKeepsPiecesAndRowsOfATiedTranslationModel) {
  sections.model["trained_in"] = "bf16";
  const model::StoredModel old = opened(translation);
  const ChangedVocabulary changed = trim(old, "some");
  expect_trimmed(old, changed);
  const spec::Vocabulary& vocabulary = changed.model.tokenizer.vocabulary();
  EXPECT_EQ(vocabulary.pad, vocabulary.rows - 1);
  EXPECT_EQ(row(changed.model, "decoder/projection/bias", *vocabulary.pad - 1), std::vector{-1e4F});
  EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", *vocabulary.pad - 1), std::vector<float>(8));
  EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", *vocabulary.pad),
            row(old, "decoder/embeddings/weight", 319));
  EXPECT_NE(changed.model.id, old.id);
  EXPECT_EQ(changed.model.trained_in, DType::bf16);
  // Everything else is as it was, and any slice may be read.
  const spec::Parameter& other = parameter_of(old.spec, "decoder/layer_0/ffn/linear_0/weight");
  std::vector<float> was(96), is(96), slice(20);
  old.weights->read(other, 0, was);
  changed.model.weights->read(parameter_of(changed.model.spec, other.name), 0, is);
  EXPECT_EQ(was, is);
  const spec::Parameter& table = parameter_of(changed.model.spec, "decoder/embeddings/weight");
  std::vector<float> whole(static_cast<std::size_t>(table.numel()));
  changed.model.weights->read(table, 0, whole);
  for (std::int64_t begin : {0, 3, 500, 1001}) {
    changed.model.weights->read(table, begin, slice);
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(), whole.begin() + begin)) << begin;
  }
}

TEST_F(VocabularyTest, TrimMapsEveryMatrixOfAnUntiedModel) {
  translation.tie_embeddings = false;
  const model::StoredModel old = opened(translation);
  const ChangedVocabulary changed = trim(old, "some");
  expect_trimmed(old, changed);
  const std::int64_t last = changed.model.tokenizer.vocabulary().pieces - 1;
  const std::int64_t was = old.tokenizer.id_of(changed.model.tokenizer.piece(last)).value();
  for (const char* const name : {"encoder/embeddings_0/weight", "decoder/projection/weight"})
    EXPECT_EQ(row(changed.model, name, last), row(old, name, was)) << name;
}

TEST_F(VocabularyTest, TrimKeepsWhatBpeBuildsPiecesFrom) {
  language.bias = true;
  const model::StoredModel old = with_bpe(language);
  const ChangedVocabulary changed = trim(old, "some");
  expect_trimmed(old, changed);
  EXPECT_EQ(changed.model.tokenizer.vocabulary().bos, 1);
  EXPECT_EQ(changed.model.tokenizer.vocabulary().pad, std::nullopt);
}

TEST_F(VocabularyTest, TrimKeepsTheScoresThatDecideAboutUnknownPieces) {
  const model::StoredModel old = opened(translation);
  write_lines("short", {"earth earth"});
  const ChangedVocabulary changed = trim(old, "short");
  EXPECT_LT(changed.figures.pieces_after, 20);
  const auto extremes = [](const data::Tokenizer& tokenizer) {
    std::vector<float> scores;
    for (std::int64_t id = 2; id < tokenizer.vocabulary().pieces; ++id) scores.push_back(tokenizer.score(id));
    return std::pair{std::ranges::min(scores), std::ranges::max(scores)};
  };
  EXPECT_EQ(extremes(changed.model.tokenizer), extremes(old.tokenizer));
}

TEST_F(VocabularyTest, TrimByCountLosesRarePiecesAndSaysHowMuchLongerTextBecomes) {
  const model::StoredModel old = opened(translation);
  const ChangedVocabulary all = trim(old, "some"), frequent = trim(old, "some", 5);
  EXPECT_LT(frequent.figures.pieces_after, all.figures.pieces_after);
  EXPECT_LT(frequent.figures.same_lines, frequent.figures.lines);
  EXPECT_GT(frequent.figures.length_after, frequent.figures.length_before);
  EXPECT_GE(frequent.figures.unknown_after, frequent.figures.unknown_before);
}

TEST_F(VocabularyTest, TheMapSaysWhereEachOldIdIs) {
  const model::StoredModel old = opened(translation);
  const ChangedVocabulary changed = trim(old, "some");
  const ExportReport written = format_named("hf").write(context.get(), changed.model, folder / "hf", {});
  EXPECT_EQ(written.parameters, [&] {
    std::int64_t sum = 0;
    for (const spec::Unit& unit : changed.model.spec.units)
      for (const spec::Parameter& parameter : unit.parameters) sum += parameter.numel();
    return sum;
  }());
  const boost::json::value map = boost::json::parse(files.read_text(folder / "hf/vocab_map.json"));
  const boost::json::array& ids = map.at("new_ids").as_array();
  ASSERT_EQ(ids.size(), 320U);
  EXPECT_EQ(ids[319].as_int64(), changed.model.tokenizer.vocabulary().rows - 1);
  EXPECT_TRUE(ids[310].is_null());
  for (std::int64_t id = 0; id < 300; ++id) {
    const boost::json::value& now = ids[static_cast<std::size_t>(id)];
    if (now.is_null()) {
      EXPECT_FALSE(changed.model.tokenizer.id_of(old.tokenizer.piece(id))) << id;
    } else {
      EXPECT_EQ(changed.model.tokenizer.piece(now.as_int64()), old.tokenizer.piece(id));
    }
  }
}

TEST_F(VocabularyTest, TheSelfTestCatchesAWrongMapAWrongTokenizerAndAWrongForwardPass) {
  const model::StoredModel old = opened(translation);
  const std::vector<std::string> text = lines("some");
  const Pieces all{old.tokenizer.model_bytes()};
  VocabularyChange change;
  change.old_ids.resize(300);
  std::iota(change.old_ids.begin(), change.old_ids.end(), 0);
  const auto without = [&](Pieces pieces, std::size_t id) {
    const auto at = static_cast<std::ptrdiff_t>(id);
    pieces.texts.erase(pieces.texts.begin() + at);
    pieces.scores.erase(pieces.scores.begin() + at);
    pieces.types.erase(pieces.types.begin() + at);
    return with_pieces(old.tokenizer.model_bytes(), pieces);
  };
  const auto refused = [&](const VocabularyChange& tried, const model::Forward& forward) {
    const model::StoredModel changed = changed_model(old, tried);
    return test::refusal(Fault::internal, [&] { (void)check_vocabulary(old, changed, text, forward); });
  };
  VocabularyChange wrong = change;
  wrong.tokenizer = without(all, 150);
  wrong.old_ids.erase(wrong.old_ids.begin() + 151);
  EXPECT_THAT(refused(wrong, add_embeddings), HasSubstr("row 150 of "));

  Pieces swapped = all;
  const std::int32_t used = old.tokenizer.encode(text.front()).front();
  swapped.scores[static_cast<std::size_t>(used)] -= 100;
  wrong = change;
  wrong.tokenizer = with_pieces(old.tokenizer.model_bytes(), swapped);
  EXPECT_THAT(refused(wrong, add_embeddings), HasSubstr("the encoding of the line"));

  change.tokenizer = with_pieces(old.tokenizer.model_bytes(), all);
  int calls = 0;
  EXPECT_THAT(refused(change,
                      [&](const auto& spec, const auto& weights, const auto& examples) {
                        auto outputs = add_embeddings(spec, weights, examples);
                        if (++calls == 2) outputs[3].hidden.back() += 1;
                        return outputs;
                      }),
              HasSubstr("line 4 of those with the same pieces"));
}

TEST_F(VocabularyTest, ExtensionStartsFromTheMeanOfWhatItReplaces) {
  for (const bool tied : {true, false}) {
    translation.tie_embeddings = tied;
    const model::StoredModel old = opened(translation);
    const ChangedVocabulary changed = extend(old, {" heavenwards", " the", "ization", ""});
    EXPECT_EQ(changed.figures.skipped, 1);
    EXPECT_EQ(changed.figures.pieces_after, 302);
    EXPECT_EQ(changed.figures.same_lines, 15);
    const std::vector<std::int32_t> parts = old.tokenizer.encode("heavenwards");
    ASSERT_GT(parts.size(), 2U);
    for (std::string name : {"decoder/embeddings/weight", "decoder/projection/weight", "decoder/projection/bias"}) {
      if (tied && name == "decoder/projection/weight") name = "decoder/embeddings/weight";
      const std::vector<float> got = row(changed.model, name, 300);
      for (std::size_t c = 0; c < got.size(); ++c) {
        double sum = 0;
        for (const std::int32_t part : parts) sum += double{row(old, name, part)[c]};
        EXPECT_EQ(got[c], static_cast<float>(sum / static_cast<double>(parts.size()))) << name;
      }
    }
    EXPECT_EQ(row(changed.model, "decoder/embeddings/weight", 299), row(old, "decoder/embeddings/weight", 299));
    const boost::json::value map = boost::json::parse(changed.model.attachments.front().content);
    EXPECT_EQ(map.at("added").at(0).at("mean_of"), boost::json::value_from(parts));
    EXPECT_THAT(spelled(changed.model.tokenizer, "heavenwards"), ElementsAre("▁heavenwards"));
    EXPECT_EQ(spelled(changed.model.tokenizer, "realization").back(), "ization");
    EXPECT_EQ(changed.model.tokenizer.vocabulary().pad, 319);
  }
}

TEST_F(VocabularyTest, AnExtendedPieceIsTakenWhereItsPartsWere) {
  for (const bool bpe : {false, true}) {
    const model::StoredModel old = bpe ? with_bpe(language) : opened(translation);
    const std::vector<std::string> words{" abominably",           " abominab", " unquestionableness", " ö", " naïveté",
                                         " three words together", " of the"};
    const ChangedVocabulary changed = extend(old, words);
    for (const std::string& word : words) {
      std::string piece = word;
      for (std::size_t at = 0; (at = piece.find(' ')) != std::string::npos;) piece.replace(at, 1, "▁");
      EXPECT_THAT(spelled(changed.model.tokenizer, word.substr(1)), ElementsAre(piece)) << bpe;
    }
    EXPECT_EQ(changed.figures.parts > 0, bpe);
    EXPECT_EQ(changed.figures.pieces_after, 307 - changed.figures.skipped + changed.figures.parts);
    for (const std::string& line : lines("other")) {
      const std::vector<std::int32_t> ids = changed.model.tokenizer.encode(line);
      if (std::ranges::all_of(ids, [](std::int32_t id) { return id < 300; })) {
        EXPECT_EQ(ids, old.tokenizer.encode(line));
      }
    }
  }
}

TEST_F(VocabularyTest, RefusesTextsThatCannotServe) {
  const model::StoredModel old = opened(translation);
  write_lines("empty", {"", ""});
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)trim(old, "empty"); }),
              HasSubstr("expected text for the self-test, got no line that is not empty"));
  test::refusal(Fault::data, [&] { (void)trim(old, "absent"); });
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)extend(old, {" the"}); }),
              HasSubstr("expected pieces that the tokenizer does not have, got 1 that it has"));
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)extend(old, {"  heaven"}); }),
              HasSubstr("would never make the piece \"▁▁heaven\": \" heaven\" becomes \"▁h"));
  std::string bytes = old.tokenizer.model_bytes();
  bytes.append({0x12, 2, 0x18, 4});  // trainer_spec.model_type, of which the last counts
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)PieceSet(bytes, nullptr); }),
              HasSubstr("into words or characters"));
}

}  // namespace
}  // namespace argosy::interchange
