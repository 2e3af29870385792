#include "plan/simulation.hpp"

#include <map>

#include "formulas.hpp"
#include "support/replay.hpp"
#include "support/small_model.hpp"

namespace argosy::test {
namespace {

using comm::Levels;
using formulas::spaces_of;
using plan::AccumulationOrder, plan::Op, plan::OpKind, plan::PlanShape, plan::Scheme;
using plan::StepPlan, plan::Stream;

constexpr Scheme schemes[] = {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid};
constexpr AccumulationOrder orders[] = {AccumulationOrder::depth_first, AccumulationOrder::breadth_first};

/// Four units that take turns, or all have buffers of their own.
const PlanShape four{{{0}, {1}, {2}, {3}}, {true, true, true, true}};

/// Seconds by kind; a reduction or gather inside a node or between nodes takes `inner_s`, `outer_s` of one of both.
struct Costs {
  double forward_s = 1, backward_s = 2, gather_s = 0, reduce_s = 0, norm_s = 0, update_s = 0;
  double inner = 0.5, outer = 0.5;
};

plan::OpCost cost(const Costs& costs) {
  const std::map<OpKind, double> seconds{{OpKind::gather, costs.gather_s},     {OpKind::forward, costs.forward_s},
                                         {OpKind::backward, costs.backward_s}, {OpKind::reduce, costs.reduce_s},
                                         {OpKind::norm, costs.norm_s},         {OpKind::update, costs.update_s}};
  return [costs, seconds](const Op& op) {
    const bool moves = op.kind == OpKind::gather || op.kind == OpKind::reduce;
    const double share = op.levels == Levels::both ? 1 : op.levels == Levels::inner ? costs.inner : costs.outer;
    return seconds.at(op.kind) * (moves ? share : 1);
  };
}

StepPlan plan_of(Scheme scheme, int micro_batches = 1, AccumulationOrder order = AccumulationOrder::depth_first,
                 const PlanShape& shape = four) {
  return plan::plan_step(shape, {.scheme = scheme, .order = order, .micro_batches = micro_batches});
}

double exposed(Scheme scheme, const Costs& costs, int micro_batches = 1,
               AccumulationOrder order = AccumulationOrder::depth_first) {
  return test::replay(plan_of(scheme, micro_batches, order), cost(costs)).exposed_s();
}

TEST(Replay, FollowsStreamsAndWaits) {
  const StepPlan plan{.ops = {{.kind = OpKind::gather, .stream = Stream::gather, .unit = 0},
                              {.kind = OpKind::gather, .stream = Stream::gather, .unit = 1},
                              {.kind = OpKind::forward, .visit = 0, .unit = 0, .waits_for = {0}},
                              {.kind = OpKind::forward, .visit = 1, .unit = 1, .waits_for = {1}},
                              {.kind = OpKind::backward, .visit = 1, .unit = 1},
                              {.kind = OpKind::reduce, .stream = Stream::reduce, .unit = 1, .waits_for = {4}},
                              {.kind = OpKind::backward, .visit = 0, .unit = 0},
                              {.kind = OpKind::reduce, .stream = Stream::reduce, .unit = 0, .waits_for = {6}},
                              {.kind = OpKind::norm, .waits_for = {7}}}};
  const Replay replay =
      test::replay(plan, cost({.forward_s = 2, .backward_s = 5, .gather_s = 3, .reduce_s = 7, .norm_s = 1}));
  const std::vector<std::pair<double, double>> expected{{0, 3},   {3, 6},   {3, 5},   {6, 8},  {8, 13},
                                                        {13, 20}, {13, 18}, {20, 27}, {27, 28}};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::pair(replay.ops[i].begin_s, replay.ops[i].end_s), expected[i]) << i;
  EXPECT_EQ(std::tuple(replay.step_s, replay.compute_s, replay.exposed_s()),
            std::tuple(28, 2 * 2 + 2 * 5 + 1, 28 - 15));
}

TEST(Replay, OnlyTheEndsOfStageOneShow) {
  const Costs costs{.gather_s = 0.75, .reduce_s = 1.5, .norm_s = 10, .update_s = 20};
  // The first gather and the last reduction; everything else runs during forward and backward.
  EXPECT_EQ(exposed(Scheme::stage_1, costs), 0.75 + 1.5);
  EXPECT_EQ(exposed(Scheme::stage_1, costs, 4), 0.75 + 1.5) << "once a step";
  EXPECT_EQ(test::replay(plan_of(Scheme::stage_1, 4), cost(costs)).compute_s, 4 * 4 * (1 + 2) + 10 + 4 * 20);
}

TEST(Replay, StageOneWaitsForALinkSlowerThanComputing) {
  // Forward of the last unit behind four gathers; four reductions behind the first backward.
  EXPECT_EQ(exposed(Scheme::stage_1, {.gather_s = 10, .reduce_s = 20}), (4 * 10 + 1 - 4) + (2 + 4 * 20 - 4 * 2));
}

TEST(Replay, StageTwoWaitsForItsGradientBuffers) {
  // Backward 3 and 2 at once; 1 behind the reduction of 3, 0 behind that of 2, two more reductions behind it.
  EXPECT_EQ(exposed(Scheme::stage_2, {.reduce_s = 10}), 2 + 4 * 10 - 4 * 2);
  // The next micro-batch's backward finds the reductions of the one before.
  EXPECT_EQ(exposed(Scheme::stage_2, {.reduce_s = 1}, 3), 1);
  EXPECT_EQ(exposed(Scheme::stage_2, {.reduce_s = 10}, 2), (1 * 4 + 2 + 8 * 10) - 2 * 4 * (1 + 2));
  EXPECT_EQ(exposed(Scheme::stage_2, {.reduce_s = 10}, 2, AccumulationOrder::breadth_first),
            2 * 2 + 4 * 10 - 4 * 2 * 2);
}

TEST(Replay, StageThreeGathersTheNextUnitBesideThisOne) {
  // Hidden but for the first: a gather is as long as a forward, half a backward.
  EXPECT_EQ(exposed(Scheme::stage_3, {.gather_s = 1}), 1);
  // Four gathers forward, the last two units stay; on the way back the gather of 1 begins behind backward 3, and 0's
  // behind it: backward 2 runs meanwhile, backward 1 during the gather of 0.
  const double forward_s = 4 * 10 + 1, backward_s = 2 + 2 * 10 + 2;
  EXPECT_EQ(exposed(Scheme::stage_3, {.gather_s = 10}), forward_s + backward_s - 4 * (1 + 2));
  EXPECT_EQ(exposed(Scheme::stage_3, {.gather_s = 10, .reduce_s = 1}), forward_s + backward_s + 1 - 4 * (1 + 2));
  // Breadth first a gather has all micro-batches to hide under.
  EXPECT_EQ(exposed(Scheme::stage_3, {.gather_s = 4}, 4, AccumulationOrder::breadth_first), 4);
  EXPECT_GT(exposed(Scheme::stage_3, {.gather_s = 4}, 4), 4);
}

TEST(Replay, HybridSendsAcrossNodesBesideWhatItSendsInside) {
  const Costs inside{.gather_s = 0.5, .reduce_s = 0.5, .inner = 1, .outer = 0};
  EXPECT_EQ(exposed(Scheme::hybrid, inside), exposed(Scheme::stage_3, {.gather_s = 0.5, .reduce_s = 0.5}));
  // Across nodes once a step: one unit's gather before the first forward, one unit's reduction behind the last
  // backward.
  const Costs across{.gather_s = 0.5, .reduce_s = 1, .inner = 0, .outer = 1};
  EXPECT_EQ(exposed(Scheme::hybrid, across, 1), 0.5 + 1);
  EXPECT_EQ(exposed(Scheme::hybrid, across, 4), 0.5 + 1);
}

TEST(Replay, AHostThatComputesStartsNothingAhead) {
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3}) {
    const Costs costs{.gather_s = 5, .reduce_s = 3, .norm_s = 1, .update_s = 1};
    const StepPlan plan = plan_of(scheme, 2);
    EXPECT_EQ(test::replay(plan, cost(costs), Computes::host).step_s, test::replay(plan, cost(costs)).step_s);
  }
  // gather 0, 1; forward 0; gather 2 is issued when forward 0 has ended, though its stream and its buffer are free.
  const StepPlan plan{.ops = {{.kind = OpKind::gather, .stream = Stream::gather, .unit = 0},
                              {.kind = OpKind::forward, .visit = 0, .unit = 0, .waits_for = {0}},
                              {.kind = OpKind::gather, .stream = Stream::gather, .unit = 1}}};
  const Costs costs{.gather_s = 1, .norm_s = 0};
  EXPECT_EQ(test::replay(plan, cost(costs)).step_s, 2);
  EXPECT_EQ(test::replay(plan, cost(costs), Computes::host).step_s, 3);
}

