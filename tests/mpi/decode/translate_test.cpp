#include "decode/translate.hpp"

#include <gmock/gmock.h>
#include <sentencepiece_trainer.h>

#include <limits>
#include <set>
#include <unordered_map>

#include "support/mpi_test.hpp"
#include "support/refusal.hpp"
#include "support/small_model.hpp"
#include "support/small_text.hpp"
#include "unit/model/support.hpp"

namespace argosy::decode {
namespace {

spec::Architecture shape_for(const data::Tokenizer& tokenizer) {
  spec::ModelConfig config =
      test::model_config({.width = 8, .ff = 8, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  config.max_positions = 40;
  return resolve(config, tokenizer.vocabulary().pieces);
}

const data::Tokenizer& tokenizer() { return test::small_tokenizer(spec::TokenLayout::marian); }

/// A SentencePiece model with byte pieces, as those of large language models have them.
data::Tokenizer tokenizer_with_bytes() {
  struct Lines : sentencepiece::SentenceIterator {
    std::vector<std::string> lines = test::verses(100).english;
    std::size_t at = 0;
    [[nodiscard]] bool done() const override { return at == lines.size(); }
    void Next() override { ++at; }
    [[nodiscard]] const std::string& value() const override { return lines[at]; }
    [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
  } lines;
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", "bpe"}, {"vocab_size", "340"}, {"byte_fallback", "true"}, {"eos_id", "0"},
      {"unk_id", "1"},       {"bos_id", "-1"},      {"pad_id", "-1"},          {"minloglevel", "2"}};
  std::string bytes;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(settings, &lines, &bytes).ok());
  return data::Tokenizer::load(std::move(bytes), {spec::TokenLayout::marian});
}

TEST(TranslateLines, OrderAndTextDoNotDependOnTheRankCount) {
  test::BoundModel bound(shape_for(tokenizer()), at::kFloat, 2);
  model::Inference inference(*bound.model);
  const comm::Communicator alone = test::world().split(test::world().rank(), 0);
  const test::Verses text = test::verses(9);
  std::vector<std::string> some{"", " \t ", "日本語"};  // nothing, nothing to say, unknown pieces alone
  for (const std::string& verse : text.english) some.push_back(verse.substr(0, 25));
  some.emplace_back();
  for (const std::vector<std::string>& lines : {some, {"And"}, {""}, {}}) {
    for (const std::int64_t beam : {1, 3}) {
      const SearchOptions options{.beam = beam, .max_length = 8};
      const auto shared = translate_lines(test::world(), inference, tokenizer(), lines, options);
      const auto own = translate_lines(alone, inference, tokenizer(), lines, options);
      ASSERT_EQ(shared.size(), lines.size());
      std::set<std::string> texts;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(shared[i].text, own[i].text) << i;
        EXPECT_NEAR(shared[i].score, own[i].score, 1e-4) << i;
        texts.insert(shared[i].text);
      }
      if (lines.size() < 9) continue;
      for (const std::size_t empty : {std::size_t{0}, std::size_t{1}, lines.size() - 1}) {
        EXPECT_EQ(shared[empty].text, "");
        EXPECT_EQ(shared[empty].score, 0);
      }
      std::vector<std::int32_t> source = tokenizer().encode(lines[3]);
      source.push_back(static_cast<std::int32_t>(tokenizer().vocabulary().eos));
      const Hypothesis searched = search(inference, {source}, options).front();
      EXPECT_EQ(shared[3].text, tokenizer().decode(searched.ids));
      EXPECT_NEAR(shared[3].score, searched.score, 1e-4);
      EXPECT_LT(shared[2].score, 0);  // unknown pieces are translated as well as can be
      EXPECT_GT(texts.size(), 3U);
    }
  }
}

TEST(TranslateLines, NamesALineThatIsTooLong) {
  test::BoundModel bound(shape_for(tokenizer()));
  model::Inference inference(*bound.model);
  const std::vector<std::string> lines{"And", "", test::verses(1).english[0] + test::verses(2).english[1]};
  EXPECT_THAT(
      test::refusal(Fault::data, [&] { (void)translate_lines(test::world(), inference, tokenizer(), lines, {}); }),
      testing::AllOf(testing::HasSubstr("at most 40 pieces"), testing::HasSubstr("line 3")));
}

TEST(ScoreTranslations, DoNotDependOnTheRankCount) {
  std::vector<Translation> translations;
  std::vector<std::string> references;
  for (const std::string& verse : test::verses(7).english) {
    const std::size_t cut = verse.find(' ');
    references.push_back(verse);
    translations.push_back({.text = verse.substr(cut + 1) + " " + verse.substr(0, cut) + " more"});
  }
  const comm::Communicator alone = test::world().split(test::world().rank(), 0);
  for (const std::size_t lines : {std::size_t{7}, std::size_t{1}, std::size_t{0}}) {  // fewer than ranks; none
    translations.resize(lines);
    references.resize(lines);
    const TranslationScores shared = score_translations(test::world(), translations, references);
    const TranslationScores own = score_translations(alone, translations, references);
    EXPECT_EQ(shared.bleu, own.bleu);
    EXPECT_EQ(shared.chrf, own.chrf);
    EXPECT_EQ(shared.ter, own.ter);
    EXPECT_EQ(own.ter > 0, lines > 0);
  }
}

TEST(TranslateLines, ATroubleOfOneRankEndsAll) {
  test::BoundModel bound(shape_for(tokenizer()));
  model::Inference inference(*bound.model);
  bound.parameter("encoder/layer_0/ffn/linear_1/bias").weight.fill_(std::numeric_limits<float>::quiet_NaN());
  // one line: the other ranks have none
  (void)test::refusal(Fault::numeric,
                      [&] { (void)translate_lines(test::world(), inference, tokenizer(), {"And"}, {}); });
}

TEST(TranslateLines, ALineFeedOutOfBytePiecesStaysInItsLine) {
  const data::Tokenizer with_bytes = tokenizer_with_bytes();
  test::BoundModel bound(shape_for(with_bytes));
  model::Inference inference(*bound.model);
  for (const at::Tensor& flat : bound.weights) flat.zero_();
  const std::int64_t line_feed = with_bytes.id_of("<0x0A>").value();
  ASSERT_EQ(with_bytes.decode(std::vector<std::int32_t>(2, static_cast<std::int32_t>(line_feed))), "\n\n");
  bound.parameter("decoder/projection/bias").weight[line_feed].fill_(9);
  const auto translations =
      translate_lines(test::world(), inference, with_bytes, {"And", "the", "of"}, {.max_length = 2});
  for (const Translation& translation : translations) EXPECT_EQ(translation.text, "  ");
}

}  // namespace
}  // namespace argosy::decode
