#include "plan/step_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/small_model.hpp"
#include "unit/plan/op_order.hpp"

namespace argosy::test {
namespace {

using comm::Levels;
using plan::AccumulationOrder, plan::Op, plan::OpKind, plan::PlanChoices, plan::PlanShape, plan::ReduceEvery;
using plan::Scheme, plan::StepPlan, plan::Stream;

// A translation model with a tied embedding (unit 0: source, target, head), two encoder and two decoder blocks.
const PlanShape tied{{{0}, {1}, {2}, {0}, {3}, {4}, {0}}, {false, true, true, true, true}};
// A language model whose embedding and head take turns with three blocks.
const PlanShape untied{{{0}, {1}, {2}, {3}, {4}}, {true, true, true, true, true}};
// The same with a large head.
const PlanShape large_head{{{0}, {1}, {2}, {3}, {4}}, {true, true, true, true, false}};
// Two blocks that share a unit, such as a bias of relative positions (T5).
const PlanShape shared{{{0}, {1, 4}, {2, 4}, {3}}, {true, true, true, true, false}};
const std::vector<PlanShape> shapes{tied, untied, large_head, shared};

std::string text_of(const PlanChoices& choices) {
  return "scheme " + std::to_string(static_cast<int>(choices.scheme)) +
         (choices.order == AccumulationOrder::breadth_first ? " breadth first" : " depth first") +
         (choices.reduce_every == ReduceEvery::micro_batch ? " each" : "") + " A " +
         std::to_string(choices.micro_batches);
}

std::vector<PlanChoices> all_choices() {
  std::vector<PlanChoices> all;
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid})
    for (const int micro_batches : {1, 2, 4}) {
      for (const auto order : {AccumulationOrder::depth_first, AccumulationOrder::breadth_first})
        all.push_back({scheme, order, ReduceEvery::step, micro_batches});
      if (scheme == Scheme::hybrid) continue;
      all.push_back({scheme, AccumulationOrder::depth_first, ReduceEvery::micro_batch, micro_batches});
    }
  return all;
}

/// Runs `check(shape, choices, plan)` for every shape and all choices.
template <class Check>
void for_each_plan(const Check& check) {
  for (const PlanShape& shape : shapes)
    for (const PlanChoices& choices : all_choices()) {
      SCOPED_TRACE(text_of(choices));
      check(shape, choices, plan::plan_step(shape, choices));
    }
}

TEST(StepPlan, WalksMicroBatchesOneByOneOrUnitByUnit) {
  const auto order_of = [](AccumulationOrder order) {
    std::string text;
    for (const Op& op :
         plan::plan_step({{{0}, {1}}, {true, true}}, {Scheme::stage_2, order, ReduceEvery::step, 2}).ops) {
      if (op.visit >= 0)
        text += std::string(1, *boost::describe::enum_to_string(op.kind, "?")) + std::to_string(op.visit) +
                std::to_string(op.micro_batch) + " ";
    }
    return text;
  };
  EXPECT_EQ(order_of(AccumulationOrder::depth_first), "f00 f10 b10 b00 f01 f11 b11 b01 ");
  EXPECT_EQ(order_of(AccumulationOrder::breadth_first), "f00 f01 f10 f11 b10 b11 b00 b01 ");
}

