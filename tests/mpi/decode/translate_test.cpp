#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <sentencepiece_trainer.h>

#include <limits>
#include <set>
#include <unordered_map>

#include "decode/likelihood.hpp"
#include "support/mpi_test.hpp"
#include "support/refusal.hpp"
#include "support/small_model.hpp"
#include "support/small_text.hpp"
#include "unit/model/support.hpp"

namespace argosy::decode {
namespace {

spec::Architecture shape_for(const data::Tokenizer& tokenizer,
                             spec::ModelType type = spec::ModelType::encoder_decoder) {
  const int encoder_layers = type == spec::ModelType::encoder_decoder ? 1 : 0;
  spec::ModelConfig config = test::model_config(
      {.type = type, .width = 8, .ff = 8, .heads = 2, .encoder_layers = encoder_layers, .decoder_layers = 1});
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
    for (const SearchOptions& options :
         {SearchOptions{.max_length = 8},
          {.beam = 3, .nbest = 3, .max_length = 8},
          {.nbest = 2, .max_length = 8, .sample = true, .temperature = 1.5, .seed = 3}}) {
      const auto shared = translate_lines(test::world(), inference, tokenizer(), {lines}, {options});
      const auto own = translate_lines(alone, inference, tokenizer(), {lines}, {options});
      ASSERT_EQ(shared.size(), lines.size());
      std::set<std::string> texts;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(shared[i].text, own[i].text) << i;
        EXPECT_NEAR(shared[i].score, own[i].score, 1e-4) << i;
        EXPECT_NEAR(shared[i].log_probability, own[i].log_probability, 1e-4) << i;
        ASSERT_EQ(shared[i].others.size(), own[i].others.size()) << i;
        for (std::size_t k = 0; k < own[i].others.size(); ++k)
          EXPECT_EQ(shared[i].others[k].text, own[i].others[k].text);
        texts.insert(shared[i].text);
      }
      if (lines.size() < 9) continue;
      for (const std::size_t empty : {std::size_t{0}, std::size_t{1}, lines.size() - 1}) {
        EXPECT_EQ(shared[empty].text, "");
        EXPECT_EQ(shared[empty].score, 0);
      }
      Source source{.ids = tokenizer().encode(lines[3]), .line = 3};
      source.ids.push_back(static_cast<std::int32_t>(tokenizer().vocabulary().eos));
      const std::vector<Hypothesis> all = search(inference, {source}, options).front();
      const Hypothesis& searched = all.front();
      ASSERT_EQ(shared[3].others.size() + 1, all.size());
      for (std::size_t k = 1; k < all.size(); ++k)
        EXPECT_EQ(shared[3].others[k - 1].text, tokenizer().decode(all[k].ids));
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
      test::refusal(Fault::data, [&] { (void)translate_lines(test::world(), inference, tokenizer(), {lines}, {}); }),
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
                      [&] { (void)translate_lines(test::world(), inference, tokenizer(), {{"And"}}, {}); });
}

/// A model that says `piece` whatever stands before.
void say(test::BoundModel& bound, std::int64_t piece) {
  for (const at::Tensor& flat : bound.weights) flat.zero_();
  bound.parameter("decoder/projection/bias").weight[piece].fill_(9);
}

TEST(TranslateLines, BeginsWithTheTokensAndTheLinesThatAreGiven) {
  test::BoundModel bound(shape_for(tokenizer()));
  model::Inference inference(*bound.model);
  say(bound, tokenizer().id_of("s").value());
  const TextPart part{.lines = {"And", "", "the"}, .first = 5, .targets = {"of", "of", ""}};
  const auto texts = [&](const TranslateOptions& options) {
    std::vector<std::string> out;
    for (const Translation& one : translate_lines(test::world(), inference, tokenizer(), part, options))
      out.push_back(one.text);
    return out;
  };
  const auto id = static_cast<std::int32_t>(tokenizer().id_of("s").value());
  const std::string token = tokenizer().piece(9);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts({.search = {.max_length = 2}}), (Texts{"ofs", "", "ss"}));
  EXPECT_EQ(texts({.search = {.max_length = 2}, .target_prefix = {token}}).at(2),
            tokenizer().decode(std::vector<std::int32_t>{9, id}));
  EXPECT_EQ(texts({.search = {.max_length = 3}, .target_prefix = {token}, .omit_prefix = true}),
            (Texts{"s", "", "ss"}));
  EXPECT_EQ(texts({.search = {.max_length = 9}, .stop = {"q", "sss"}}), (Texts{"of", "", ""}));
  EXPECT_EQ(texts({.search = {.beam = 2, .max_length = 9}, .stop = {"ofs"}}).front(), "");

