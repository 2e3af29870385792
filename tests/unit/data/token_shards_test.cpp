#include "data/token_shards.hpp"

#include <gmock/gmock.h>

#include "core/random.hpp"
#include "data/shard_writer.hpp"
#include "support/refusal.hpp"
#include "support/small_text.hpp"
#include "support/token_shards.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::HasSubstr;

const Digest tokenizer_digest = digest_of("tokenizer"), recipe_digest = digest_of("recipe");

std::string one_pair() {
  ShardWriter writer{2, 2};
  writer.add(std::vector<std::int32_t>{5, 0}, std::vector<std::int32_t>{7, 8, 0}, true);
  return writer.bytes(tokenizer_digest, recipe_digest);
}

/// The bytes of FORMAT.md's example, digests left out.
TEST(TokenShard, HasTheBytesOfTheFormatPage) {
  const std::string file = one_pair();
  const auto bytes = [&](std::size_t from, std::size_t size) { return file.substr(from, size); };
  using namespace std::string_literals;
  EXPECT_EQ(bytes(0, 16), "ARGTOKEN\4\0\0\0\2\0\0\0"s);
  EXPECT_EQ(bytes(16, 16), "\2\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(32, 16), "\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(0x100, 8), "\1\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(96, 24), "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(120, 12), "\2\0\0\0\3\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(132, 108), std::string(108, '\0'));
  EXPECT_EQ(bytes(0x108, 8), "\2\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(0x110, 8), "\0\0\0\0\2\0\0\0"s);
  EXPECT_EQ(bytes(0x118, 8), "\5\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(0x120, 8), "\3\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes(0x128, 8), "\0\0\0\0\3\0\0\0"s);
  EXPECT_EQ(bytes(0x130, 8), "\7\0\10\0\0\0\0\0"s);
  EXPECT_EQ(bytes(0x138, 8), "{}\0\0\0\0\0\0"s);
  const std::uint64_t block = hash64(std::string_view{file}.substr(0x100, 0x40));
  EXPECT_EQ(bytes(0x140, 8), (std::string{reinterpret_cast<const char*>(&block), 8}));
  EXPECT_EQ(file.size(), 0x148U);
  EXPECT_EQ(bytes(48, 16), std::string(reinterpret_cast<const char*>(tokenizer_digest.bytes.data()), 16));
}

class WidthAndSides : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {};

TEST_P(WidthAndSides, ReadsBackWhatWasWritten) {
  const auto [id_width, sides] = GetParam();
  ShardWriter writer{id_width, sides};
  std::vector<std::vector<std::int32_t>> sources, targets;
  for (std::int32_t i = 0; i < 21; ++i) {
    sources.emplace_back(static_cast<std::size_t>(i % 5 + 1), i);
    targets.emplace_back(static_cast<std::size_t>(i % 3 + 1), id_width == 2 ? 65535 - i : 70000 + i);
    writer.add(sources.back(), targets.back(), i % 4 == 0);
  }
  const test::TempFolder folder;
  const Files files = Files::system();
  files.write_atomically(folder / "x.tokens", writer.bytes(tokenizer_digest, recipe_digest, R"({"unknown": 3})"));
  const TokenShard shard = TokenShard::open(files, folder / "x.tokens");
  shard.verify();
  EXPECT_EQ(std::tuple(shard.size(), shard.has_source(), shard.note()),
            std::tuple(21U, sides == 2, R"({"unknown": 3})"));
  EXPECT_EQ(shard.tokenizer_digest(), tokenizer_digest);
  EXPECT_EQ(shard.recipe_digest(), recipe_digest);
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < 21; ++i) {
    shard.target(i, ids);
    EXPECT_EQ(ids, targets[i]);
    EXPECT_EQ(shard.lengths(i), (Lengths{static_cast<std::uint32_t>(sides == 2 ? sources[i].size() : 0),
                                         static_cast<std::uint32_t>(ids.size())}));
    EXPECT_EQ(shard.starts_document(i), i % 4 == 0);
    if (sides == 2) {
      shard.source(i, ids);
      EXPECT_EQ(ids, sources[i]);
    }
  }
}

TEST(TokenShard, KeepsTextAndWhatBearsLoss) {
  ShardWriter writer{1, 2};
  Example first, second, third;
  first.source_text = "ab", first.target_text = "cde";
  second.source_text = "f", second.target_text = "ghijklmno", second.loss = std::vector<bool>(9, false);
  second.loss[3] = second.loss[8] = true;
  third.source_text = "p", third.target_text = "q";
  writer.add(first, {5, 9}, true);
  writer.add(second, {2, 10}, false);
  writer.add(third, {2, 3}, true);
  const std::string bytes = writer.bytes(tokenizer_digest, recipe_digest);
  const TokenShard shard = TokenShard::of_bytes(as_bytes(bytes), "x");
  shard.check();
  shard.verify();
  EXPECT_TRUE(shard.is_text() && shard.has_loss());
  EXPECT_EQ(shard.longest(), (Lengths{5, 10}));
  EXPECT_EQ(shard.totals(), (TokenShard::Totals{9, 22, 2}));
  EXPECT_EQ(shard.lengths(0), (Lengths{5, 9}));
  Example read;
  shard.read(1, read);
  EXPECT_EQ(std::tuple(read.source_text, read.target_text, read.loss),
            std::tuple(second.source_text, second.target_text, second.loss));
  shard.read(0, read);
  EXPECT_EQ(std::tuple(read.target_text, read.loss), std::tuple("cde", std::vector<bool>(3, true)));
  shard.read(2, read);
  EXPECT_EQ(std::tuple(read.target_text, read.loss), std::tuple("q", std::vector<bool>(1, true)));
}

TEST(TokenShard, KeepsPlacesAndThatSomeBearNoLoss) {
  const auto shard_of = [](const std::string& source, const std::string& target) {
    ShardWriter writer{1, 2, true};
    Example example;
    example.source_text = source, example.target_text = target, example.loss = {false, true};
    writer.add(example, {5, 9}, true);
    return writer.bytes(tokenizer_digest, recipe_digest);
  };
  const std::string places(32, 'p');
  for (const std::string& source : {places, std::string{}}) {
    const std::string bytes = shard_of(source, places);
    const TokenShard shard = TokenShard::of_bytes(as_bytes(bytes), "x");
    shard.check();
    EXPECT_TRUE(shard.is_text() && shard.has_places() && shard.has_loss());
    Example read;
    shard.read(0, read);
    EXPECT_EQ(std::tuple(read.source_text, read.target_text, read.loss.size()), std::tuple(source, places, 0U));
  }
  for (const auto& [source, target] : {std::pair(places, std::string(16, 'p')), {"", std::string(15, 'p')}, {"", ""}}) {
    const std::string bytes = shard_of(source, target);
    const TokenShard shard = TokenShard::of_bytes(as_bytes(bytes), "x");
    Example read;
    EXPECT_THAT(test::refusal(Fault::corrupt, [&] { shard.read(0, read); }), HasSubstr("places of records"));
  }
}

TEST(TokenShard, FindsWhereDocumentsBegin) {
  ShardWriter writer{2, 1};
  const std::vector<std::int32_t> ids{5};
  std::vector<std::uint64_t> begins;
  RandomStream random{9, 1};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const bool begins_here = i == 0 || (random.below(3) == 0 && (i < 300 || i > 600));
    if (begins_here) begins.push_back(i);
    writer.add({}, ids, begins_here);
  }
  const std::string bytes = writer.bytes(tokenizer_digest, recipe_digest);
  const TokenShard shard = TokenShard::of_bytes(as_bytes(bytes), "x");
  for (std::size_t d = 0; d < begins.size(); ++d) {
    EXPECT_EQ(shard.document_begin(0, d), begins[d]);
    EXPECT_EQ(shard.document_begin(begins[d], 0), begins[d]);
    EXPECT_EQ(shard.document_begin(begins[d / 2], d - d / 2), begins[d]);
  }
  EXPECT_EQ(shard.document_begin(0, begins.size()), 1000U);
}

