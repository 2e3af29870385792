#include <gmock/gmock.h>

#include <array>
#include <boost/json.hpp>

#include "data/pipeline.hpp"
#include "data/tokenizer_files.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"
#include "unit/data/transforms_support.hpp"

/// Models that have a tokenizer for each language.
namespace argosy::data {
namespace {

using testing::HasSubstr;

/// Trained on one language each, with pieces of the same name under other ids.
const std::string& model_of(std::string_view language) {
  const auto trained = [](std::int64_t pieces, const std::vector<std::string>& lines,
                          const std::vector<std::string>& symbols) {
    return train_tokenizer({.vocab_size = pieces}, lines, spec::TokenLayout::marian, symbols);
  };
  static const std::string english = trained(300, test::verses(400).english, {"<mask>", "<sep>", "<to_es>"}),
                           spanish = trained(240, test::verses(400).spanish, {"<a>", "<mask>", "<sep>", "<to_es>"});
  return language == "en" ? english : spanish;
}

const Tokenizer& of_both() {
  static const Tokenizer tokenizer = Tokenizer::by_language({{"en", model_of("en")}, {"es", model_of("es")}}, {});
  return tokenizer;
}

Tokenizer direction(const char* source, const char* target) {
  return of_both().of(std::array<std::string, 2>{source, target});
}

const Tokenizer& part(const char* language) { return of_both().parts().at(language); }

TEST(LanguageTokenizers, HaveOneVocabularyAndPiecesOfTheirOwn) {
  const Tokenizer &english = part("en"), &spanish = part("es");
  EXPECT_TRUE(of_both().is_by_language());
  EXPECT_EQ(of_both().vocabulary().pieces, 300);
  EXPECT_EQ(spanish.vocabulary(), english.vocabulary());
  EXPECT_EQ(spanish.spelled_ids(), 240);
  EXPECT_EQ(spanish.piece(250), "<unused_10>");
  const Tokenizer alone = Tokenizer::load(model_of("es"), {});
  EXPECT_LT(alone.vocabulary().rows, spanish.vocabulary().rows);
  EXPECT_EQ(spanish.digest(), alone.digest()) << "the digest is that of the file";
  const test::Verses text = test::verses(3);
  const Tokenizer pair = direction("en", "es"), same = direction("es", "es");
  EXPECT_TRUE(pair.is_by_side());
  EXPECT_TRUE(same.parts().empty());
  EXPECT_EQ(same.digest(), alone.digest());
  EXPECT_NE(direction("es", "en").digest(), pair.digest());
  EXPECT_EQ(pair.encode(text.english[0], Side::source), english.encode(text.english[0]));
  EXPECT_EQ(pair.encode(text.spanish[0]), alone.encode(text.spanish[0]));
  EXPECT_NE(pair.encode(text.english[0], Side::source), pair.encode(text.english[0], Side::target));
  EXPECT_EQ(pair.decode(alone.encode(text.spanish[0])), text.spanish[0]);
  EXPECT_THAT(test::refusal(Fault::config, [] { (void)direction("en", "fr"); }),
              HasSubstr("a tokenizer of the language fr"));
  EXPECT_THAT(test::refusal(Fault::config, [] { (void)of_both().of({}); }), HasSubstr("the languages of the text"));
  EXPECT_EQ(boost::json::serialize(digests_of(of_both())),
            fmt::format(R"({{"en":"{}","es":"{}"}})", english.digest().hex(), spanish.digest().hex()));
  EXPECT_EQ(digests_of(alone), boost::json::value(alone.digest().hex()));
}

TEST(LanguageTokenizers, AreOneFileInACheckpoint) {
  for (const Tokenizer& several : {of_both(), direction("en", "es")}) {
    const Tokenizer again = Tokenizer::load(several.model_bytes(), {});
    EXPECT_EQ(again.digest(), several.digest());
    EXPECT_EQ(again.vocabulary(), several.vocabulary());
    EXPECT_EQ(again.model_bytes(), several.model_bytes());
    EXPECT_EQ(again.is_by_language(), several.is_by_language());
    EXPECT_EQ(again.parts().size(), 2U);
    for (const auto& [part, own] : again.parts()) EXPECT_EQ(own.digest(), several.parts().at(part).digest());
  }
  const std::string bytes = of_both().model_bytes();
  const auto refused = [](const std::string& damaged) {
    return test::refusal(Fault::data, [&] { (void)Tokenizer::load(damaged, {}, "x.model"); });
  };
  EXPECT_THAT(refused(bytes.substr(0, bytes.size() - 1)), HasSubstr("x.model"));
  EXPECT_THAT(refused(bytes + "x"), HasSubstr("got 1 more"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":2,\"by\":\"side\",\"sizes\":{}}\n"), HasSubstr("newer Argosy"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":1,\"by\":\"both\",\"sizes\":{}}\n"), HasSubstr("by language or by side"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":1,\"by\":\"side\",\"sizes\":{\"source\":0}}\n"), HasSubstr("a source"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":1"), HasSubstr("by language or by side"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":1,\"by\":\"language\",\"sizes\":{\"en\":-1}}\n"), HasSubstr("-1 bytes"));
  EXPECT_THAT(refused("{\"argosy_tokenizers\":1,\"by\":\"language\",\"sizes\":{\"en\":3}}\nabc"),
              HasSubstr("x.model (en)"));
}

TEST(LanguageTokenizers, AreReadFromTheFilesOfTheLanguages) {
  const test::TempFolder folder;
  DataConfig config;
  config.tokenizer = (folder / "{language}/{language}.model").string();
  config.corpora = {{.name = "a", .languages = {"en", "es"}}, {.name = "b", .languages = {"es", "en"}}};
  const Files files = Files::system();
  files.make_folders(folder / "en");
  files.make_folders(folder / "es");
  files.write_atomically(folder / "en/en.model", model_of("en"));
  EXPECT_FALSE(has_tokenizer(files, config));
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)read_tokenizer(files, config, {}); }), HasSubstr("es/es.model"));
  files.write_atomically(folder / "es/es.model", model_of("es"));
  EXPECT_TRUE(has_tokenizer(files, config));
  EXPECT_EQ(read_tokenizer(files, config, {}).digest(), of_both().digest());
  config.tokenizer = (folder / "es/es.model").string();
  EXPECT_EQ(read_tokenizer(files, config, {}).digest(), part("es").digest());
}