  const auto refuses = [&](Fault fault, const TextPart& bad, const TranslateOptions& options, const char* words) {
    EXPECT_THAT(
        test::refusal(fault, [&] { (void)translate_lines(test::world(), inference, tokenizer(), bad, options); }),
        testing::HasSubstr(words));
  };
  refuses(Fault::usage, part, {.target_prefix = {"no such piece"}}, "--target-prefix: expected a piece");
  const data::Tokenizer& of_prompts = test::small_tokenizer(spec::TokenLayout::llama);
  test::BoundModel language(shape_for(of_prompts, spec::ModelType::decoder));
  model::Inference continues(*language.model);
  EXPECT_THAT(
      test::refusal(Fault::usage, [&] { (void)translate_lines(test::world(), continues, of_prompts, part, {}); }),
      testing::HasSubstr("a decoder-only model takes no --prefix"));
  refuses(Fault::usage, part, {.source_prefix = {"no such piece"}}, "--source-prefix: expected a piece");
  std::string long_text = "s";
  for (int i = 0; i < 45; ++i) long_text += "q";
  refuses(Fault::data, {.lines = {"a", "b"}, .first = 5, .targets = {"", long_text}}, {},
          "line 7 of the prefixes: expected at most 39 pieces");
}

TEST(TranslateLines, ASourcePrefixIsReadBeforeTheLine) {
  test::BoundModel bound(shape_for(tokenizer()), at::kFloat, 2);
  model::Inference inference(*bound.model);
  const std::string token = tokenizer().piece(9);
  Source source{.ids = tokenizer().encode("And")};
  source.ids.insert(source.ids.begin(), {9, 9});
  source.ids.push_back(static_cast<std::int32_t>(tokenizer().vocabulary().eos));
  const Hypothesis expected = search(inference, {source}, {.max_length = 8}).front().front();
  const auto found = translate_lines(test::world(), inference, tokenizer(), {{"And", ""}},
                                     {.search = {.max_length = 8}, .source_prefix = {token, token}});
  EXPECT_EQ(found[0].text, tokenizer().decode(expected.ids));
  EXPECT_NEAR(found[0].score, expected.score, 1e-4);
  EXPECT_EQ(found[1].text, "");
}

