// The table of bytes an optimizer step sends, for every scheme: calls as a schedule would make them, counted by the
// recorder, against the formulas, for layouts no test machine has.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/recording.hpp"

namespace argosy::comm {
namespace {

using partition::FlatSpace, partition::Layout;
using test::RecordingCollectives;

/// One step of a rank under some scheme: `accumulation` micro-batches through one unit.
using Scheme = std::function<void(RecordingCollectives&, const FlatSpace&, int canonical_rank, int accumulation)>;

BufferView view(std::int64_t elements, DType dtype) { return {nullptr, elements, dtype}; }

void reduce(RecordingCollectives& on, const FlatSpace& space, int rank, Levels levels = Levels::both) {
  const std::int64_t slices = space.owned_size(rank), slots = slices * space.layout().nodes();
  (void)on.reduce_scatter(space, view(levels == Levels::outer ? slots : space.padded_size(), DType::f32),
                          view(levels == Levels::inner ? slots : slices, DType::f32), {}, {.levels = levels});
}
void gather(RecordingCollectives& on, const FlatSpace& space, int rank, Levels levels = Levels::both) {
  const std::int64_t slots = space.owned_size(rank) * space.layout().nodes();
  (void)on.all_gather(space, view(levels == Levels::outer ? slots : space.padded_size(), DType::bf16), {}, levels);
}

void stage_1(RecordingCollectives& on, const FlatSpace& space, int rank, int /*accumulation*/) {
  reduce(on, space, rank);
  gather(on, space, rank);
}
void stage_2(RecordingCollectives& on, const FlatSpace& space, int rank, int accumulation) {
  for (int a = 0; a < accumulation; ++a) reduce(on, space, rank);
  gather(on, space, rank);
}
void stage_3(RecordingCollectives& on, const FlatSpace& space, int rank, int accumulation) {
  for (int a = 0; a < accumulation; ++a) {
    gather(on, space, rank);  // forward
    gather(on, space, rank);  // backward
    reduce(on, space, rank);
  }
}
void hybrid(RecordingCollectives& on, const FlatSpace& space, int rank, int accumulation) {
  for (int a = 0; a < accumulation; ++a) {
    gather(on, space, rank, Levels::inner);
    gather(on, space, rank, Levels::inner);
    reduce(on, space, rank, Levels::inner);
  }
  reduce(on, space, rank, Levels::outer);
  gather(on, space, rank, Levels::outer);
  gather(on, space, rank, Levels::inner);
}

/// A sum of the table: bytes of a rank, and bytes that leave a node, as functions of N, G, A, g and psi. Each term is
/// (x-1)/x of something that x divides.
struct Row {
  Scheme scheme;
  std::function<std::int64_t(std::int64_t nodes, std::int64_t per_node, std::int64_t a, std::int64_t g,
                             std::int64_t psi)>
      of_rank, of_node;
};

std::int64_t share(std::int64_t x, std::int64_t bytes) { return bytes / x * (x - 1); }

std::vector<Row> rows() {
  using I = std::int64_t;
  return {
      {stage_1, [](I n, I c, I, I g, I psi) { return share(n * c, (g + 2) * psi); },
       [](I n, I, I, I g, I psi) { return share(n, (g + 2) * psi); }},
      {stage_2, [](I n, I c, I a, I g, I psi) { return share(n * c, (a * g + 2) * psi); },
       [](I n, I, I a, I g, I psi) { return share(n, (a * g + 2) * psi); }},
      {stage_3, [](I n, I c, I a, I g, I psi) { return share(n * c, a * (4 + g) * psi); },
       [](I n, I, I a, I g, I psi) { return share(n, a * (4 + g) * psi); }},
      {hybrid,
       [](I n, I c, I a, I g, I psi) { return share(c, a * (4 + g) * psi + 2 * psi) + share(n, (g + 2) * psi / c); },
       [](I n, I, I, I g, I psi) { return share(n, (g + 2) * psi); }},
  };
}

struct Counts {
  std::int64_t total = 0, outer = 0;
};

Counts count(const Scheme& scheme, const FlatSpace& space, int rank, int accumulation,
             const CollectivesOptions& options) {
  RecordingCollectives recorder{space.layout(), rank, nullptr, options};
  scheme(recorder, space, rank, accumulation);
  Counts counts;
  for (const auto& [operation, bytes] : recorder.traffic().by_operation) {
    counts.total += bytes.inner + bytes.outer;
    counts.outer += bytes.outer;
  }
  return counts;
}

CollectivesOptions wire(DType type, Reduction reduction) {
  return {.reduction = reduction, .wire_inner = type, .wire_outer = type};
}

TEST(SchemeBytes, EqualTheTableOnEvenNodes) {
  for (const int nodes : {1, 2, 3, 4, 16}) {
    for (const int per_node : {1, 2, 3, 4, 8}) {
      const Layout layout{std::vector<int>(static_cast<std::size_t>(nodes), per_node)};
      const FlatSpace space{{{"w", {100001}}}, layout};
      for (const int accumulation : {1, 2, 16})
        for (const DType type : {DType::f32, DType::bf16})
          for (const Reduction reduction : {Reduction::exact, Reduction::fast})
            for (const Row& row : rows()) {
              const auto g = static_cast<std::int64_t>(size_of(type)), psi = space.padded_size();
              std::int64_t left_node = 0;
              for (int local = 0; local < per_node; ++local) {
                const Counts counts = count(row.scheme, space, layout.canonical_rank(nodes - 1, local), accumulation,
                                            wire(type, reduction));
                ASSERT_EQ(counts.total, row.of_rank(nodes, per_node, accumulation, g, psi));
                left_node += counts.outer;
              }
              ASSERT_EQ(left_node, row.of_node(nodes, per_node, accumulation, g, psi));
            }
    }
  }
}

TEST(SchemeBytes, LeaveEveryNodeOfAnUnevenLayoutAtTheBound) {
  for (const auto& sizes : {std::vector{1, 3}, std::vector{1, 1, 2}, std::vector{2, 3, 3}, std::vector{8, 5, 8, 8}}) {
    const Layout layout{sizes};
    const FlatSpace space{{{"w", {100001}}}, layout};
    for (const Row& row : rows()) {
      for (int node = 0; node < layout.nodes(); ++node) {
        std::int64_t left_node = 0;
        for (int local = 0; local < layout.node_size(node); ++local)
          left_node +=
              count(row.scheme, space, layout.canonical_rank(node, local), 4, wire(DType::bf16, Reduction::exact))
                  .outer;
        EXPECT_EQ(left_node, row.of_node(layout.nodes(), 0, 4, 2, space.padded_size()));
      }
    }
  }
}

TEST(SchemeBytes, WireTypesAreCountedByLevel) {
  const FlatSpace space{{{"w", {100001}}}, Layout{{4, 4}}};
  const std::int64_t psi = space.padded_size();
  RecordingCollectives recorder{space.layout(), 3, nullptr, {.wire_inner = DType::bf16}};
  reduce(recorder, space, 3);
  EXPECT_EQ(recorder.traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 3 * psi / 4 * 2, .outer = psi / 8 * 4, .calls = 1}));
}

TEST(SchemeBytes, AnElasticSumSendsEveryOwnerItsSlices) {
  for (const auto& sizes : {std::vector{4}, std::vector{2, 2}, std::vector{1, 3}, std::vector{8, 8, 8}}) {
    const Layout layout{sizes};
    const FlatSpace space{{{"w", {100001}}}, layout};
    for (int rank = 0; rank < layout.world(); ++rank) {
      RecordingCollectives recorder{layout, rank, nullptr, {.reduction = Reduction::elastic}};
      reduce(recorder, space, rank);
      const Traffic::Bytes sent = recorder.traffic().by_operation.at("reduce_scatter");
      EXPECT_EQ(sent.inner + sent.outer, (space.padded_size() - space.owned_size(rank)) * 4);
      EXPECT_EQ(sent.outer, space.padded_size() / layout.nodes() * (layout.nodes() - 1) * 4);
    }
  }
}

}  // namespace
}  // namespace argosy::comm
