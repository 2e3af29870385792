// Damaged and forged token shards and indexes: every byte that training reads is checked before it is used.
#include <gmock/gmock.h>

#include <cstring>
#include <thread>

#include "config/config.hpp"
#include "core/random.hpp"
#include "data/shard_index.hpp"
#include "data/shard_writer.hpp"
#include "data/token_shards.hpp"
#include "support/refusal.hpp"
#include "support/small_text.hpp"
#include "support/token_shards.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

/// What training reads of a shard: lengths, documents and ids.
std::vector<std::int32_t> all_of(const TokenShard& shard) {
  std::vector<std::int32_t> all, ids;
  for (std::uint64_t i = 0; i < shard.size(); ++i) {
    all.push_back(static_cast<std::int32_t>(shard.lengths(i).source));
    all.push_back(static_cast<std::int32_t>(shard.lengths(i).target));
    all.push_back(shard.starts_document(i) ? 1 : 0);
    shard.target(i, ids);
    all.insert(all.end(), ids.begin(), ids.end());
    if (!shard.has_source()) continue;
    shard.source(i, ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// Makes all digests of a forged shard right, as a malicious or mistaken writer would.
void seal(std::string& bytes, std::size_t body_end) {
  for (std::size_t block = 0; block < shard_blocks(body_end); ++block) {
    const std::size_t begin = std::max<std::size_t>(block * shard_block_bytes, sizeof(ShardHeader));
    const std::size_t end = std::min<std::size_t>((block + 1) * shard_block_bytes, body_end);
    put(bytes, body_end + 8 * block, hash64(std::string_view{bytes}.substr(begin, end - begin)));
  }
  put(bytes, offsetof(ShardHeader, body), digest_of(std::string_view{bytes}.substr(body_end)).bytes);
  put(bytes, digested_header_bytes, digest_of(std::string_view{bytes}.substr(0, digested_header_bytes)).bytes);
}

constexpr std::uint64_t extremes[] = {0, 1ULL << 31, (1ULL << 32) - 1, INT64_MAX, 1ULL << 63, UINT64_MAX};

/// A folder with one shard of pairs.
class Damage : public testing::Test {
 protected:
  Damage() {
    ShardIndex::Corpus corpus;
    corpus.name = "verses";
    corpus.languages = {"en", "es"};
    corpus.texts = {{digest_of("source"), 21}, {digest_of("target"), 21}};
    corpus.dropped = {{"empty", 2}};
    ShardWriter writer{2, 2};
    for (std::int32_t i = 0; i < 21; ++i) {
      const std::vector<std::int32_t> source(static_cast<std::size_t>(i % 5 + 1), i + 3);
      const std::vector<std::int32_t> target(static_cast<std::size_t>(i % 3 + 1), i + 7);
      writer.add(source, target, true);
      corpus.src_tokens += static_cast<std::int64_t>(source.size());
      corpus.tgt_tokens += static_cast<std::int64_t>(target.size());
    }
    index_.tokenizer = test::small_tokenizer(spec::TokenLayout::marian).digest();
    index_.pieces = 300;
    index_.recipe = digest_of("recipe");
    shard_ = writer.bytes(index_.tokenizer, index_.recipe, R"({"unknown": 3})");
    corpus.shards.push_back(test::write_token_shard(folder_, "x.tokens", shard_));
    index_.corpora.push_back(corpus);
    config_.shards = folder_.path();
    config_.corpora.push_back({.name = "verses"});
    write_index(text_of(index_));
  }
  /// The shard with `value` at `field`, and right digests.
  template <class T>
  [[nodiscard]] std::string forged(std::size_t field, T value) const {
    std::string bytes = shard_;
    put(bytes, field, value);
    seal(bytes, shard_.size() - 8);
    return bytes;
  }
  void write_index(std::string_view text) { files_.publish(shard_index_path(folder_.path()), text); }

  /// Everything a training run reads of the folder: empty when it is refused, which must name `file`.
  std::vector<std::int32_t> trained_on(std::string_view file) {
    std::vector<std::int32_t> all;
    try {
      const TokenShards shards = TokenShards::open(files_, config_, test::small_tokenizer(spec::TokenLayout::marian));
      for (std::uint64_t i = 0; i < shards.size(); ++i) {
        Example example;
        static_cast<void>(shards.lengths(i));
        shards.read(i, std::nullopt, example);
        all.insert(all.end(), example.source.begin(), example.source.end());
        all.insert(all.end(), example.target.begin(), example.target.end());
      }
    } catch (const Error& error) {
      EXPECT_TRUE(error.fault() == Fault::corrupt || error.fault() == Fault::data) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(file));
      all.clear();
    }
    return all;
  }

  test::TempFolder folder_;
  Files files_ = Files::system();
  ShardIndex index_;
  DataConfig config_;
  std::string shard_;
};

TEST_F(Damage, AFlippedBitOfAShardIsRefusedWhenItIsRead) {
  const std::vector<std::int32_t> whole = all_of(TokenShard::open(files_, folder_ / "x.tokens"));
  for (std::size_t at = 0; at < shard_.size(); ++at) {
    std::string bytes = shard_;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << at % 8);
    files_.publish(folder_ / "x.tokens", bytes);
    std::vector<std::int32_t> read;
    try {
      read = all_of(TokenShard::open(files_, folder_ / "x.tokens"));
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.fault()), Exit::io) << at << " " << error.what();
      EXPECT_THAT(error.what(), HasSubstr("x.tokens"));
      continue;
    }
    ADD_FAILURE() << "byte " << at << " was read, " << (read == whole ? "to no effect" : "and changed the examples");
  }
}

