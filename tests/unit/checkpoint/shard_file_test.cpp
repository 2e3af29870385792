#include "checkpoint/shard_file.hpp"

#include <hdf5.h>

#include <bit>
#include <cstring>
#include <limits>

#include "core/random.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/hdf5_array.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::checkpoint {
namespace {

const ShardIdentity identity{"00112233445566778899aabbccddeeff", "0123456789abcdef", 7, 1, 3};
const std::vector<DatasetSpec> specs{{"unit/a/master", DType::f32, 1'200'000},
                                     {"unit/b/master", DType::f32, 0},
                                     {"index/begin", DType::u64, 5},
                                     {"index/unit", DType::u32, 5}};

class ShardFile : public testing::Test {
 protected:
  ShardMap create() { return create_shard(Files::system(), path, identity, specs); }
  ShardMap open(const ShardIdentity& of = identity, std::span<const DatasetSpec> datasets = specs) {
    return open_shard(Files::system(), path, of, datasets);
  }
  /// The shard with these values of its first dataset and others of no interest.
  Written write(const ShardMap& map, Bytes values, Os& os) {
    const std::vector<std::byte> begin(40), unit(20);
    const Bytes payload[] = {values, {}, begin, unit};
    return write_shard(Files{os}, path, map, payload);
  }
  void expect_refusal(const ShardIdentity& of = identity, std::span<const DatasetSpec> datasets = specs) {
    test::refusal(Fault::corrupt, [&] { static_cast<void>(open(of, datasets)); });
  }
  test::TempFolder folder;
  Path path = folder / "shard.h5";
};

TEST_F(ShardFile, SkeletonSaysWhereItsPayloadLies) {
  const ShardMap map = create(), again = open();
  ASSERT_EQ(map.datasets.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(map.datasets[i].offset, again.datasets[i].offset);
    EXPECT_EQ(map.datasets[i].digest_offset, again.datasets[i].digest_offset);
    EXPECT_EQ(map.datasets[i].offset == 0, specs[i].elements == 0);
  }
  EXPECT_EQ(map.size_bytes, again.size_bytes);
  EXPECT_EQ(map.datasets[0].offset % (1 << 20), 0U) << "large datasets start at a stripe";
  EXPECT_FALSE(Files::system().exists(folder / "ballast-00001"));
}

TEST_F(ShardFile, PayloadReadsBackThroughHdf5) {
  const ShardMap map = create();
  std::vector<float> a(specs[0].elements);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i) / 3;
  const std::vector<std::uint64_t> begin{1, 2, 3, 4, 5};
  const std::vector<std::uint32_t> unit{6, 7, 8, 9, 10};
  const Bytes payload[] = {
      std::as_bytes(std::span{a}), {}, std::as_bytes(std::span{begin}), std::as_bytes(std::span{unit})};
  const Written written = write_shard(Files::system(), path, map, payload);
  EXPECT_TRUE(written.finite);
  EXPECT_EQ(Files::system().stat(path)->size_bytes, map.size_bytes);

  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t table = H5Dopen2(file, "digest/unit/a/master", H5P_DEFAULT);
  std::vector<Digest> digests(2);
  H5Dread(table, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, digests.data());
  H5Dclose(table);
  H5Fclose(file);
  EXPECT_EQ(test::read_array(path, "unit/a/master").values, a);
  const Bytes all = payload[0];
  EXPECT_EQ(digests[0], digest_of(all.first(block_bytes)));
  EXPECT_EQ(digests[1], digest_of(all.subspan(block_bytes)));
  const std::vector<std::vector<Digest>> tables{digests, {}, {digest_of(payload[2])}, {digest_of(payload[3])}};
  EXPECT_EQ(written.root, root_digest(map, tables));
}

TEST_F(ShardFile, BeginsToWriteWholeBlocksBackWhileTheRestIsStillToCome) {
  const ShardMap map = create();
  test::FaultyOs os;
  static_cast<void>(write(map, std::vector<std::byte>(specs[0].size_bytes()), os));
  std::uint64_t written = 0, begun_at = 0;
  int begun = 0;
  for (const auto& record : os.records()) {
    if (record.call == test::Call::pwrite) written += record.size_bytes;
    if (record.call != test::Call::sync_file_range) continue;
    ++begun;
    begun_at = written;
    EXPECT_EQ(record.offset, static_cast<std::int64_t>(map.datasets[0].offset));
    EXPECT_EQ(record.size_bytes, block_bytes);
  }
  EXPECT_EQ(begun, 1) << "of two blocks one is whole; small ones are left to fsync, which joins them";
  EXPECT_EQ(begun_at, block_bytes);
}

TEST_F(ShardFile, ABadValueInAnyPieceOfABlockIsSeen) {
  const ShardMap map = create();
  std::vector<float> a(specs[0].elements, 1.0F);
  Os os;
  for (const std::size_t at : {std::size_t{0}, std::size_t{65'535}, std::size_t{65'536}, a.size() - 1}) {
    a[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(write(map, std::as_bytes(std::span{a}), os).finite) << "element " << at;
    a[at] = 1.0F;
  }
}

TEST_F(ShardFile, TellsValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(1000, std::numeric_limits<float>::max());
    EXPECT_TRUE(all_finite(values));
    values[999] = -bad;
    EXPECT_FALSE(all_finite(values));
  }
}