TEST(StepPlan, NothingReadsWhatIsNotThereOrWritesWhatIsStillRead) {
  for_each_plan([](const PlanShape& shape, const PlanChoices&, const StepPlan& plan) {
    const Order order(plan);
    const int visits = static_cast<int>(shape.visit_units.size());
    std::map<std::pair<int, int>, std::size_t> filled;                // weight buffer: its gather
    std::map<std::pair<int, int>, std::vector<std::size_t>> readers;  // of a weight buffer since
    std::map<std::pair<int, int>, std::size_t> reduces;               // of a gradient buffer, the last
    std::map<int, std::vector<std::size_t>> writers;                  // of a unit's gradients since its last reduce
    std::map<int, std::size_t> across;
    std::vector<std::size_t> all_reduces;
    const auto place = [](int buffer, int unit) { return buffer >= 0 ? std::pair{buffer, -1} : std::pair{-1, unit}; };
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      for (const int waited : op.waits_for) {
        ASSERT_LT(waited, static_cast<int>(i)) << "waits for the future";
        const bool copies = op.kind == OpKind::gather && op.levels == Levels::inner;  // what it waits for
        EXPECT_TRUE(copies || plan.ops[static_cast<std::size_t>(waited)].stream != op.stream)
            << "the stream is in order anyway";
      }
      const auto weights = place(op.weights, op.unit), gradients = place(op.gradients, op.unit);
      switch (op.kind) {
        case OpKind::gather:
          EXPECT_EQ(op.stream, Stream::gather);
          if (op.levels == Levels::outer) {
            EXPECT_TRUE(across.emplace(op.unit, i).second) << "across nodes once a step";
            break;
          }
          if (op.levels == Levels::inner) {
            EXPECT_TRUE(order.is_before(across.at(op.unit), i));
          }
          for (const std::size_t reader : readers[weights]) EXPECT_TRUE(order.is_before(reader, i)) << i;
          readers[weights].clear();
          filled[weights] = i;
          break;
        case OpKind::forward:
        case OpKind::backward: {
          for (const std::size_t read : shape.visit_units[static_cast<std::size_t>(op.visit)]) {
            const int unit = static_cast<int>(read);
            const auto from = unit == op.unit ? weights : place(-1, unit);
            ASSERT_TRUE(filled.contains(from));
            EXPECT_EQ(plan.ops[filled[from]].unit, unit) << "reads another unit's weights";
            EXPECT_TRUE(order.is_before(filled[from], i));
            readers[from].push_back(i);
          }
          if (op.kind == OpKind::forward && op.visit + 1 < visits) break;
          for (const std::size_t read : shape.visit_units[static_cast<std::size_t>(op.visit)]) {
            const int unit = static_cast<int>(read);
            const auto reduce = reduces.find(unit == op.unit ? gradients : place(-1, unit));
            if (reduce != reduces.end()) {
              EXPECT_TRUE(order.is_before(reduce->second, i)) << "writes what is being summed";
            }
          }
          for (const auto& [unit, since] : writers) {
            if (unit == op.unit || since.empty() || plan.ops[since.front()].unit != unit) continue;
            const bool shares = op.gradients >= 0 && plan.ops[since.front()].gradients == op.gradients;
            EXPECT_FALSE(shares) << "writes over unit " << unit;
          }
          for (const std::size_t read : shape.visit_units[static_cast<std::size_t>(op.visit)])
            writers[static_cast<int>(read)].push_back(i);
          break;
        }
        case OpKind::reduce:
          EXPECT_EQ(op.stream, Stream::reduce);
          all_reduces.push_back(i);
          if (op.levels == Levels::outer) break;
          EXPECT_FALSE(writers[op.unit].empty());
          for (const std::size_t writer : writers[op.unit]) EXPECT_TRUE(order.is_before(writer, i));
          writers[op.unit].clear();
          reduces[gradients] = i;
          break;
        case OpKind::norm:
          for (const std::size_t reduce : all_reduces) EXPECT_TRUE(order.is_before(reduce, i));
          break;
        case OpKind::to_owners:
        case OpKind::to_shards:
        case OpKind::update:
          EXPECT_EQ(plan.ops[i - static_cast<std::size_t>(op.unit) - 1].kind, OpKind::norm);
          break;
      }
    }
    for (const auto& [unit, since] : writers) EXPECT_TRUE(since.empty()) << "unit " << unit << " is not reduced";
    EXPECT_EQ(plan.ops.back().kind, OpKind::update);
  });
}

/// How often a unit is gathered or reduced at these levels.
int count_of(const StepPlan& plan, OpKind kind, int unit, Levels levels) {
  return static_cast<int>(std::count_if(plan.ops.begin(), plan.ops.end(), [&](const Op& op) {
    return op.kind == kind && op.unit == unit && op.levels == levels;
  }));
}