TEST_F(Damage, AFlippedBitOfTheIndexIsRefusedOrChangesNothing) {
  EXPECT_EQ(read_shard_index(files_, folder_.path()), index_);
  const std::string good = text_of(index_);
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string text = good;
    text[at] = static_cast<char>(text[at] ^ 1 << at % 8);
    write_index(text);
    try {
      EXPECT_EQ(read_shard_index(files_, folder_.path()), index_) << text;
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.fault()), Exit::io) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) / 2);
}

TEST_F(Damage, ExtremeNumbersOfAHeaderAreRefused) {
  const auto expect_refused = [&](std::size_t field, auto value) {
    files_.publish(folder_ / "x.tokens", forged(field, value));
    EXPECT_TRUE(trained_on("x.tokens").empty()) << field << " " << value;
  };
  for (const std::size_t field :
       {offsetof(ShardHeader, examples), offsetof(ShardHeader, source_values), offsetof(ShardHeader, target_values)}) {
    for (const std::uint64_t value : extremes) expect_refused(field, value);
  }
  for (const std::size_t field :
       {offsetof(ShardHeader, value_width), offsetof(ShardHeader, sides), offsetof(ShardHeader, note_bytes),
        offsetof(ShardHeader, flags), offsetof(ShardHeader, reserved)}) {
    for (const std::uint32_t value : {1U, 3U, 4U, 1U << 31, ~0U}) expect_refused(field, value);
  }
  // Figures of the whole body: training counts with them, preprocess and verify compare them with it.
  for (const std::size_t field :
       {offsetof(ShardHeader, documents), offsetof(ShardHeader, source_ids), offsetof(ShardHeader, target_ids)}) {
    for (const std::uint64_t value : extremes) {
      const std::string bytes = forged(field, value);
      const auto check = [&] { TokenShard::of_bytes(as_bytes(bytes), "x.tokens").check(); };
      EXPECT_THAT(test::refusal(Fault::corrupt, check), HasSubstr("x.tokens")) << field << " " << value;
    }
  }
  for (const std::size_t field : {offsetof(ShardHeader, longest_source), offsetof(ShardHeader, longest_target)}) {
    for (const std::uint32_t value : {0U, 1U, 4U, ~0U}) {
      const std::string bytes = forged(field, value);
      const auto check = [&] { TokenShard::of_bytes(as_bytes(bytes), "x.tokens").check(); };
      EXPECT_THAT(test::refusal(Fault::corrupt, check), HasSubstr("x.tokens")) << field << " " << value;
    }
  }
}

TEST_F(Damage, ExtremeOffsetsAndLengthsAreRefused) {
  const std::size_t lengths = sizeof(ShardHeader) + 8, offsets = lengths + 22 * 4;
  for (const std::uint64_t extreme : extremes) {
    const auto value = static_cast<std::uint32_t>(extreme);
    const std::string far = forged(offsets + 4, value == 0 ? 1000U : value), lengthy = forged(lengths + 4, value);
    const auto read = [&] {
      std::vector<std::int32_t> ids;
      TokenShard::of_bytes(as_bytes(far), "x.tokens").source(1, ids);
    };
    EXPECT_THAT(test::refusal(Fault::corrupt, read), HasSubstr("example 1 within"));
    const auto check = [&] { TokenShard::of_bytes(as_bytes(lengthy), "x.tokens").check(); };
    EXPECT_THAT(test::refusal(Fault::corrupt, check), HasSubstr("x.tokens"));
  }
}

