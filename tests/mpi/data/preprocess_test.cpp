#include "data/preprocess.hpp"

#include "data/tokenizer_files.hpp"
#include "data/tokenizer_training.hpp"
#include "data/verify.hpp"
#include "preprocess_case.hpp"
#include "support/on_root.hpp"

namespace argosy::data {
namespace {

using test::world;
using testing::AllOf, testing::HasSubstr;

TEST_F(Preprocess, WritesShardsThatReadBackAsTheText) {
  const PreprocessReport report = run();
  EXPECT_EQ(std::tuple(report.tokenizer_trained, report.shards_written, report.shards_kept), std::tuple(true, 5, 0));
  const Tokenizer pieces = read_tokenizer();
  EXPECT_EQ(pieces.vocabulary().pieces, 300);
  const TokenShards shards = open_shards(pieces);
  const test::Verses text = test::verses(300);
  ASSERT_EQ(shards.size(), 300U);
  std::int64_t src_tokens = 0, tgt_tokens = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Example example;
    shards.read(i, std::nullopt, example);
    EXPECT_EQ(example.source.back(), 0);
    EXPECT_EQ(pieces.decode(example.source), text.english[i]);
    src_tokens += std::ssize(example.source);
    EXPECT_EQ(example.target.back(), 0);
    EXPECT_EQ(pieces.decode(example.target), text.spanish[i]);
    tgt_tokens += std::ssize(example.target);
  }
  const ShardIndex::Corpus& corpus = report.index.corpora.at(0);
  EXPECT_EQ(std::tuple(corpus.src_tokens, corpus.tgt_tokens, corpus.unknown), std::tuple(src_tokens, tgt_tokens, 0));
  EXPECT_EQ(corpus.languages, (std::vector<std::string>{"en", "es"}));
}

TEST_F(Preprocess, WritesTheSameBytesOnAnyNumberOfRanks) {
  (void)run();
  const auto together = contents(folder_ / "shards");
  // The same work again by each rank alone, in a world of its own.
  const comm::Communicator alone = world().split(world().rank(), 0);
  PreprocessSettings mine = settings_;
  const std::string suffix = std::to_string(world().rank());
  mine.data.shards = folder_ / ("shards" + suffix);
  mine.data.workers = 1 + world().rank();
  mine.cache = folder_ / ("cache" + suffix);
  mine.data.tokenizer = folder_ / ("model" + suffix + "/spm.model");
  (void)run_preprocess(alone, files_, Log{1, LogLevel::error}, mine);
  EXPECT_TRUE(contents(mine.data.shards) == together);
  EXPECT_EQ(Files::system().read_text(mine.data.tokenizer), model_bytes());
}

TEST_F(Preprocess, KeepsWhatIsThereAndMakesWhatIsMissing) {
  (void)run();
  const auto finished = contents(folder_ / "shards");
  PreprocessReport again = run();
  EXPECT_EQ(again.shards_kept, 5);
  EXPECT_FALSE(again.tokenizer_trained);
  // As if killed: no index, one shard missing, one cut, one with a wrong byte.
  test::on_root([&] {
    int number = 0;
    for (const auto& [name, bytes] : finished) {
      const Path path = folder_ / "shards" / name;
      if (name == "index.json" || number == 0) Files::system().remove(path);
      if (name == "index.json") continue;
      if (number == 1) Files::system().write_atomically(path, bytes.substr(0, bytes.size() / 2));
      if (number == 2)
        Files::system().write_atomically(path,
                                         bytes.substr(0, bytes.size() - 20) + 'x' + bytes.substr(bytes.size() - 19));
      ++number;
    }
    Files::system().write_atomically(folder_ / "shards/verses-00000000-00000.tokens",
                                     std::string_view{"of another time"});
  });
  again = run();
  EXPECT_EQ(std::tuple(again.shards_written, again.shards_kept), std::tuple(3, 2));
  EXPECT_TRUE(contents(folder_ / "shards") == finished);
}

TEST_F(Preprocess, LosesNothingWhenWritingFails) {
  (void)run();
  const auto finished = contents(folder_ / "shards");
  leave_out_long_lines();
  os_.fail(test::Call::fsync, os_.count(test::Call::fsync), ENOSPC, true);
  EXPECT_THAT(refusal(Fault::io), HasSubstr("shards"));
  EXPECT_TRUE(contents(folder_ / "shards")["index.json"] == finished.at("index.json"));
}

TEST_F(Preprocess, RefusesASecondJobInTheFolderAndChangesNothing) {
  (void)run();
  const auto finished = contents(folder_ / "shards"), model = contents(folder_ / "model");
  const Clock clock;
  std::optional<Lease> other;
  if (world().rank() == 0) other.emplace(Files::system(), clock, folder_ / "shards", "folder of token shards");
  leave_out_long_lines();
  EXPECT_THAT(refusal(Fault::usage), AllOf(HasSubstr("is in use by a job on "), HasSubstr("process ")));
  EXPECT_TRUE(contents(folder_ / "shards") == finished);
  EXPECT_TRUE(contents(folder_ / "model") == model);
  other.reset();
  world().barrier("released");
  EXPECT_EQ(run().shards_written, 5);
}

TEST_F(Preprocess, AJobThatIsHeldForDeadCommitsNothing) {
  (void)run();
  const auto finished = contents(folder_ / "shards");
  class TakingOver : public Os {  // another job, while shards are written
   public:
    explicit TakingOver(Path lock) : lock_(std::move(lock)) {}
    int fsync(int fd) override {
      if (taken_ == 0 && ++syncs_ > 4) {
        taken_ = 1;
        Files::system().write_atomically(lock_, std::string_view{"{}"});
      }
      return Os::fsync(fd);
    }

   private:
    Path lock_;
    int syncs_ = 0, taken_ = 0;
  } os{folder_ / "shards/run.lock.9"};
  if (world().rank() == 0) files_ = Files{os};
  leave_out_long_lines();
  EXPECT_THAT(refusal(Fault::usage), HasSubstr("taken it over"));
  const auto left = contents(folder_ / "shards");
  for (const auto& [name, bytes] : finished) EXPECT_TRUE(left.contains(name) && left.at(name) == bytes) << name;
}

TEST_F(Preprocess, SweepsWhatKilledOnesLeftAndNothingElse) {
  (void)run();
  const std::string hex = ".tmp-0123456789abcdef";
  const std::vector<std::string> dead{"index.json" + hex, "verses-01234567-00000.tokens" + hex};
  const std::vector<std::string> others{"index.json.tmp-01", "mine.tokens", "mine.tokens" + hex, "mine-1-00000.tokens",
                                        "notes" + hex};
  test::on_root([&] {
    for (const auto& names : {dead, others})
      for (const std::string& name : names)
        Files::system().write_atomically(folder_ / "shards" / name, std::string_view{"x"});
    Files::system().make_folders(folder_ / "shards" / ("verses-89abcdef-00000.tokens" + hex));
  });
  EXPECT_EQ(run().shards_kept, 5);
  world().barrier("swept");
  for (const std::string& name : dead) EXPECT_FALSE(Files::system().exists(folder_ / "shards" / name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(Files::system().exists(folder_ / "shards" / name)) << name;
}

TEST_F(Preprocess, MaxLengthLeavesLongPairsOut) {
  const std::uint64_t all = run().index.corpora.at(0).examples();
  settings_.data.corpora[0].transforms.push_back({MaxLength{.source = 40, .target = 50}});
  const ShardIndex::Corpus corpus = run().index.corpora.at(0);
  EXPECT_GT(corpus.dropped.at("max_length"), 0);
  EXPECT_EQ(corpus.examples() + static_cast<std::uint64_t>(corpus.dropped.at("max_length")), all);
  const Tokenizer pieces = read_tokenizer();
  const TokenShards shards = open_shards(pieces);
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    EXPECT_LE(shards.lengths(i).source, 41U);
    EXPECT_LE(shards.lengths(i).target, 51U);
  }
  // The shards of the longer text are gone with the index that named them.
  EXPECT_EQ(contents(folder_ / "shards").size(), 6U);
}

TEST_F(Preprocess, VerifyReadsAllShardsAndNamesADamagedOne) {
  const ShardIndex index = run().index;
  const Tokenizer pieces = read_tokenizer();
  const auto verify = [&] {
    return verify_shards(world(), files_, Log{world().rank(), LogLevel::error}, settings_.data, pieces);
  };
  const VerifyReport report = verify();
  EXPECT_EQ(std::pair(report.shards, report.examples), std::pair(std::int64_t{5}, std::int64_t{300}));
  const Path path = folder_ / "shards" / index.corpora[0].shards[3].file;
  EXPECT_GT(report.bytes, static_cast<std::int64_t>(files_.read_text(path).size()));
  test::on_root([&] {
    std::string bytes = files_.read_text(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    files_.write_atomically(path, bytes);
  });
  EXPECT_THAT(test::refusal(Fault::corrupt, verify), testing::HasSubstr(path.filename().string()));
}

/// Ids stay as text, and training makes of them what preprocess would have.
TEST_F(Preprocess, OnlineStoresTextThatReadsAsTheSameIds) {
  const Digest prepared = run().index.recipe;
  const Tokenizer pieces = read_tokenizer();
  const auto all = [&] {
    const TokenShards shards = open_shards(pieces);
    std::vector<std::vector<std::int32_t>> ids;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      Example example;
      EXPECT_FALSE(shards.read(i, Draw{1, 2, i}, example));
      EXPECT_EQ(shards.lengths(i).source, example.source.size());
      ids.push_back(example.source);
      ids.push_back(example.target);
    }
    EXPECT_TRUE(shards.is_exact());
    return ids;
  };
  const auto wanted = all();
  const auto is_done = [&] {
    return is_preprocessed(world(), files_, Log{world().rank(), LogLevel::error}, settings_);
  };
  EXPECT_TRUE(is_done());
  settings_.data.mode = DataMode::online;
  EXPECT_FALSE(is_done());
  EXPECT_THROW((void)open_shards(pieces), Error);
  EXPECT_NE(run().index.recipe, prepared);
  EXPECT_TRUE(is_done());
  EXPECT_EQ(all(), wanted);
}

TEST_F(Preprocess, LeavesOutPairsWithAnEmptySide) {
  settings_.data.corpora[0].source = folder_.write("a", "In the beginning\n\nand the earth\n");
  settings_.data.corpora[0].target = folder_.write("b", "EN el principio\ny la tierra\n");
  EXPECT_THAT(refusal(Fault::data), HasSubstr("3 and 2"));
  settings_.data.corpora[0].target = folder_.write("b", "EN el principio\ny la tierra\n \n");
  settings_.data.tokenizer_training->vocab_size = 24;
  const ShardIndex::Corpus corpus = run().index.corpora.at(0);
  EXPECT_EQ(corpus.examples(), 1U);
  EXPECT_EQ(corpus.dropped.at("empty"), 2);
}

TEST_F(Preprocess, RefusesBadTextOnEveryRank) {
  settings_.data.corpora[0].source = folder_.write("empty", "");
  EXPECT_THAT(refusal(Fault::data), HasSubstr("empty"));
  settings_.data.corpora[0].source = folder_ / "none";
  EXPECT_THAT(refusal(Fault::data), HasSubstr("none"));
  const test::Verses text = test::verses(300);
  settings_.data.corpora[0].source = folder_.write("blank", std::string(300, '\n'));
  EXPECT_THAT(refusal(Fault::data), HasSubstr("blank: expected a text with words, got 300 lines without any"));
  settings_.data.corpora[0].source = folder_.write("bad", test::joined(text.english).replace(70, 1, "\xff"));
  EXPECT_THAT(refusal(Fault::data), HasSubstr("bad line 2, byte 70"));
  settings_.data.invalid_utf8 = InvalidUtf8::replace;
  EXPECT_EQ(run().index.corpora.at(0).examples(), 300U);
}

TEST_F(Preprocess, RefusesACorpusWithoutTokens) {
  CorpusConfig& corpus = settings_.data.corpora[0];
  corpus.target.reset();
  corpus.source = folder_.write("empty.jsonl", "{\"source\": \"\", \"target\": \"\"}\n");
  EXPECT_THAT(refusal(Fault::data), HasSubstr("data.tokenizer_training: expected text in the corpora"));
  settings_.data.tokenizer =
      folder_.write("given.model", test::small_tokenizer(spec::TokenLayout::marian).model_bytes());
  settings_.data.tokenizer_training.reset();
  EXPECT_THAT(refusal(Fault::data), HasSubstr("corpus verses has no tokens: all of its examples are empty (1)"));
}

TEST_F(Preprocess, UsesAGivenTokenizerAndNeverOverwritesAForeignOne) {
  settings_.data.tokenizer =
      folder_.write("given.model", test::small_tokenizer(spec::TokenLayout::marian).model_bytes());
  EXPECT_THAT(refusal(Fault::config), HasSubstr("preprocess did not train it"));
  settings_.data.tokenizer_training.reset();
  EXPECT_FALSE(run().tokenizer_trained);
  settings_.data.tokenizer = folder_ / "none.model";
  EXPECT_THAT(refusal(Fault::data), HasSubstr("tokenizer_training"));
}

TEST_F(Preprocess, ReplacesATokenizerOnlyWhenAsked) {
  (void)run();
  const auto tokenizer = contents(folder_ / "model"), shards = contents(folder_ / "shards");
  const auto refused = [&] {
    EXPECT_THAT(refusal(Fault::config), AllOf(HasSubstr("spm.model"), HasSubstr("--retrain-tokenizer")));
    EXPECT_TRUE(contents(folder_ / "model") == tokenizer);
    EXPECT_TRUE(contents(folder_ / "shards") == shards);
  };
  settings_.data.tokenizer_training->vocab_size = 310;
  refused();
  settings_.data.tokenizer_training->vocab_size = 300;
  const CorpusConfig corpus = settings_.data.corpora[0];
  settings_.data.corpora.push_back(corpus);
  settings_.data.corpora[1].name = "more";
  settings_.data.corpora[1].source = folder_.write("more.en", test::joined(test::verses(20).english));
  settings_.data.corpora[1].target = folder_.write("more.es", test::joined(test::verses(20).spanish));
  refused();
  settings_.retrain_tokenizer = true;
  EXPECT_TRUE(run().tokenizer_trained);
  EXPECT_FALSE(contents(folder_ / "model") == tokenizer);
  // With the flag once, without it ever after.
  settings_.retrain_tokenizer = false;
  EXPECT_EQ(run().shards_written, 0);
  settings_.data.corpora = {corpus};
  settings_.data.tokenizer_training.reset();
  EXPECT_FALSE(run().tokenizer_trained);
}

TEST_F(Preprocess, TrainsATokenizerForEachLanguageAndKeepsThoseThatAreThere) {
  CorpusConfig& corpus = settings_.data.corpora[0];
  settings_.data.tokenizer = folder_ / "model/{language}.model";
  corpus.languages = {"en", "es"};
  const auto file = [&](const char* language) {
    return Files::system().read_text(folder_ / fmt::format("model/{}.model", language));
  };
  const test::Verses text = test::verses(300);
  const auto trained_on = [&](const std::vector<std::string>& lines) {
    return train_tokenizer(*settings_.data.tokenizer_training, lines, spec::TokenLayout::marian);
  };
  const std::int64_t written = run().shards_written;
  EXPECT_EQ(file("en"), trained_on(text.english));
  EXPECT_EQ(file("es"), trained_on(text.spanish));
  const Tokenizer tokenizers = data::read_tokenizer(files_, settings_.data, {});
  const TokenShards shards = open_shards(tokenizers);
  Example example;
  shards.read(0, std::nullopt, example);
  EXPECT_EQ(tokenizers.parts().at("en").decode(example.source), text.english[0]);
  EXPECT_EQ(tokenizers.parts().at("es").decode(example.target), text.spanish[0]);
  EXPECT_EQ(run().shards_kept, written);
  // A language more, with other English text.
  settings_.data.corpora.push_back(corpus);
  CorpusConfig& more = settings_.data.corpora[1];
  more.name = "more";
  more.languages = {"xx", "en"};
  more.source = folder_.write("more.xx", test::joined(text.english));
  more.target = folder_.write("more.en", test::joined(text.spanish));
  const std::string english = file("en");
  world().barrier("read");
  const PreprocessReport added = run();
  EXPECT_TRUE(added.shards_kept == written && added.shards_written > 0);
  EXPECT_EQ(file("en"), english);
  EXPECT_EQ(file("xx"), english) << "of the same text";
  world().barrier("read");
  settings_.retrain_tokenizer = true;
  EXPECT_TRUE(run().tokenizer_trained);
  EXPECT_NE(file("en"), english);
}

TEST_F(Preprocess, OfTwoThatMakeOneTokenizerTheFirstDecides) {
  (void)run();
  const std::string first = model_bytes(), recipe = Files::system().read_text(settings_.data.tokenizer + ".recipe");
  world().barrier("read");
  test::on_root([&] { Files::system().remove(settings_.data.tokenizer); });  // the other is about to write it
  settings_.data.tokenizer_training->vocab_size = 310;
  EXPECT_THAT(refusal(Fault::config), HasSubstr("--retrain-tokenizer"));
  EXPECT_FALSE(Files::system().exists(settings_.data.tokenizer));
  EXPECT_EQ(Files::system().read_text(settings_.data.tokenizer + ".recipe"), recipe);
  world().barrier("looked");
  settings_.data.tokenizer_training->vocab_size = 300;
  (void)run();
  EXPECT_EQ(model_bytes(), first);
}

TEST_F(Preprocess, WorksWhereNothingCanBeKept) {
  folder_.write("cache", "no folder");
  EXPECT_TRUE(run().tokenizer_trained);
}

TEST_F(Preprocess, BelievesNoDamagedRecipeAndNoDamagedCache) {
  (void)run();
  const std::string first = model_bytes();
  const Path recipe = settings_.data.tokenizer + ".recipe";
  const std::string whole = Files::system().read_text(recipe);
  world().barrier("read");
  for (std::size_t at = 0; at + 1 < whole.size(); at += 7) {  // the last byte is a line feed
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << at % 7);
    folder_.write("model/spm.model.recipe", bytes);
    EXPECT_THAT(refusal(Fault::corrupt), HasSubstr("spm.model.recipe")) << bytes;
  }
  // A recipe of the first versions, which has no digest of itself.
  folder_.write("model/spm.model.recipe", whole.substr(0, whole.find(",\"check\"")) + "}\n");
  EXPECT_FALSE(run().tokenizer_trained);
  test::on_root([&] {
    Files::system().remove(settings_.data.tokenizer);
    const std::string name = Files::system().list(folder_ / "cache/tokenizers").at(0);
    std::string bytes = first;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    Files::system().write_atomically(folder_ / "cache/tokenizers" / name, bytes);
  });
  EXPECT_TRUE(run().tokenizer_trained);
  EXPECT_EQ(model_bytes(), first);
}

TEST_F(Preprocess, TrainsAgainForOtherSettingsAndFindsOldOnesInTheCache) {
  settings_.retrain_tokenizer = true;
  EXPECT_TRUE(run().tokenizer_trained);
  const std::string first = model_bytes();
  world().barrier("read");
  settings_.data.tokenizer_training->vocab_size = 310;
  EXPECT_TRUE(run().tokenizer_trained);
  settings_.data.tokenizer_training->vocab_size = 300;
  EXPECT_FALSE(run().tokenizer_trained);
  EXPECT_EQ(model_bytes(), first);
  world().barrier("read");
  settings_.data.tokenizer_training->sample_lines = 200;
  EXPECT_TRUE(run().tokenizer_trained);
  EXPECT_NE(model_bytes(), first);
  settings_.data.tokenizer_training->sample_lines = 60000;
  EXPECT_FALSE(run().tokenizer_trained);
  // The model is gone, its recipe is not: as after a kill between the two.
  test::on_root([&] { Files::system().remove(settings_.data.tokenizer); });
  EXPECT_FALSE(run().tokenizer_trained);
  EXPECT_EQ(model_bytes(), first);
}

TEST_F(Preprocess, ReportsTokensOfTheTextsThatShardsWereMadeFrom) {
  const ShardIndex index = run().index;
  const auto corpora =
      count_corpora(world(), files_, Log{1, LogLevel::error}, settings_.data, {.cache = settings_.cache});
  EXPECT_EQ(token_figures(index, corpora).at("verses").at("tgt_tokens"), index.corpora[0].tgt_tokens);
  std::swap(settings_.data.corpora[0].source, *settings_.data.corpora[0].target);
  EXPECT_TRUE(token_figures(index, count_corpora(world(), files_, Log{1, LogLevel::error}, settings_.data,
                                                 {.cache = settings_.cache}))
                  .empty());
}

}  // namespace
}  // namespace argosy::data
