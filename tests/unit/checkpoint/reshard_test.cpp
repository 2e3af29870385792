#include "partition/reshard.hpp"

#include <gtest/gtest.h>

#include <set>

#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/temp_folder.hpp"

/// What one number of ranks has stored, read by another, all ranks of both sides in this process.
namespace argosy::checkpoint {
namespace {

using partition::Layout;
using test::Units;

/// 1, 2, 3, 4, 5 and 8 ranks on one node, on two, and spread unevenly. One rank is one rank each time.
std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    all.emplace_back(std::vector{world});
    if (world == 1) {
      all.insert(all.end(), 2, Layout{});
      continue;
    }
    all.emplace_back(std::vector{(world + 1) / 2, world / 2});
    all.emplace_back(world < 5 ? std::vector{1, world - 1} : std::vector{1, 2, world - 3});
  }
  return all;
}

/// The same parameters as a model's units, as one unit, and each a unit of its own.
std::vector<Units> splits(const Units& units) {
  Units one{{"all", {}}}, each;
  for (const auto& [name, params] : units)
    for (const partition::ParamSpec& param : params) {
      one.front().second.push_back(param);
      each.push_back({"of." + std::to_string(each.size()), {param}});
    }
  return {units, one, each};
}

std::string text_of(const Layout& layout) { return fmt::format("[{}]", fmt::join(layout.node_sizes(), "+")); }

TEST(ReshardOnRead, EveryLayoutReadsEveryOtherBitForBitWhateverTheUnits) {
  const test::TempFolder folder;
  const Files files = Files::system();
  const std::vector<Units> all_splits = splits(test::tiny_units());
  std::size_t combinations = 0;
  for (const Units& stored : all_splits) {
    for (const Layout& from : layouts()) {
      const Path directory = folder / std::to_string(combinations);
      test::write_checkpoint(files, directory, stored, from, 3);
      const Reader reader{files, directory};
      EXPECT_EQ(reader.spaces().front().layout(), from);
      for (const Layout& to : layouts()) {
        const Units& wanted = all_splits[(combinations + combinations / 18) % 3];
        ++combinations;
        for (int rank = 0; rank < to.world(); ++rank) {
          test::Toy want{wanted, to, rank}, got{wanted, to, rank};
          got.fill_all(99);
          reader.read_state(got.states(), rank);
          ASSERT_TRUE(got == want.fill(3)) << text_of(from) << ", " << stored.size() << " units, to rank " << rank
                                           << " of " << text_of(to) << ", " << wanted.size() << " units";
        }
      }
      files.remove_tree(directory);
    }
  }
  EXPECT_EQ(combinations, 3 * 324);
}

/// What reading a rank's state may cost: of every dataset the blocks that hold a wanted element, once, and of every
/// shard that holds one the digest tables and the index.
struct Cost {
  std::set<int> shards;
  std::uint64_t bytes = 0;
};

Cost least_cost(const Units& stored, const Layout& from, const Units& wanted, const Layout& to, int rank,
                std::uint64_t tensors) {
  Cost cost;
  const Manifest manifest = test::manifest_of(stored, from);
  const std::vector<partition::FlatSpace>& spaces = manifest.spaces;
  std::set<std::tuple<int, std::size_t, std::uint64_t>> blocks;  // shard, unit, block
  for (const auto& unit : wanted) {
    const partition::FlatSpace want{unit.second, to};
    for (const partition::Interval& own : partition::intervals_of(want, rank))
      for (std::size_t u = 0; u < spaces.size(); ++u)
        for (const partition::Interval& source : partition::intervals_of(spaces[u])) {
          const std::int64_t begin = std::max(own.begin, source.begin), end = std::min(own.end, source.end);
          if (spaces[u].params()[source.param].name != want.params()[own.param].name || begin >= end) continue;
          cost.shards.insert(source.rank);
          const auto first = static_cast<std::uint64_t>(source.local_offset + begin - source.begin) * sizeof(float);
          const std::uint64_t last = first + static_cast<std::uint64_t>(end - begin) * sizeof(float) - 1;
          for (std::uint64_t b = first / block_bytes; b <= last / block_bytes; ++b) blocks.insert({source.rank, u, b});
        }
  }
  for (const auto& [shard, unit, block] : blocks) {
    const auto size_bytes = static_cast<std::uint64_t>(spaces[unit].owned_size(shard)) * sizeof(float);
    cost.bytes += tensors * std::min(block_bytes, size_bytes - block * block_bytes);
  }
  for (const int shard : cost.shards)
    for (const DatasetSpec& spec : manifest.specs(shard))
      cost.bytes += spec.blocks() * 16 + (spec.name.starts_with("index/") ? spec.size_bytes() : 0);
  return cost;
}

TEST(ReshardOnRead, OnlyBlocksThatHoldWantedElementsAreReadAndOnce) {
  const test::TempFolder folder;
  const std::vector<Units> all_splits = splits(test::large_units());
  for (const Layout& from : {Layout{{3}}, Layout{{1, 4}}, Layout{}}) {
    const Path directory = folder / text_of(from);
    test::write_checkpoint(Files::system(), directory, all_splits[0], from, 3);
    for (const Layout& to : {Layout{{2}}, Layout{{3, 5}}, from})
      for (const Units& wanted : all_splits)
        for (const int rank : {0, to.world() - 1})
          for (const bool with_moments : {true, false}) {
            test::FaultyOs os;
            const Reader reader{Files{os}, directory};
            const std::size_t before = os.count();
            test::Toy got{wanted, to, rank};
            reader.read_state(got.states(with_moments), rank);
            const Cost cost = least_cost(all_splits[0], from, wanted, to, rank, with_moments ? 3 : 1);
            std::set<std::string> opened, shards;
            std::uint64_t bytes = 0;
            for (const auto& record : os.records_from(before)) {
              if (record.call == test::Call::open) opened.insert(record.path);
              if (record.call == test::Call::pread) bytes += record.size_bytes;
            }
            for (const int shard : cost.shards) shards.insert(directory / shard_name(shard, from.world()));
            ASSERT_EQ(opened, shards) << text_of(from) << " to rank " << rank << " of " << text_of(to);
            ASSERT_EQ(bytes, cost.bytes) << text_of(from) << " to rank " << rank << " of " << text_of(to) << ", "
                                         << wanted.size() << " units";
          }
  }
}

}  // namespace
}  // namespace argosy::checkpoint
