#include "plan/op_cost.hpp"

#include <numeric>

#include "plan_support.hpp"
#include "spec/model_spec.hpp"

namespace argosy::test {
namespace {

using comm::Levels;
using plan::Op;
using plan::OpKind;
using plan::Recompute;
using plan::Scheme;

spec::Architecture translation() {
  spec::ModelConfig config;
  config.width = config.ff = 256;
  config.heads = 4;
  config.encoder.layers = 2;
  config.decoder.layers = 3;
  return spec::resolve(config, 1000);
}

TEST(VisitTimes, RecomputeIsPartOfTheWayBack) {
  const auto ratio = [](Recompute level) {
    const plan::MicroBatch row{.target_positions = 8192, .target_width = 8192};
    const plan::VisitTime block = plan::visit_times(shape_of(mistral()), row, level, 2, *plan::gpu_by_name("h100"))[1];
    return block.backward_s / block.forward_s;
  };
  const double none = ratio(Recompute::none);
  EXPECT_NEAR(none, 2.2, 0.2) << "attention goes back in 3.2 times its way forward";
  EXPECT_NEAR(ratio(Recompute::block), none + 1, 0.05);
  EXPECT_NEAR(ratio(Recompute::full), none + 2 * 4096 * 14336 * 2 / 2 / 218.1e6 * 0.85, 0.15) << "gate and up again";
}

TEST(VisitTimes, ShareOutWhatTheModelTakes) {
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  const plan::MicroBatch row{.target_positions = 8192, .target_width = 8192};
  const plan::MicroBatch pairs{
      .source_positions = 900, .target_positions = 700, .source_width = 30, .target_width = 35};
  for (const auto& [shape, batch] : {std::pair{shape_of(mistral()), row}, {translation(), pairs}}) {
    for (const Recompute level : {Recompute::none, Recompute::activation, Recompute::full, Recompute::block}) {
      const plan::ComputeTime all = plan::compute_time(shape, batch, level, 2, gpu);
      const std::vector<plan::VisitTime> visits = plan::visit_times(shape, batch, level, 2, gpu);
      const bool encoder = shape.encoder_layers > 0;
      EXPECT_EQ(std::ssize(visits), shape.encoder_layers + shape.decoder_layers + (encoder ? 3 : 2));
      double together_s = 0;
      for (const plan::VisitTime& visit : visits) together_s += visit.forward_s + visit.backward_s;
      EXPECT_NEAR(together_s, all.total_s(), 1e-12 * all.total_s());
      EXPECT_EQ(visits.back().backward_s, 0) << "the loss computes its gradients at once";
      EXPECT_GT(visits.back().forward_s, 0);
    }
  }
  const auto visits = plan::visit_times(translation(), pairs, Recompute::none, 2, gpu);
  EXPECT_EQ(visits[1].forward_s, visits[2].forward_s);
  EXPECT_GT(visits[4].forward_s, visits[1].forward_s * 700 / 900) << "a decoder's block looks at the source too";
}

/// 2 nodes of 4, 100 bytes a second out of a node, 1000 inside; no latency.
plan::CostInputs inputs() {
  plan::CostInputs in{.visits = {{1, 2}, {3, 4}}, .update_s = 34};
  in.layout = {.nodes = 2, .ranks_per_node = 4, .units = 99};
  in.layout.links = {.outer_bytes_per_s = 100, .inner_bytes_per_s = 1000, .outer_latency_s = 0, .inner_latency_s = 0};
  in.wire = {.weight = 2, .inner_gradient = 4, .outer_gradient = 8};
  return in;
}

std::vector<partition::FlatSpace> two_units() {
  const partition::Layout layout({4, 4});
  std::vector<partition::FlatSpace> spaces;
  for (const std::int64_t rows : {4096, 3 * 4096}) {
    spaces.emplace_back(std::vector<partition::ParamSpec>{{.name = "w", .shape = {rows}}}, layout);
  }
  return spaces;
}

TEST(OpCost, GivesEachOperationItsShare) {
  plan::CostInputs in = inputs();
  const plan::OpCost cost = plan::op_cost(in, two_units());
  EXPECT_EQ(cost({.kind = OpKind::forward, .visit = 1, .unit = 1}), 3);
  EXPECT_EQ(cost({.kind = OpKind::backward, .visit = 0, .unit = 0}), 2);
  EXPECT_EQ(cost({.kind = OpKind::norm}), 4);
  EXPECT_EQ(cost({.kind = OpKind::update, .unit = 1}), 30 * 3 / 4.0);
  const auto moved = [&](OpKind kind, Levels levels) { return cost({.kind = kind, .unit = 0, .levels = levels}); };
  EXPECT_EQ(moved(OpKind::gather, Levels::both), 4096 * 2 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::gather, Levels::outer), 4096 * 2 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::gather, Levels::inner), 4096 * 2 * 3 / 4 / 1000.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::both), 4096 * 8 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::outer), 4096 * 8 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::inner), 4096 * 4 * 3 / 4 / 1000.0);
  in.reduction = comm::Reduction::elastic;
  EXPECT_EQ(plan::op_cost(in, two_units())({.kind = OpKind::reduce, .unit = 0}), 4.0 * 4096 * 4 / 2 / 100);
}

