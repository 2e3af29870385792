#include "plan/scheme_plan.hpp"

#include "formulas.hpp"
#include "plan_support.hpp"

namespace argosy::test {
namespace {

constexpr std::pair<const char*, formulas::Scheme> compared[] = {{"stage_1", formulas::Scheme::stage_1},
                                                                 {"stage_2", formulas::Scheme::stage_2},
                                                                 {"stage_3", formulas::Scheme::stage_3},
                                                                 {"hybrid", formulas::Scheme::hybrid}};

TEST(SchemePlan, SendsWhatItMustAndHidesWhatItCan) {
  plan::PlanTarget where = target(2, 8);
  where.node_bytes_per_s = 5.6e9;
  where.gpu_positions_per_s = 12000;
  const auto config = mistral({"batch.global_size=32", "precision.gradient_wire=bf16"});
  const auto plan = plan_json(config, where);
  const double computed_s = 2 * 8192 / 12000.0;
  for (const auto& [scheme, formula] : compared) {
    SCOPED_TRACE(scheme);
    const auto figure = [&](const char* name) { return number(plan, fmt::format("/schemes/{}/{}", scheme, name)); };
    EXPECT_NEAR(figure("step_s") - figure("exposed_s"), computed_s, 1e-9) << "the rate that is given";
    const double sent_s = figure("node_bytes") / 5.6e9;
    EXPECT_GE(figure("step_s"), sent_s) << "a link carries no more than it can";
    EXPECT_LE(figure("step_s"), sent_s + computed_s + 0.01);
    const auto every_time = static_cast<double>(formulas::traffic_of(config, where, formula).node);
    if (formula == formulas::Scheme::stage_3) {  // which keeps what it will need again
      EXPECT_LT(figure("node_bytes"), every_time);
    } else {
      EXPECT_EQ(figure("node_bytes"), every_time);
    }
  }
}

TEST(SchemePlan, AgreesWithTheFormulasWhereLinksAreFast) {
  const auto config = mistral();
  const plan::PlanTarget where = target(16, 8);
  const auto plan = plan_json(config, where);
  const auto sizes = plan::space_sizes(shape_of(config), where.layout);
  for (const auto& [scheme, formula] : compared) {
    const double expected =
        formulas::step_time(formula, formulas::inputs_of(config, where)) +
        plan::optimizer_time({.elements = sizes.all.owned, .state_bytes = sizes.state.owned}, *where.gpu).total_s();
    const double step_s = number(plan, fmt::format("/schemes/{}/step_s", scheme));
    EXPECT_NEAR(step_s, expected, 0.02 * expected) << scheme;
    EXPECT_GT(step_s, expected) << "the first gather and the last reduction show";
  }
}

TEST(SchemePlan, CountsTheTimeOfTheOptimizer) {
  const auto step_s = [](const std::vector<std::string>& set, const char* scheme = "/schemes/stage_1/step_s") {
    return number(plan_json(mistral(set), target(1, 1)), scheme);
  };
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  const double saved_s = step_s({}) - step_s({"optimizer.state=bf16"});
  EXPECT_NEAR(saved_s, 8 * 7.0e9 / gpu.memory_bytes_per_s, 0.05 * saved_s) << "8 bytes of each weight in blocks";
  // One moment less in blocks, and their matrices: 5 steps of 3 products each, in the type of the weights. Meanwhile,
  // units that have theirs are updated: 34 bytes an element.
  const auto flops = [](double m, double large) { return 5 * 2 * (2 * m * m * large + m * m * m); };
  const double block = 2 * flops(4096, 4096) + 2 * flops(1024, 4096) + 3 * flops(4096, 14336);
  for (const auto& [mode, per_s] : {std::pair{"bf16", gpu.gemm_flops}, {"fp32", gpu.fp32_flops}}) {
    const std::string precision = std::string("precision.mode=") + mode;
    const double more_s = step_s({precision, "optimizer.type=muon"}) - step_s({precision}),
                 alone_s = 32 * block / per_s - 8 * 7.0e9 / gpu.memory_bytes_per_s;
    EXPECT_LT(more_s, alone_s) << mode;
    EXPECT_GT(more_s, alone_s - 34 * 7.0e9 / gpu.memory_bytes_per_s) << mode;
  }
}

TEST(SchemePlan, FollowsTheOrderOfAccumulation) {
  const auto node_bytes = [](const char* order, int global) {
    return number(plan_json(mistral({std::string("sharding.accumulation_order=") + order,
                                     fmt::format("batch.global_size={}", global)}),
                            target(2, 8)),
                  "/schemes/stage_3/node_bytes");
  };
  EXPECT_EQ(node_bytes("breadth_first", 64), node_bytes("breadth_first", 16));
  EXPECT_GT(node_bytes("depth_first", 64), 3 * node_bytes("depth_first", 16));
}

TEST(SchemePlan, OfElasticSumsCostsTheRanksOfANodeAsOften) {
  const auto plan = [](const std::string& reduction) {
    return plan_json(mistral({"batch.global_size=32", "sharding.reduction=" + reduction, "precision.mode=fp32"}),
                     target(2, 8));
  };
  const auto exact = plan("exact"), elastic = plan("elastic");
  const double psi = 7'241'732'096;
  EXPECT_NEAR(number(exact, "/schemes/stage_1/node_bytes"), psi / 2 * (4 + 4), 1e-4 * psi);
  EXPECT_NEAR(number(elastic, "/schemes/stage_1/node_bytes"), psi / 2 * (2 * 8 * 4 + 4), 1e-3 * psi)
      << "A x G x the bytes";
  EXPECT_FALSE(elastic.at_pointer("/schemes").as_object().contains("hybrid")) << "elastic sums know no levels";
  EXPECT_TRUE(elastic.at_pointer("/comparisons").as_object().empty());
  EXPECT_NEAR(number(elastic, "/schemes/stage_1/scratch_bytes"), 15 / 16.0 * 4 * 218'112'000, 1e-3 * 4 * 218'112'000);
}

}  // namespace
}  // namespace argosy::test