/// A transform of a direction that reads English and writes Spanish.
template <class Config>
std::unique_ptr<const Transform> made(const Config& config) {
  static const Tokenizer tokenizer = direction("en", "es");
  return config.make({.tokenizer = tokenizer, .languages = {}});
}

std::int32_t id_in(const Tokenizer& tokenizer, const char* piece) {
  return narrow<std::int32_t>(tokenizer.id_of(piece).value());
}

TEST(LanguageTokenizers, GiveEachSideItsOwnPieces) {
  const Tokenizer &english = part("en"), &spanish = part("es");
  ASSERT_NE(id_in(english, "<mask>"), id_in(spanish, "<mask>"));
  Example example = ids_of({5}, {5});
  RandomStream random(1, 1);
  EXPECT_TRUE(made(Prefix{.source = {"<to_es>"}, .target = {"<sep>"}})->apply(example, nullptr));
  EXPECT_EQ(example.source, (std::vector<std::int32_t>{id_in(english, "<to_es>"), 5}));
  EXPECT_EQ(example.target, (std::vector<std::int32_t>{id_in(spanish, "<sep>"), 5}));

  example = ids_of({}, {});
  example.before = {{"In the beginning", "En el principio"}};
  EXPECT_TRUE(made(Context{.source_previous = 1, .target_previous = 1})->apply(example, nullptr));
  std::vector<std::int32_t> source = english.encode("In the beginning"), target = spanish.encode("En el principio");
  source.push_back(id_in(english, "<sep>"));
  target.push_back(id_in(spanish, "<sep>"));
  EXPECT_EQ(std::tie(example.source, example.target), std::tie(source, target));

  const std::vector<std::int32_t> many(400, 7);
  example = ids_of(many, many);
  EXPECT_TRUE(made(TokenMask{.temperature = 1e-3, .sides = Sides::both})->apply(example, &random));
  EXPECT_THAT(example.source, testing::Contains(id_in(english, "<mask>")));
  EXPECT_THAT(example.source, testing::Not(testing::Contains(id_in(spanish, "<mask>"))));
  EXPECT_THAT(example.target, testing::Contains(id_in(spanish, "<mask>")));

  example = ids_of(many, many);
  EXPECT_TRUE(made(Switchout{.temperature = 1e-3, .sides = Sides::both})->apply(example, &random));
  EXPECT_THAT(example.source, testing::Contains(testing::Ge(240)));
  EXPECT_THAT(example.target, testing::Each(testing::Lt(240)));
  EXPECT_THAT(example.target, testing::Contains(testing::Ne(7)));

  const test::Verses text = test::verses(1);
  example = pair_of(text.english[0], text.spanish[0]);
  EXPECT_TRUE(made(Subword{.alpha = 0.3})->apply(example, &random));
  EXPECT_EQ(english.decode(example.source), text.english[0]);
  EXPECT_EQ(spanish.decode(example.target), text.spanish[0]);
  EXPECT_NE(example.source, english.encode(text.english[0]));
  EXPECT_NE(example.target, spanish.encode(text.spanish[0]));

  EXPECT_THAT(test::refusal(Fault::config, [] { (void)made(Denoise{.mask = 0.3}); }), HasSubstr("tasks.denoise"));
}

TEST(LanguageTokenizers, ArePartOfAPipeline) {
  CorpusConfig corpus{.name = "c", .languages = {"en", "es"}, .source = "s", .target = config::StringOrList{"t"}};
  corpus.source_prefix = {"<to_{to}>"};
  const Pipeline pipeline{corpus, of_both()};
  EXPECT_EQ(pipeline.tokenizer().digest(), direction("en", "es").digest());
  Example example = pair_of("In the beginning", "En el principio");
  const Pipeline::Plan plan = pipeline.plan(example);
  EXPECT_EQ(example.source.front(), id_in(part("en"), "<to_es>"));
  EXPECT_EQ(example.target, part("es").encode("En el principio"));
  EXPECT_EQ(plan.longest.target, example.target.size());
}

}  // namespace
}  // namespace argosy::data
