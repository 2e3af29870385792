// Choices of training against each other: every pair of values here, all of them where ARGOSY_FULL_MATRIX is set.

#include <cstdlib>
#include <map>

#include "mpi/train/rank.hpp"
#include "support/pairwise.hpp"

namespace argosy::test {
namespace {

using plan::AccumulationOrder, plan::Scheme;

struct Cell {
  Hierarchy hierarchy = Hierarchy::flat;
  Scheme scheme = Scheme::stage_1;
  int accumulation = 1;
  AccumulationOrder order = AccumulationOrder::depth_first;
  comm::Reduction reduction = comm::Reduction::exact;
  DType wire = DType::f32;
  at::ScalarType type = at::kFloat;
};

Cell cell_of(const std::vector<int>& at) {
  return {.hierarchy = hierarchies()[static_cast<std::size_t>(at[0])],
          .scheme = all_schemes[static_cast<std::size_t>(at[1])],
          .accumulation = 1 << at[2],
          .order = at[3] == 0 ? AccumulationOrder::depth_first : AccumulationOrder::breadth_first,
          .reduction = at[4] == 0 ? comm::Reduction::exact : comm::Reduction::fast,
          .wire = at[5] == 0 ? DType::f32 : DType::bf16,
          .type = at[6] == 0 ? at::kFloat : at::kBFloat16};
}

std::string text_of(const Cell& cell) {
  return fmt::format("{} A{} {} {} wire {}", name_of(cell.hierarchy), cell.accumulation,
                     text_of(Training{.scheme = cell.scheme, .order = cell.order, .type = cell.type}),
                     boost::describe::enum_to_string(cell.reduction, ""), name_of(cell.wire));
}

struct Outcome {
  std::vector<double> initial, gradient;  // weights before the first step; its gradient
  std::vector<double> weights;            // behind the second
  double loss = 0;                        // of the second
};

Outcome train(Rank& rank, const spec::Architecture& shape, int micro_batches) {
  Outcome outcome;
  outcome.initial = rank.weights();
  rank.poison();
  (void)rank.step(uneven_batches(shape, micro_batches, 0), 1e-3);
  outcome.gradient = rank.gradient();
  rank.poison();
  outcome.loss = rank.step(uneven_batches(shape, micro_batches, 1), 1e-3).loss_sum;
  outcome.weights = rank.weights();
  return outcome;
}

TEST(Matrix, EveryChoiceTrainsLikeOneRankAlone) {
  const spec::Architecture shape = small_shape(0.1, false);
  const std::vector<int> sizes{static_cast<int>(hierarchies().size()), 4, 3, 2, 2, 2, 2};
  const bool full = std::getenv("ARGOSY_FULL_MATRIX") != nullptr;
  std::map<std::pair<int, at::ScalarType>, Outcome> alone;
  for (const std::vector<int>& at : full ? product(sizes) : pairwise(sizes)) {
    const Cell cell = cell_of(at);
    SCOPED_TRACE(text_of(cell));
    const int micro_batches = cell.accumulation * world().size();
    Outcome& expected = alone[{cell.accumulation, cell.type}];
    if (expected.gradient.empty()) {
      Rank rank{shape, {.type = cell.type}};
      expected = train(rank, shape, micro_batches);
    }
    const comm::Topology& where = topology(cell.hierarchy);
    const auto outcome_of = [&](Scheme scheme, comm::Reduction reduction) {
      const auto collectives =
          comm::make_mpi_collectives(where, {.reduction = reduction, .wire_inner = cell.wire, .wire_outer = cell.wire});
      const Training training{.scheme = scheme, .order = cell.order, .type = cell.type};
      Rank rank{shape, where.layout(), where.canonical_rank(), *collectives, training};
      return train(rank, shape, micro_batches);
    };
    const Outcome outcome = outcome_of(cell.scheme, cell.reduction);
    EXPECT_TRUE(outcome.initial == expected.initial);
    // A bf16 wire rounds every contribution, and in fast sums every hop, to 2^-9 of itself.
    const double tolerance = cell.wire == DType::f32 ? 2e-6 : 1.0 / 128;
    EXPECT_LT(distance(outcome.gradient, expected.gradient), tolerance);
    EXPECT_NEAR(outcome.loss, expected.loss, 10 * tolerance * expected.loss);
    const bool nests_alike = cell.accumulation == 1 || cell.order == AccumulationOrder::breadth_first;
    if (cell.reduction != comm::Reduction::exact || !nests_alike || cell.scheme == Scheme::stage_1) continue;
    EXPECT_TRUE(outcome.weights == outcome_of(Scheme::stage_1, comm::Reduction::exact).weights);
  }
}

TEST(Matrix, PairwiseCellsHoldEveryPair) {
  const std::vector<int> sizes{7, 4, 3, 2, 2};
  const std::vector<std::vector<int>> cells = pairwise(sizes);
  EXPECT_LT(cells.size(), 40U);
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b) {
      std::set<std::pair<int, int>> pairs;
      for (const std::vector<int>& cell : cells) pairs.emplace(cell[a], cell[b]);
      EXPECT_EQ(std::ssize(pairs), sizes[a] * sizes[b]);
    }
}

}  // namespace
}  // namespace argosy::test