TEST(Replay, SharedLinksTakeTurnsWithTheirBandwidth) {
  const auto two = [](Levels gather, Levels reduce) {
    return StepPlan{.ops = {{.kind = OpKind::gather, .stream = Stream::gather, .unit = 0, .levels = gather},
                            {.kind = OpKind::reduce, .stream = Stream::reduce, .unit = 1, .levels = reduce},
                            {.kind = OpKind::forward, .visit = 0, .unit = 0, .waits_for = {0}}}};
  };
  const Costs costs{.gather_s = 2, .reduce_s = 6, .inner = 1, .outer = 1};
  const auto ends = [&](Levels gather, Levels reduce) {
    const Replay replay = plan::replay_on_shared_links(two(gather, reduce), cost(costs));
    EXPECT_EQ(replay.compute_s, 1);
    EXPECT_EQ(replay.step_s, replay.ops[1].end_s);
    return std::array{replay.ops[0].end_s, replay.ops[1].end_s, replay.ops[2].end_s};
  };
  // Both at half speed until the gather is through after 4 s; 4 of the reduction's 6 s are left then.
  EXPECT_EQ(ends(Levels::both, Levels::both), (std::array{4.0, 8.0, 5.0}));
  EXPECT_EQ(ends(Levels::inner, Levels::both), (std::array{4.0, 8.0, 5.0}));
  EXPECT_EQ(ends(Levels::inner, Levels::inner), (std::array{4.0, 8.0, 5.0}));
  EXPECT_EQ(ends(Levels::inner, Levels::outer), (std::array{2.0, 6.0, 3.0}));
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2}) {  // never both at one time
    const StepPlan plan = plan_of(scheme, 3);
    const Costs slow{.gather_s = 5, .reduce_s = 3, .norm_s = 1, .update_s = 2};
    EXPECT_EQ(plan::replay_on_shared_links(plan, cost(slow)).step_s, test::replay(plan, cost(slow)).step_s);
  }
  const Costs both{.gather_s = 5, .reduce_s = 5};
  EXPECT_GT(plan::replay_on_shared_links(plan_of(Scheme::stage_3), cost(both)).step_s,
            test::replay(plan_of(Scheme::stage_3), cost(both)).step_s);
}