TEST(StepPlan, ReducesAsOftenAsTheSchemeAsks) {
  for_each_plan([](const PlanShape& shape, const PlanChoices& choices, const StepPlan& plan) {
    for (int unit = 0; unit < 5; ++unit) {
      const bool rotates = shape.rotates[static_cast<std::size_t>(unit)] && choices.scheme != Scheme::stage_1;
      const bool each = choices.reduce_every == ReduceEvery::micro_batch ||
                        (rotates && choices.order == AccumulationOrder::depth_first);
      const bool by_level = rotates && choices.scheme == Scheme::hybrid;
      const int times = each ? choices.micro_batches : 1;
      EXPECT_EQ(count_of(plan, OpKind::reduce, unit, Levels::both), by_level ? 0 : times);
      EXPECT_EQ(count_of(plan, OpKind::reduce, unit, Levels::inner), by_level ? times : 0);
      EXPECT_EQ(count_of(plan, OpKind::reduce, unit, Levels::outer), by_level ? 1 : 0);
      bool first = true;
      for (const Op& op : plan.ops) {
        if (op.kind != OpKind::reduce || op.unit != unit || op.levels == Levels::outer) continue;
        EXPECT_EQ(op.continues, !first);
        first = false;
      }
    }
  });
}

TEST(StepPlan, GathersAUnitAgainOnlyWhereAnotherTookItsBuffer) {
  for (const int micro_batches : {1, 3}) {
    // 2 gathers a micro-batch, less the two units that stay over the turn, and the two that stay for the next one.
    const std::vector<int> rotating{1 + micro_batches, 1 + micro_batches, 2 * micro_batches, micro_batches,
                                    micro_batches};
    for (const Scheme scheme : {Scheme::stage_3, Scheme::hybrid}) {
      const StepPlan plan =
          plan::plan_step(untied, {scheme, AccumulationOrder::depth_first, ReduceEvery::step, micro_batches});
      for (int unit = 0; unit < 5; ++unit) {
        const bool hybrid = scheme == Scheme::hybrid;
        EXPECT_EQ(count_of(plan, OpKind::gather, unit, hybrid ? Levels::inner : Levels::both),
                  rotating[static_cast<std::size_t>(unit)])
            << unit;
        EXPECT_EQ(count_of(plan, OpKind::gather, unit, Levels::outer), hybrid ? 1 : 0);
      }
      const StepPlan breadth =
          plan::plan_step(untied, {scheme, AccumulationOrder::breadth_first, ReduceEvery::step, micro_batches});
      int gathers = 0;
      for (const Op& op : breadth.ops) gathers += op.kind == OpKind::gather && op.levels != Levels::outer ? 1 : 0;
      EXPECT_EQ(gathers, 8);  // 2·5 − 2, however many micro-batches
    }
    for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2}) {
      const StepPlan plan =
          plan::plan_step(tied, {scheme, AccumulationOrder::depth_first, ReduceEvery::step, micro_batches});
      std::vector<int> gathered;
      for (const Op& op : plan.ops)
        if (op.kind == OpKind::gather) gathered.push_back(op.unit);
      EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2, 3, 4})) << "once a step, in forward order";
    }
  }
}

TEST(StepPlan, FetchesTheNextUnitWhileOneComputes) {
  const StepPlan plan = plan::plan_step(untied, {.scheme = Scheme::stage_3});
  // Before a unit's forward or backward the gather of the next one is on its way, and nothing waits for both.
  std::string text;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::gather || op.visit >= 0)
      text += std::string(1, *boost::describe::enum_to_string(op.kind, "?")) + std::to_string(op.unit) + " ";
  }
  EXPECT_EQ(text, "g0 g1 f0 g2 f1 g3 f2 g4 f3 f4 b4 g2 b3 g1 b2 g0 b1 b0 ");
}