TEST(Alignments, FollowTheirTranslations) {
  test::BoundModel bound(shape_for(tokenizer()), at::kFloat, 2);
  model::Inference inference(*bound.model);
  const TextPart part{.lines = {"And the king", "", "of"}, .targets = {"de la", "", ""}};
  TranslateOptions options{.search = {.beam = 2, .nbest = 2, .max_length = 6}, .alignment = 1};
  const auto whole = translate_lines(test::world(), inference, tokenizer(), part, options);
  options.omit_prefix = true;
  const auto rest = translate_lines(test::world(), inference, tokenizer(), part, options);
  EXPECT_EQ(whole[1].alignment, "");
  const auto eos = static_cast<std::int32_t>(tokenizer().vocabulary().eos);
  std::vector<std::int32_t> ids = tokenizer().encode("And the king");
  ids.push_back(eos);
  const auto prefix = tokenizer().encode("de la");
  const auto found = search(inference, {{ids, prefix}}, options.search).front();
  ASSERT_EQ(found.size(), 2U);
  ASSERT_EQ(whole[0].others.size(), 1U);
  for (std::size_t k = 0; k < 2; ++k) {
    const auto aligned = alignments(inference, {{ids, found[k].ids}}, 0).front();
    const auto expected = [&](std::size_t first) {
      std::string text;
      for (std::size_t t = first; t < aligned.size(); ++t) text += fmt::format(" {}-{}", aligned[t], t - first);
      return text.substr(std::min<std::size_t>(1, text.size()));
    };
    EXPECT_EQ(k == 0 ? whole[0].alignment : whole[0].others[0].alignment, expected(0));
    EXPECT_EQ(k == 0 ? rest[0].alignment : rest[0].others[0].alignment, expected(prefix.size()));
  }
  // A score's are those of the pieces without EOS.
  const auto scored =
      score_lines(test::world(), inference, tokenizer(), {.lines = {"And the king\tde la"}}, {.alignment = 0});
  auto with_eos = prefix;
  with_eos.push_back(eos);
  std::string last;
  const auto aligned = alignments(inference, {{ids, with_eos}}, 0).front();
  for (std::size_t t = 0; t + 1 < aligned.size(); ++t)
    last += fmt::format("{}{}-{}", t == 0 ? "\t" : " ", aligned[t], t);
  EXPECT_TRUE(scored.front().text.ends_with(last)) << scored.front().text << " " << last;

  options.alignment = 2;
  EXPECT_THAT(
      test::refusal(Fault::usage, [&] { (void)translate_lines(test::world(), inference, tokenizer(), part, options); }),
      testing::HasSubstr("--alignment-layer: expected 1 to 1, a layer of the decoder, got 2"));
  const data::Tokenizer& of_prompts = test::small_tokenizer(spec::TokenLayout::llama);
  test::BoundModel language(shape_for(of_prompts, spec::ModelType::decoder));
  model::Inference continues(*language.model);
  EXPECT_THAT(
      test::refusal(Fault::usage,
                    [&] { (void)translate_lines(test::world(), continues, of_prompts, {{"And"}}, {.alignment = 0}); }),
      testing::HasSubstr("a decoder-only model has no alignments"));
}

TEST(ScoreLines, AreThoseOfTheirPiecesOnAnyNumberOfRanks) {
  test::BoundModel bound(shape_for(tokenizer()), at::kFloat, 2);
  model::Inference inference(*bound.model);
  const comm::Communicator alone = test::world().split(test::world().rank(), 0);
  const std::vector<std::string> sources{"And", "", "the", "of"}, targets{"de la", "y", "", "el"};
  std::vector<std::string> joined;
  for (std::size_t i = 0; i < sources.size(); ++i) joined.push_back(sources[i] + "\t" + targets[i]);
  std::vector<std::string> texts;
  for (const TextPart& part : {TextPart{.lines = joined}, TextPart{.lines = sources, .targets = targets}}) {
    const auto shared = score_lines(test::world(), inference, tokenizer(), part, {.token_scores = true});
    const auto own = score_lines(alone, inference, tokenizer(), part, {.token_scores = true});
    ASSERT_EQ(shared.size(), sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(shared[i].text, own[i].text);
      texts.push_back(shared[i].text);
    }
  }
  EXPECT_TRUE(std::equal(texts.begin(), texts.begin() + 4, texts.begin() + 4));

  GivenTarget given{tokenizer().encode("And"), tokenizer().encode("de la")};
  const auto eos = static_cast<std::int32_t>(tokenizer().vocabulary().eos);
  given.source.push_back(eos);
  given.target.push_back(eos);
  const Likelihood expected = likelihoods(inference, {given}).front();
  double sum = 0;
  for (const float one : expected.log_p) sum += one;
  const auto count = expected.log_p.size();
  EXPECT_EQ(texts[0], fmt::format("{:.6f}\t{:.6f}\t{}\t0\t{:.6f}", sum, sum / static_cast<double>(count), count,
                                  fmt::join(expected.log_p, " ")));
  const auto short_text = score_lines(test::world(), inference, tokenizer(), {.lines = {"And\tde la"}}, {});
  EXPECT_EQ(short_text.front().text, texts[0].substr(0, texts[0].rfind('\t')));
  EXPECT_NEAR(short_text.front().log_probability, sum, 1e-6);
}