/// Tied and untied, with and without an encoder, large and small embeddings.
std::vector<spec::Architecture> models() {
  std::vector<spec::Architecture> all;
  for (const bool has_encoder : {true, false})
    for (const bool tied : {true, false})
      for (const std::int64_t vocab : {64, 4096}) {
        const auto type = has_encoder ? spec::ModelType::encoder_decoder : spec::ModelType::decoder;
        spec::ModelConfig config =
            model_config({.type = type, .width = 256, .ff = 256, .heads = 4, .encoder_layers = 3, .decoder_layers = 5});
        config.tie_embeddings = tied;
        all.push_back(spec::resolve(config, vocab));
      }
  return all;
}

const std::vector<std::vector<int>> layouts{{1}, {2}, {2, 2}, {1, 2}, {1, 3}, {3, 2, 3}};

TEST(Replay, UsesTheBuffersThatArePlanned) {
  for (const spec::Architecture& shape : models()) {
    const partition::Layout layout({2, 2});
    const PlanShape units = plan::plan_shape(shape, layout);
    const plan::SpaceSizes sizes = plan::space_sizes(shape, layout);
    for (const Scheme scheme : schemes) {
      const plan::StateMemory state = plan::state_memory(sizes, {.scheme = scheme});
      for (const int micro_batches : {1, 2, 4}) {
        for (const AccumulationOrder order : orders) {
          const StepPlan plan = plan_of(scheme, micro_batches, order, units);
          for (const double link_s : {0.25, 8.0}) {
            const Replay replay = test::replay(plan, cost({.gather_s = link_s, .reduce_s = link_s}));
            const RotatingUse use = rotating_use(plan, replay);
            EXPECT_EQ(use.weights * sizes.rotating * 2, state.rotating_weights);
            EXPECT_EQ(use.gradients * sizes.rotating * 4, state.rotating_gradients);
          }
        }
      }
    }
  }
}