TEST(StepPlan, AForwardPlanHasNoGradients) {
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
    for (const PlanShape& shape : shapes) {
      int forwards = 0;
      for (const Op& op : plan::plan_forward(shape, scheme).ops) {
        EXPECT_TRUE(op.kind == OpKind::gather || op.kind == OpKind::forward);
        EXPECT_EQ(op.gradients, -1);
        forwards += op.kind == OpKind::forward ? 1 : 0;
      }
      EXPECT_EQ(forwards, std::ssize(shape.visit_units));
    }
  }
}

TEST(StepPlan, AUnitTakesTurnsWhenItIsVisitedOnceAndNoLargerThanABlock) {
  using enum spec::ModelType;
  const auto shape_of = [](spec::ModelType type, bool tie, std::int64_t vocab) {
    spec::ModelConfig config =
        model_config({.type = type, .width = 32, .ff = 64, .heads = 2, .encoder_layers = 2, .decoder_layers = 2});
    config.tie_embeddings = tie;
    return plan::plan_shape(spec::resolve(config, vocab), partition::Layout{});
  };
  const PlanShape small = shape_of(encoder_decoder, true, 20);
  EXPECT_EQ(std::tuple(small.visit_units, small.rotates), std::tuple(tied.visit_units, tied.rotates));
  const PlanShape separate = shape_of(encoder_decoder, false, 20);
  EXPECT_EQ(separate.visit_units, (std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {3}, {4}, {5}, {6}}));
  EXPECT_EQ(separate.rotates, std::vector<bool>(7, true));
  EXPECT_EQ(plan::turns_of(separate), (std::vector<int>{0, 1, 0, 1, 0, 1, 0}));
  const PlanShape large = shape_of(decoder, false, 9000);
  EXPECT_EQ(large.rotates, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(plan::turns_of(large), (std::vector<int>{-1, 0, 1, -1}));
}

/// Two languages: units 1 and 2 are the encoder of the first, 5 that of the second; the others are shared.
TEST(Components, RanksThatShareAUnitPerformItsCollectivesInOneOrder) {
  const std::vector<std::size_t> components{0, 1, 1, 0, 0, 2};
  const std::vector<bool> rotates{false, true, true, true, true, true};
  const std::array shapes_of_ranks{
      PlanShape{{{0}, {1}, {2}, {0}, {3}, {4}, {0}}, rotates, {}, components},
      PlanShape{{{0}, {5}, {0}, {3}, {4}, {0}}, rotates, {}, components},
      PlanShape{{{0}, {0}, {3}, {4}, {0}}, rotates, {}, components},
  };
  for (PlanChoices choices : all_choices()) {
    if (choices.reduce_every == ReduceEvery::micro_batch) continue;
    SCOPED_TRACE(text_of(choices));
    for (const std::set<std::size_t>& idle : {std::set<std::size_t>{}, {1}, {2}, {1, 2}}) {
      choices.idle = idle;
      const auto of_all = [&](const PlanShape& shape, Stream stream) {
        std::vector<std::tuple<OpKind, int, Levels, bool>> ops;
        for (const Op& op : plan::plan_step(shape, choices).ops) {
          const bool sends = op.kind == OpKind::gather || op.kind == OpKind::reduce;
          EXPECT_FALSE((sends || op.kind == OpKind::update) && idle.contains(op.group));
          EXPECT_EQ(op.group, op.unit < 0 || !sends ? op.group : components[static_cast<std::size_t>(op.unit)]);
          if (sends && op.stream == stream && op.group == 0)
            ops.emplace_back(op.kind, op.unit, op.levels, op.continues);
        }
        return ops;
      };
      for (const Stream stream : {Stream::gather, Stream::reduce}) {
        const auto expected = of_all(shapes_of_ranks[0], stream);
        EXPECT_FALSE(expected.empty());
        for (const std::size_t rank : {1U, 2U}) EXPECT_EQ(of_all(shapes_of_ranks[rank], stream), expected);
      }
    }
  }
}

}  // namespace
}  // namespace argosy::test
