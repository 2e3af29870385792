#include <gtest/gtest.h>

#include <array>

#include "comm/collectives.hpp"
#include "support/mpi_test.hpp"

namespace argosy::comm {
namespace {

using partition::FlatSpace;

/// Byte `i` of the whole buffer.
std::byte expected_at(std::size_t i) { return static_cast<std::byte>((i * 2654435761U) >> 13 & 0xffU); }

class AllGather : public testing::TestWithParam<std::tuple<test::Hierarchy, DType>> {};

TEST_P(AllGather, FillsTheBufferFromEveryRanksSlicesAndCountsThePayload) {
  const auto [hierarchy, dtype] = GetParam();
  const Topology& topology = test::topology(hierarchy);
  const auto collectives = make_mpi_collectives(topology);
  Traffic::Bytes expected;
  for (const std::int64_t width : {1601, 100001}) {
    const FlatSpace space{{{"w", {width}}}, topology.layout()};
    const std::size_t element = size_of(dtype), slice_bytes = static_cast<std::size_t>(space.slice_size()) * element;
    std::vector<std::byte> flat(static_cast<std::size_t>(space.padded_size()) * element, std::byte{0xee});
    for (const int slice : space.owned_slices(topology.canonical_rank()))
      for (std::size_t i = 0; i < slice_bytes; ++i) {
        const std::size_t at = static_cast<std::size_t>(slice) * slice_bytes + i;
        flat[at] = expected_at(at);
      }
    collectives->all_gather(space, {flat.data(), space.padded_size(), dtype}, {}).wait();
    for (std::size_t i = 0; i < flat.size(); ++i)
      ASSERT_EQ(flat[i], expected_at(i)) << "byte " << i << " of " << flat.size();
    const Traffic::Bytes sent = all_gather_bytes(space, topology.canonical_rank(), static_cast<std::int64_t>(element));
    expected.inner += sent.inner;
    expected.outer += sent.outer;
    ++expected.calls;
  }
  EXPECT_EQ(collectives->traffic().by_operation.at("all_gather"), expected);
}

INSTANTIATE_TEST_SUITE_P(All, AllGather,
                         testing::Combine(testing::ValuesIn(test::hierarchies()),
                                          testing::Values(DType::f32, DType::bf16, DType::u8)),
                         [](const auto& c) {
                           return test::name_of(std::get<0>(c.param)) + "_" +
                                  std::string(name_of(std::get<1>(c.param)));
                         });

class AllReduce : public testing::TestWithParam<test::Hierarchy> {};

TEST_P(AllReduce, SumsInCanonicalOrderAndCountsApart) {
  const Topology& topology = test::topology(GetParam());
  const auto collectives = make_mpi_collectives(topology);
  const auto term = [](int rank) { return rank == 0 ? 1e16 : rank == 1 ? 1.0 : -1e16; };
  std::array norms{term(topology.canonical_rank()), 1.0};
  std::array<std::int64_t, 1> counts{std::int64_t{1} << (10 * topology.canonical_rank())};
  collectives->all_reduce(std::span<double>{norms});
  collectives->all_reduce(std::span<std::int64_t>{counts});
  double sum = term(0);
  std::int64_t count = 1;
  for (int rank = 1; rank < topology.world_size(); ++rank) {
    sum += term(rank);
    count += std::int64_t{1} << (10 * rank);
  }
  EXPECT_EQ(norms[0], sum);
  EXPECT_EQ(norms[1], topology.world_size());
  EXPECT_EQ(counts[0], count);
  EXPECT_EQ(collectives->traffic().by_operation.size(), 1U);
  const Traffic::Bytes sent = scalar_bytes(topology.layout(), topology.canonical_rank(), 24);
  EXPECT_EQ(collectives->traffic().by_operation.at("scalar"), (Traffic::Bytes{sent.inner, sent.outer, 2}));
}

INSTANTIATE_TEST_SUITE_P(All, AllReduce, testing::ValuesIn(test::hierarchies()), test::by_name);

}  // namespace
}  // namespace argosy::comm
