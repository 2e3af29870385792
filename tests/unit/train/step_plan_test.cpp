#include "train/step_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace argosy::test {
namespace {

using train::Op;
using train::OpKind;
using train::StepPlan;

// A translation model with a tied embedding (unit 0: source, target, head), two encoder and two decoder blocks.
const std::vector<std::size_t> tied{0, 1, 2, 0, 3, 4, 0};
const std::vector<std::size_t> untied{0, 1, 2, 3};

std::vector<int> places_of(const StepPlan& plan, OpKind kind, int unit) {
  std::vector<int> places;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind == kind && plan.ops[i].unit == unit) places.push_back(static_cast<int>(i));
  }
  return places;
}

TEST(StepPlan, WalksEachMicroBatchForwardThenBack) {
  const StepPlan plan = train::plan_stage_1(untied, 4, 2);
  std::vector<std::string> walk;
  for (const Op& op : plan.ops) {
    if (op.visit >= 0) walk.push_back(std::string(train::name_of(op.kind).substr(0, 1)) + std::to_string(op.visit));
  }
  const std::vector<std::string> once{"f0", "f1", "f2", "f3", "b3", "b2", "b1", "b0"};
  std::vector<std::string> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_EQ(walk, twice);
}

TEST(StepPlan, ReducesAUnitOnceBehindItsLastBackward) {
  for (const int micro_batches : {1, 3}) {
    const StepPlan plan = train::plan_stage_1(tied, 5, micro_batches);
    for (int unit = 0; unit < 5; ++unit) {
      const std::vector<int> reduces = places_of(plan, OpKind::reduce, unit);
      ASSERT_EQ(reduces.size(), 1U) << unit;
      EXPECT_GT(reduces[0], places_of(plan, OpKind::backward, unit).back());
      EXPECT_EQ(plan.ops[static_cast<std::size_t>(reduces[0])].waits_for,
                places_of(plan, OpKind::backward, unit).back());
      const auto back = static_cast<std::size_t>(places_of(plan, OpKind::backward, unit).back());
      EXPECT_EQ(plan.ops[back].micro_batch, micro_batches - 1);
    }
    EXPECT_EQ(places_of(plan, OpKind::reduce, 0)[0], places_of(plan, OpKind::backward, 0).back() + 1);
  }
}

TEST(StepPlan, MayReduceEveryMicroBatchAndThenWaitsBeforeItWritesTheBufferAgain) {
  const StepPlan plan = train::plan_stage_1(tied, 5, 3, train::ReduceEvery::micro_batch);
  EXPECT_EQ(plan.reduce_every, train::ReduceEvery::micro_batch);
  for (int unit = 0; unit < 5; ++unit) {
    const std::vector<int> reduces = places_of(plan, OpKind::reduce, unit);
    ASSERT_EQ(reduces.size(), 3U) << unit;
    std::size_t done = 0;  // reduces passed on the way through the list
    bool waited = true;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      if (op.unit != unit) continue;
      if (op.kind == OpKind::backward) {
        waited = waited || op.waits_for == reduces[done - 1];
        EXPECT_TRUE(waited) << "writes what is being summed";
      }
      if (op.kind == OpKind::reduce) {
        EXPECT_EQ(op.micro_batch, static_cast<int>(done));
        ++done;
        waited = false;
      }
      if (op.kind == OpKind::update) {
        EXPECT_EQ(op.waits_for, reduces[2]);
      }
    }
  }
}

TEST(StepPlan, NoBufferIsUsedAgainBeforeItsReduceAndEveryCrossingWaits) {
  const StepPlan plan = train::plan_stage_1(tied, 5, 2);
  std::map<int, int> reduced, updated;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const int at = static_cast<int>(i);
    ASSERT_LT(op.waits_for, at) << "waits for the future";
    if (op.waits_for >= 0) {
      EXPECT_NE(plan.ops[static_cast<std::size_t>(op.waits_for)].stream, op.stream)
          << at << ": the stream is in order anyway";
    }
    EXPECT_FALSE(op.kind == OpKind::backward && reduced.contains(op.buffer)) << "writes what is being summed";
    if (op.kind == OpKind::reduce) {
      EXPECT_TRUE(reduced.emplace(op.buffer, at).second);
    }
    if (op.kind == OpKind::norm) {
      EXPECT_EQ(reduced.size(), 5U) << "the norm sees every unit";
      for (const auto& [buffer, place] : reduced) EXPECT_LE(place, op.waits_for);
    }
    if (op.kind == OpKind::update) {
      ASSERT_TRUE(reduced.contains(op.buffer));
      updated[op.unit] = at;
    }
    if (op.kind == OpKind::gather) {
      EXPECT_EQ(op.waits_for, updated.at(op.unit));
    }
  }
  EXPECT_EQ(updated.size(), 5U);
}

TEST(StepPlan, GathersInForwardOrder) {
  const StepPlan plan = train::plan_stage_1(tied, 5, 1);
  std::vector<int> gathered;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::gather) gathered.push_back(op.unit);
  }
  EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace argosy::test