TEST(Replay, ABufferIsInUseUntilItsReductionEnds) {
  const auto backward = [](int buffer) {
    return Op{.kind = OpKind::backward, .visit = 0, .unit = buffer, .gradients = buffer};
  };
  const auto reduce = [](int buffer, int behind) {
    return Op{
        .kind = OpKind::reduce, .stream = Stream::reduce, .unit = buffer, .gradients = buffer, .waits_for = {behind}};
  };
  // Buffer 0 is free again while buffer 1 is in use: each backward waits for the reduction before it.
  StepPlan plan{.ops = {backward(0), reduce(0, 0), backward(1), reduce(1, 2), backward(0), reduce(0, 4)}};
  plan.ops[2].waits_for = {1};
  plan.ops[4].waits_for = {3};
  const auto use = [&] { return rotating_use(plan, test::replay(plan, cost({.reduce_s = 1}))).gradients; };
  EXPECT_EQ(use(), 1);
  plan.ops[4].waits_for = {};
  EXPECT_EQ(use(), 2);
}

/// Passes over the units that the formulas count and the schedule does without.
struct Spared {
  std::int64_t gathers = 0, reduces = 0;
};
Spared spared(Scheme scheme, const PlanShape& units, std::size_t unit, std::int64_t accumulation, bool breadth) {
  const std::int64_t times = breadth ? 1 : accumulation;
  std::vector<std::size_t> rotating;
  for (const std::vector<std::size_t>& read : units.visit_units) {
    const std::size_t each = read.front();
    if (units.rotates[each]) rotating.push_back(each);
  }
  const bool in_hybrid = scheme == Scheme::hybrid;
  Spared less;
  if (!units.rotates[unit]) {  // gathered and reduced once a step
    if (plan::rotates_weights(scheme)) less.gathers = 2 * times - (in_hybrid ? 0 : 1);
    if (plan::rotates_gradients(scheme)) less.reduces = times - 1;
    return less;
  }
  if (!plan::rotates_weights(scheme)) return less;
  // Over each turn the last two stay, from one micro-batch to the next the first two.
  if (std::find(rotating.end() - 2, rotating.end(), unit) != rotating.end()) less.gathers += times;
  if (std::find(rotating.begin(), rotating.begin() + 2, unit) != rotating.begin() + 2) less.gathers += times - 1;
  if (in_hybrid) ++less.gathers;  // the first forward's is the one behind the step between nodes
  return less;
}

TEST(PlannedTraffic, IsTheFormulasLessWhatStaysWhereItIs) {
  const plan::WireBytes wire{.weight = 2, .inner_gradient = 4, .outer_gradient = 2};
  for (const spec::Architecture& shape : models()) {
    for (const std::vector<int>& nodes : layouts) {
      const partition::Layout layout(nodes);
      const PlanShape units = plan::plan_shape(shape, layout);
      const std::vector<partition::FlatSpace> spaces = spaces_of(shape, layout);
      for (const Scheme scheme : schemes)
        for (const int accumulation : {1, 3})
          for (const AccumulationOrder order : orders) {
            SCOPED_TRACE(
                fmt::format("scheme {}, {} nodes, A {}", static_cast<int>(scheme), nodes.size(), accumulation));
            const bool breadth = order == AccumulationOrder::breadth_first;
            const auto formula = static_cast<formulas::Scheme>(static_cast<int>(scheme) + 1);  // they know ddp as well
            const formulas::Passes passes = formulas::passes_of(formula, accumulation, order);
            const bool once_across = scheme == Scheme::hybrid;
            const formulas::Sent expected(layout, [&](int rank) {
              comm::Traffic::Bytes sent;
              for (std::size_t u = 0; u < spaces.size(); ++u) {
                const Spared less = spared(scheme, units, u, accumulation, breadth);
                const auto gather = comm::all_gather_bytes(spaces[u], rank, wire.weight);
                const auto reduce =
                    comm::reduce_scatter_bytes(spaces[u], rank, wire.inner_gradient, wire.outer_gradient);
                sent.inner += (passes.inner_gathers - less.gathers) * gather.inner +
                              (passes.inner_reduces - less.reduces) * reduce.inner;
                sent.outer += (passes.outer_gathers - (once_across ? 0 : less.gathers)) * gather.outer +
                              (passes.outer_reduces - (once_across ? 0 : less.reduces)) * reduce.outer;
              }
              return sent;
            });
            const auto planned = plan::planned_traffic(plan_of(scheme, accumulation, order, units), spaces, wire,
                                                       comm::Reduction::exact);
            EXPECT_EQ(planned.rank(), expected.most.inner + expected.most.outer);
            EXPECT_EQ(planned.rank_inner, expected.most.inner);
            EXPECT_EQ(planned.node, std::ranges::max(expected.left));
          }
    }
  }
}