INSTANTIATE_TEST_SUITE_P(All, WidthAndSides, testing::Combine(testing::Values(2U, 4U), testing::Values(1U, 2U)));

TEST(TokenShard, RefusesEveryDamagedHeaderAndSize) {
  const test::TempFolder folder;
  const Files files = Files::system();
  const std::string good = one_pair();
  const auto refused = [&](const std::string& bytes) {
    files.write_atomically(folder / "x.tokens", bytes);
    return test::refusal(Fault::corrupt, [&] { TokenShard::open(files, folder / "x.tokens").verify(); });
  };
  for (std::size_t at = 0; at < good.size(); ++at) {  // every byte counts
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    EXPECT_THAT(refused(bytes), HasSubstr("x.tokens")) << at;
  }
  for (const std::string& bytes : {good.substr(0, good.size() - 1), good + "more bytes", std::string()})
    EXPECT_THAT(refused(bytes), HasSubstr("x.tokens"));
  EXPECT_THAT(refused(good.substr(0, 100)), HasSubstr("100 bytes"));
}

/// A folder with two shards of one corpus: 6 + 4 examples of a language model, ids i, 2; documents begin at 0, 3, 6, 8.
class ShardFolder : public testing::Test {
 protected:
  ShardFolder() {
    index_.tokenizer = test::small_tokenizer(spec::TokenLayout::llama).digest();
    index_.recipe = recipe_digest;
    ShardIndex::Corpus corpus;
    corpus.name = "verses";
    corpus.texts.resize(1);
    std::int32_t id = 0;
    for (const int size : {6, 4}) {
      ShardWriter writer{2, 1};
      for (int i = 0; i < size; ++i, ++id)
        writer.add({}, std::vector<std::int32_t>{id + 10, 2}, id == 0 || id == 3 || id == 6 || id == 8);
      corpus.shards.push_back(test::write_token_shard(folder_, std::to_string(size) + ".tokens",
                                                      writer.bytes(index_.tokenizer, recipe_digest)));
    }
    corpus.tgt_tokens = 20;
    index_.corpora.push_back(corpus);
    config_.shards = folder_.path();
    config_.corpora.push_back({.name = "verses", .weight = 3.0});
    write_index();
  }
  void write_index() { files_.write_atomically(shard_index_path(folder_.path()), text_of(index_)); }
  TokenShards open(Part part = Part::train) {
    return TokenShards::open(files_, config_, test::small_tokenizer(spec::TokenLayout::llama), part);
  }
  static std::vector<std::int32_t> first_ids(const TokenShards& shards) {
    std::vector<std::int32_t> found;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      Example example;
      shards.read(i, std::nullopt, example);
      found.push_back(example.target[0]);
      EXPECT_EQ(shards.lengths(i).target, 2U);
    }
    return found;
  }

  test::TempFolder folder_;
  Files files_ = Files::system();
  ShardIndex index_;
  DataConfig config_;
};