TEST(ScoreLines, OfALanguageModelTheContinuationCounts) {
  const data::Tokenizer& pieces = test::small_tokenizer(spec::TokenLayout::llama);
  test::BoundModel bound(shape_for(pieces, spec::ModelType::decoder), at::kFloat, 2);
  model::Inference inference(*bound.model);
  const auto score = [&](const std::string& context, const std::string& continuation) {
    return score_lines(test::world(), inference, pieces, {.lines = {context}, .targets = {continuation}}, {})
        .front()
        .log_probability;
  };
  // Together they are the whole text, and a blank between belongs to the continuation.
  EXPECT_NEAR(score("", "And the king"), score("", "And the") + score("And the", " king"), 1e-4);
  EXPECT_NEAR(score("And the ", "king"), score("And the", " king"), 1e-5);
  EXPECT_LT(score("And the", " king"), -0.1);
  EXPECT_EQ(score("And the", ""), 0);
}

TEST(ScoreLines, WithoutBosAContextIsReadAsItIs) {
  const data::Tokenizer pieces =
      data::Tokenizer::load(test::small_tokenizer(spec::TokenLayout::llama).model_bytes(),
                            {spec::TokenLayout::llama, 64, spec::TokenIds{.eos = 2, .start = 5}});
  spec::Architecture shape = shape_for(pieces, spec::ModelType::decoder);
  shape.vocabulary = pieces.vocabulary();
  test::BoundModel bound(shape, at::kFloat, 2);
  model::Inference inference(*bound.model);
  const auto expect = [&](const char* context, const GivenTarget& given) {
    const auto got = score_lines(test::world(), inference, pieces, {.lines = {context}, .targets = {" king"}}, {});
    const std::vector<float> log_p = likelihoods(inference, {given}).front().log_p;
    EXPECT_NEAR(got.front().log_probability, std::accumulate(log_p.begin(), log_p.end(), 0.0), 1e-5);
  };
  const std::vector<std::int32_t> context = pieces.encode("And the"), whole = pieces.encode("And the king");
  expect("And the", {context, {whole.begin() + std::ssize(context), whole.end()}});
  expect("", {{5}, pieces.encode(" king")});
  const auto found = translate_lines(test::world(), inference, pieces, {{"And the"}}, {.search = {.max_length = 4}});
  EXPECT_EQ(
      found.front().text,
      pieces.decode(
          search(inference, std::vector<Source>{{.ids = context, .line = 0}}, {.max_length = 4}).front().front().ids));
}

TEST(ScoreLines, NamesALineThatCannotBeScored) {
  test::BoundModel bound(shape_for(tokenizer()));
  model::Inference inference(*bound.model);
  const auto refuses = [&](const TextPart& part, const char* words) {
    EXPECT_THAT(test::refusal(Fault::data, [&] { (void)score_lines(test::world(), inference, tokenizer(), part, {}); }),
                testing::HasSubstr(words));
  };
  refuses({.lines = {"a\tb", "a b"}, .first = 3}, "line 5 of the text to score: expected a source and a target");
  refuses({.lines = {"a\tb\tc"}}, "2 tabs");
  std::string long_text;
  for (int i = 0; i < 45; ++i) long_text += "q";
  refuses({.lines = {"a"}, .targets = {long_text}}, "line 1 of the text to score: expected at most 40 pieces");
  refuses({.lines = {long_text}, .targets = {"a"}}, "line 1 of the text to score: expected at most 40 pieces");
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
      translate_lines(test::world(), inference, with_bytes, {{"And", "the", "of"}}, {{.max_length = 2}});
  for (const Translation& translation : translations) EXPECT_EQ(translation.text, "  ");
}

}  // namespace
}  // namespace argosy::decode
