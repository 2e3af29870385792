#include "comm/traffic.hpp"

#include <gtest/gtest.h>

#include "unit/partition/small_layouts.hpp"

namespace argosy::comm {
namespace {

using partition::FlatSpace, partition::Layout;

TEST(Traffic, UnevenNodesMeetTheBoundToo) {
  for (const Layout& layout : partition::test::small_layouts()) {
    const FlatSpace space{{{"w", {50000}}}, layout};
    for (int node = 0; node < layout.nodes(); ++node) {
      std::int64_t reduced = 0, gathered = 0, inner = 0;
      for (int local = 0; local < layout.node_size(node); ++local) {
        const int rank = layout.canonical_rank(node, local);
        reduced += reduce_scatter_bytes(space, rank, 4, 4).outer;
        gathered += all_gather_bytes(space, rank, 4).outer;
        inner += reduce_scatter_bytes(space, rank, 4, 4).inner;
      }
      EXPECT_EQ(reduced, space.padded_size() * 4 / layout.nodes() * (layout.nodes() - 1));
      EXPECT_EQ(gathered, reduced);
      EXPECT_EQ(inner, space.padded_size() * 4 * (layout.node_size(node) - 1));
    }
  }
}

TEST(Traffic, ScalarsGoToRankZeroAndTheirSumsBack) {
  const Layout layout{{2, 3}};
  EXPECT_EQ(scalar_bytes(layout, 0, 16), (Traffic::Bytes{.inner = 16, .outer = 48, .calls = 1}));
  EXPECT_EQ(scalar_bytes(layout, 1, 16), (Traffic::Bytes{.inner = 16, .outer = 0, .calls = 1}));
  EXPECT_EQ(scalar_bytes(layout, 2, 16), (Traffic::Bytes{.inner = 0, .outer = 16, .calls = 1}));
}

}  // namespace
}  // namespace argosy::comm