TEST_F(ShardFolder, NumbersExamplesThroughAllShards) {
  const TokenShards shards = open();
  EXPECT_THAT(first_ids(shards), ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
  EXPECT_TRUE(shards.starts_document(6));
  EXPECT_FALSE(shards.starts_document(7));
  EXPECT_FALSE(shards.has_source());
  EXPECT_EQ(shards.fingerprint(), recipe_digest);
  const TokenShards::Corpus& corpus = shards.corpora().at(0);
  EXPECT_EQ(std::tuple(corpus.weight, corpus.documents, corpus.tgt_tokens), std::tuple(3.0, 4U, 20.0));
  EXPECT_TRUE(shards.is_exact());
  const auto document = [&](std::uint64_t number) {
    const TokenShards::Document found = shards.document(number);
    return std::tuple(found.first, found.examples, found.ids);
  };
  EXPECT_EQ(document(0), std::tuple(0U, 3U, 6));
  EXPECT_EQ(document(1), std::tuple(3U, 3U, 6));
  EXPECT_EQ(document(2), std::tuple(6U, 2U, 4));
  EXPECT_EQ(document(3), std::tuple(8U, 2U, 4));
}

TEST_F(ShardFolder, RefusesOtherTransforms) {
  config_.corpora[0].transforms = {{MaxLength{.source = 1, .target = 9}}};
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)open(); }), HasSubstr("transforms of verses"));
}

TEST_F(ShardFolder, SplitsAtDocumentsByTokens) {
  config_.split = SplitConfig{.train = 0.65, .validation = 0.15};  // 13 of 20: the next document begins at example 8
  EXPECT_THAT(first_ids(open(Part::train)), ElementsAre(10, 11, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(first_ids(open(Part::validation)), testing::IsEmpty());
  config_.split = SplitConfig{.train = 0.25, .validation = 0.35};
  EXPECT_THAT(first_ids(open(Part::train)), ElementsAre(10, 11, 12));
  const TokenShards held_out = open(Part::validation);
  EXPECT_THAT(first_ids(held_out), ElementsAre(13, 14, 15));
  EXPECT_TRUE(held_out.starts_document(0));
  EXPECT_EQ(open(Part::all).size(), 10U);
  config_.split = SplitConfig{.train = 0.3, .validation = 0.7};
  EXPECT_THAT(first_ids(open(Part::validation)), ElementsAre(13, 14, 15, 16, 17, 18, 19));
}

TEST_F(ShardFolder, RefusesAnotherTokenizerOtherCorporaAndNoIndex) {
  const auto refused = [&](Fault fault) { return test::refusal(fault, [&] { (void)open(); }); };
  index_.tokenizer = digest_of("another");
  write_index();
  EXPECT_THAT(refused(Fault::data), HasSubstr("made with another tokenizer"));
  index_.tokenizer = test::small_tokenizer(spec::TokenLayout::llama).digest();
  index_.corpora[0].name = "other";
  write_index();
  EXPECT_THAT(refused(Fault::data), HasSubstr("verses"));
  index_.corpora[0].name = "verses";
  index_.corpora[0].shards[1].examples = 5;
  write_index();
  EXPECT_THAT(refused(Fault::corrupt), HasSubstr("4.tokens"));
  const Path index = shard_index_path(folder_.path());
  files_.write_atomically(index, R"({"version": 4})");
  EXPECT_THAT(refused(Fault::corrupt), HasSubstr("index.json"));
  files_.write_atomically(index, R"({"version": 5})");
  EXPECT_THAT(refused(Fault::corrupt), HasSubstr("version 5"));
  files_.write_atomically(index, R"({"version": 2})");
  EXPECT_THAT(refused(Fault::data), HasSubstr("got version 2"));
  files_.remove(index);
  EXPECT_THAT(refused(Fault::data), HasSubstr("run preprocess"));
}

}  // namespace
}  // namespace argosy::data