TEST_F(ShardFile, TellsBf16ThatAreNotFinite) {
  std::vector<std::uint16_t> values(1001, 0xff7f);  // the largest
  EXPECT_TRUE(all_finite(std::as_bytes(std::span{values}), DType::bf16));
  for (const std::uint16_t bad : {std::uint16_t{0x7f80}, std::uint16_t{0xff80}, std::uint16_t{0x7fc1}}) {
    values[1000] = bad;
    EXPECT_FALSE(all_finite(std::as_bytes(std::span{values}), DType::bf16)) << bad;
    EXPECT_TRUE(all_finite(std::as_bytes(std::span{values}), DType::u32));
  }
}

TEST_F(ShardFile, Bf16IsAFloatThatHdf5Understands) {
  const DatasetSpec spec{"unit/a/param", DType::bf16, 6};
  const ShardMap map = create_shard(Files::system(), path, identity, std::span{&spec, 1});
  const std::vector<float> values{1, -1.5F, 3.140625F, 0, 1e-38F, -3.3895314e38F};
  std::vector<std::uint16_t> stored;
  for (const float value : values) stored.push_back(bf16_from_f32(value));
  const Bytes payload[] = {std::as_bytes(std::span{stored})};
  static_cast<void>(write_shard(Files::system(), path, map, payload));
  const std::vector<float> got = test::read_array(path, "unit/a/param").values;
  ASSERT_EQ(got.size(), values.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], f32_from_bf16(stored[i])) << i;
  EXPECT_EQ(got[2], 3.140625F);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "unit/a/param", H5P_DEFAULT);
  EXPECT_EQ(H5Adelete(dataset, "dtype"), 0) << "says bfloat16, for other tools";
  H5Dclose(dataset);
  H5Fclose(file);
  const auto reopen = [&] { static_cast<void>(open(identity, std::span{&spec, 1})); };
  EXPECT_TRUE(test::says(test::refusal(Fault::corrupt, reopen), "dtype = bfloat16"));
}

TEST_F(ShardFile, WidensBf16InTheirPlace) {
  std::vector<float> values(777);
  std::vector<std::uint16_t> halves;
  for (std::size_t i = 0; i < values.size(); ++i) halves.push_back(static_cast<std::uint16_t>(i * 83));
  std::memcpy(std::as_writable_bytes(std::span{values}).last(halves.size() * 2).data(), halves.data(),
              halves.size() * 2);
  widen_bf16(values);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), halves[i] << 16) << i;
}

TEST_F(ShardFile, RefusesShardsOfAnotherSave) {
  static_cast<void>(create());
  const auto refuse = [&](auto change) {
    ShardIdentity other = identity;
    change(other);
    expect_refusal(other);
  };
  refuse([](ShardIdentity& other) { other.run_uuid[0] = 'f'; });
  refuse([](ShardIdentity& other) { other.save_nonce[15] = '0'; });
  refuse([](ShardIdentity& other) { other.step = 8; });
  refuse([](ShardIdentity& other) { other.rank = 2; });
  refuse([](ShardIdentity& other) { other.world = 4; });
}

TEST_F(ShardFile, RefusesOtherDatasetsThanTheManifestNames) {
  static_cast<void>(create());
  const DatasetSpec others[] = {{"unit/a/master", DType::f32, 1'200'001},
                                {"unit/a/master", DType::u32, 1'200'000},
                                {"unit/a/master", DType::bf16, 1'200'000},
                                {"unit/c/master", DType::f32, 1'200'000}};
  for (const DatasetSpec& other : others) expect_refusal(identity, std::span{&other, 1});
}

TEST_F(ShardFile, FlippedMetadataIsNoticedOrHarmless) {
  const ShardMap map = create();
  // No payload is written yet, so every byte that is not zero is metadata.
  const std::string text = Files::system().read_text(path);
  std::vector<std::uint64_t> metadata;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] != '\0') metadata.push_back(at);
  RandomStream random{42, 1};
  int noticed = 0;
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t at = metadata[random.below(metadata.size())];
    const int bit = static_cast<int>(random.below(8));
    test::flip(path, at, bit);
    try {
      const ShardMap got = open();
      for (std::size_t d = 0; d < specs.size(); ++d) {
        EXPECT_EQ(got.datasets[d].offset, map.datasets[d].offset) << "byte " << at;
        EXPECT_EQ(got.datasets[d].digest_offset, map.datasets[d].digest_offset) << "byte " << at;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::corrupt);
      ++noticed;
    }
    test::flip(path, at, bit);
  }
  EXPECT_GT(noticed, 300);
}

TEST_F(ShardFile, RefusesTextsAndEmptyFiles) {
  for (const std::string_view content : {"", "hello, this is not HDF5"}) {
    Files::system().write_atomically(path, content);
    expect_refusal();
  }
}

TEST_F(ShardFile, NoRoomForTheBallastIsOneClearError) {
  for (const int reserving : {ENOSPC, EOPNOTSUPP}) {  // the second time it is written instead
    test::FaultyOs os;
    os.fail(test::Call::fallocate, 0, reserving);
    if (reserving == EOPNOTSUPP) os.fail(test::Call::pwrite, 0, ENOSPC);
    EXPECT_THROW(static_cast<void>(create_shard(Files{os}, path, identity, specs)), Error);
    EXPECT_FALSE(Files::system().exists(path)) << "HDF5 was not asked";
    EXPECT_FALSE(Files::system().exists(folder / "ballast-00001"));
  }
}

TEST_F(ShardFile, WritesTheBallastWhereNothingCanBeReserved) {
  test::FaultyOs os;
  os.fail(test::Call::fallocate, 0, EOPNOTSUPP);
  static_cast<void>(create_shard(Files{os}, path, identity, specs));
  EXPECT_EQ(os.count(test::Call::pwrite), 1U);
  EXPECT_FALSE(Files::system().exists(folder / "ballast-00001"));
}

}  // namespace
}  // namespace argosy::checkpoint