TEST(OpCost, StartsAMessageForEachPeer) {
  plan::CostInputs in = inputs();
  in.layout.links.outer_latency_s = 1000;
  in.layout.links.inner_latency_s = 1;
  const plan::OpCost cost = plan::op_cost(in, two_units()), without = plan::op_cost(inputs(), two_units());
  const auto latency = [&](Levels levels) {
    const Op op{.kind = OpKind::gather, .unit = 0, .levels = levels};
    return std::round(cost(op) - without(op));
  };
  EXPECT_EQ(latency(Levels::both), 1000 + 3);
  EXPECT_EQ(latency(Levels::inner), 3);
  EXPECT_EQ(latency(Levels::outer), 1000);
}

TEST(Schedule, OfAPlanMovesWhatItSaysAndHidesWhatItCan) {
  plan::PlanTarget where = target(2, 8);
  where.node_bytes_per_s = 5.6e9;
  where.gpu_positions_per_s = 12000;
  const auto plan = plan_json(mistral({"batch.global_size=32", "precision.gradient_wire=bf16"}), where);
  const auto figure = [&](const std::string& scheme, const std::string& name) {
    return number(plan, "/schemes/" + scheme + "/" + name);
  };
  const double computed_s = 2 * 8192 / 12000.0;
  for (const char* scheme : {"stage_1", "stage_2", "stage_3", "hybrid"}) {
    SCOPED_TRACE(scheme);
    const double step_s = figure(scheme, "scheduled/step_s"), exposed_s = figure(scheme, "scheduled/exposed_s");
    EXPECT_NEAR(step_s - exposed_s, computed_s, 1e-9) << "the rate that is given";
    const double sent_s = figure(scheme, "scheduled/node_bytes") / 5.6e9;
    EXPECT_GE(step_s, sent_s) << "a link carries no more than it can";
    EXPECT_LE(step_s, sent_s + computed_s + 0.01);
    EXPECT_LE(figure(scheme, "scheduled/node_bytes"), figure(scheme, "node_bytes"));
  }
  EXPECT_EQ(figure("stage_1", "scheduled/node_bytes"), figure("stage_1", "node_bytes"));
  EXPECT_LT(figure("stage_3", "scheduled/node_bytes"), figure("stage_3", "node_bytes"));
  EXPECT_EQ(figure("hybrid", "scheduled/node_bytes"), figure("hybrid", "node_bytes"));
  // All hidden but the ends where the link is fast: within 2 % of the formulas.
  const auto fast = plan_json(mistral(), target(16, 8));
  for (const char* scheme : {"stage_1", "stage_2", "stage_3", "hybrid"}) {
    const double formula = number(fast, std::string("/schemes/") + scheme + "/step_s"),
                 scheduled = number(fast, std::string("/schemes/") + scheme + "/scheduled/step_s");
    EXPECT_NEAR(scheduled, formula, 0.02 * formula) << scheme;
    EXPECT_GT(scheduled, formula) << "the first gather and the last reduction show";
  }
  EXPECT_EQ(plan.at_pointer("/schemes/hsdp").as_object().if_contains("scheduled"), nullptr) << "not ours to run";
}

TEST(Schedule, FollowsTheOrderOfAccumulation) {
  const auto node_bytes = [](const char* order, int global) {
    return number(plan_json(mistral({std::string("sharding.accumulation_order=") + order,
                                     fmt::format("batch.global_size={}", global)}),
                            target(2, 8)),
                  "/schemes/stage_3/scheduled/node_bytes");
  };
  EXPECT_EQ(node_bytes("breadth_first", 64), node_bytes("breadth_first", 16));
  EXPECT_GT(node_bytes("depth_first", 64), 3 * node_bytes("depth_first", 16));
}

TEST(Schedule, OfElasticSumsCostsTheRanksOfANodeAsOften) {
  const auto node_bytes = [](const char* reduction, const char* scheme) {
    const auto plan = plan_json(
        mistral({"batch.global_size=32", std::string("sharding.reduction=") + reduction, "precision.mode=fp32"}),
        target(2, 8));
    const auto& object = plan.at_pointer(std::string("/schemes/") + scheme).as_object();
    return object.contains("scheduled") ? object.at("scheduled").at("node_bytes").to_number<double>() : 0;
  };
  const double psi = 7'241'732'096;
  EXPECT_NEAR(node_bytes("exact", "stage_1"), psi / 2 * (4 + 4), 1e-4 * psi);
  EXPECT_NEAR(node_bytes("elastic", "stage_1"), psi / 2 * (2 * 8 * 4 + 4), 1e-3 * psi) << "A x G x the bytes";
  EXPECT_EQ(node_bytes("elastic", "hybrid"), 0) << "knows no levels";
  const auto scratch = [](const char* reduction) {
    return number(plan_json(mistral({std::string("sharding.reduction=") + reduction}), target(2, 8)),
                  "/schemes/stage_1/scratch_bytes");
  };
  EXPECT_NEAR(scratch("elastic"), 15 / 16.0 * 4 * 218'112'000, 1e-3 * 4 * 218'112'000);
}

}  // namespace
}  // namespace argosy::test