TEST_F(Damage, ExtremeNumbersAndForeignNamesInAnIndexAreRefused) {
  const auto forged = [&](const std::function<void(ShardIndex::Corpus&)>& forge) {
    ShardIndex index = index_;
    forge(index.corpora.at(0));
    write_index(text_of(index));
    EXPECT_TRUE(trained_on("").empty());
  };
  for (const std::uint64_t value : extremes) {
    forged([&](ShardIndex::Corpus& corpus) { corpus.shards[0].examples = value; });
    forged([&](ShardIndex::Corpus& corpus) { corpus.shards[0].size_bytes = value; });
    if (value == 0 || value == 1ULL << 31 || value == (1ULL << 32) - 1) continue;  // figures for the log alone
    forged([&](ShardIndex::Corpus& corpus) { corpus.src_tokens = static_cast<std::int64_t>(value); });
    forged([&](ShardIndex::Corpus& corpus) { corpus.tgt_tokens = static_cast<std::int64_t>(value); });
    forged([&](ShardIndex::Corpus& corpus) { corpus.unknown = static_cast<std::int64_t>(value); });
    forged([&](ShardIndex::Corpus& corpus) { corpus.texts[0].lines = static_cast<std::int64_t>(value); });
  }
  files_.make_folders(folder_ / "below");
  files_.publish(folder_ / "below/x.tokens", shard_);
  const std::string outside = "../" + folder_.path().filename().string() + "/x.tokens", whole = folder_ / "x.tokens";
  const std::string cut("x.tokens\0.tokens", 17);
  const std::vector<std::string> foreign({"below/x.tokens", outside, whole, "..", "", cut, "index.json"});
  for (const std::string& name : foreign) forged([&](ShardIndex::Corpus& corpus) { corpus.shards[0].file = name; });
  // Numbers that are none: JSON has no NaN, and a fraction is no count.
  for (const char* number : {"NaN", "-1", "0.5", "1e300", "\"21\"", "null", "{}", "99999999999999999999"}) {
    std::string text = text_of(index_);
    const std::string lines = "\"lines\": ";
    text.replace(text.find(lines) + lines.size(), 2, number);
    write_index(text);
    EXPECT_TRUE(trained_on("index.json").empty()) << number;
  }
}

/// Blocks are checked one by one: what nobody reads is not looked at, and threads may come at once.
TEST(ShardBlocks, EachIsCheckedWhenAThreadFirstTouchesIt) {
  ShardWriter writer{2, 1};
  const std::vector<std::int32_t> line(1000, 7);
  for (int i = 0; i < 300; ++i) writer.add({}, line, true);  // about 600 kB in ten blocks
  std::string bytes = writer.bytes(digest_of("tokenizer"), digest_of("recipe"));
  const auto read_all = [](const TokenShard& shard) {
    std::atomic<int> refused = 0;
    const auto read = [&](std::uint64_t thread) {
      RandomStream random{5, thread};
      std::vector<std::int32_t> ids;
      for (int i = 0; i < 400; ++i) {
        try {
          shard.target(random.below(300), ids);
        } catch (const Error&) {
          ++refused;
        }
      }
    };
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) threads.emplace_back(read, t);
    threads.clear();
    return refused.load();
  };
  EXPECT_EQ(read_all(TokenShard::of_bytes(as_bytes(bytes), "x")), 0);
  bytes[300000] = static_cast<char>(bytes[300000] ^ 1);
  const TokenShard shard = TokenShard::of_bytes(as_bytes(bytes), "x");
  const int refused = read_all(shard);
  EXPECT_GT(refused, 1600 / 20);  // a block holds a tenth of the examples
  EXPECT_LT(refused, 1600 / 5);
  std::vector<std::int32_t> ids;
  EXPECT_NO_THROW(shard.target(0, ids));
  EXPECT_THAT(test::refusal(Fault::corrupt, [&] { shard.verify(); }), HasSubstr("bytes 262144 to 327680"));
}

TEST_F(Damage, AShardCutAnywhereIsRefused) {
  for (std::size_t size = 0; size < shard_.size(); ++size) {
    files_.publish(folder_ / "x.tokens", shard_.substr(0, size));
    EXPECT_TRUE(trained_on("x.tokens").empty()) << size;
  }
}

}  // namespace
}  // namespace argosy::data