TEST(PlannedTraffic, OfOthersIsTheirFormulasLessWhatStaysInsideANode) {
  const plan::WireBytes wire{.weight = 2, .inner_gradient = 4, .outer_gradient = 4};
  const spec::Architecture shape = models().front();
  for (const std::vector<int>& nodes : {std::vector{1}, {4}, {2, 2}, {4, 4, 4}}) {
    const partition::Layout layout(nodes);
    const std::vector<partition::FlatSpace> spaces = spaces_of(shape, layout);
    const plan::SpaceSizes sizes = plan::space_sizes(shape, layout);
    for (const plan::Comparison other : {plan::Comparison::ddp, plan::Comparison::hsdp}) {
      const bool is_ddp = other == plan::Comparison::ddp;
      const int accumulation = 3;
      const auto formula = formulas::step_traffic(
          sizes, formulas::passes_of(is_ddp ? formulas::Scheme::ddp : formulas::Scheme::hsdp, accumulation, orders[0]),
          wire);
      const auto planned =
          plan::planned_traffic(plan_of(plan::like(other), accumulation, orders[0], plan::plan_shape(shape, layout)),
                                spaces, wire, comm::Reduction::exact, other);
      SCOPED_TRACE(layout.world());
      EXPECT_EQ(std::tuple(planned.node, planned.rank_outer), std::tuple(formula.node, formula.rank_outer));
      if (is_ddp) {
        EXPECT_EQ(planned.rank_inner, formula.rank_inner);
      }
      EXPECT_LE(planned.rank_inner, formula.rank_inner);
      EXPECT_GE(2 * planned.rank_inner, formula.rank_inner);
    }
  }
}

TEST(PlannedTraffic, CountsElasticSumsAsTheyAreSent) {
  const spec::Architecture shape = models().front();
  for (const std::vector<int>& nodes : layouts) {
    const partition::Layout layout(nodes);
    const std::vector<partition::FlatSpace> spaces = spaces_of(shape, layout);
    const int accumulation = 3;
    const StepPlan plan =
        plan::plan_step(plan::plan_shape(shape, layout),
                        {.reduce_every = plan::ReduceEvery::micro_batch, .micro_batches = accumulation});
    const formulas::Sent sent(layout, [&](int rank) {
      comm::Traffic::Bytes bytes;
      for (const partition::FlatSpace& space : spaces) {
        for (int a = 0; a < accumulation; ++a) bytes += comm::elastic_bytes(space, rank);
        bytes += comm::all_gather_bytes(space, rank, 4);
      }
      return bytes;
    });
    const auto planned = plan::planned_traffic(plan, spaces, {4, 4, 4}, comm::Reduction::elastic);
    EXPECT_EQ(planned.rank(), sent.most.inner + sent.most.outer) << layout.world();
    EXPECT_EQ(std::tuple(planned.rank_outer, planned.node), std::tuple(sent.most.outer, std::ranges::max(sent.left)));
  }
}

}  // namespace
}  // namespace argosy::test
