#include "plan/time_model.hpp"

#include "plan_support.hpp"
#include "support/small_model.hpp"

namespace argosy::test {
namespace {

using comm::Levels;
using plan::Op, plan::OpKind, plan::Recompute;

const plan::MicroBatch long_row{.target_positions = 8192, .target_width = 8192};

TEST(Gpus, AreKnownByTheirNames) {
  EXPECT_EQ(plan::gpu_by_name("h200")->name, "h200");
  EXPECT_EQ(plan::gpu_by_name("v100"), nullptr);
  EXPECT_EQ(plan::gpu_by_driver_name("NVIDIA H100 80GB HBM3"), plan::gpu_by_name("h100"));
  EXPECT_EQ(plan::gpu_by_driver_name("NVIDIA H200"), plan::gpu_by_name("h200"));
  EXPECT_EQ(plan::gpu_by_driver_name("NVIDIA A100-SXM4-40GB"), nullptr);
  EXPECT_EQ(plan::gpu_by_driver_name("NVIDIA GeForce RTX 4090"), nullptr);
}

TEST(Gpus, SayOfEachRateWhetherItWasMeasured) {
  for (const char* const name : {"h100", "h200", "a100"}) {
    for (const plan::NamedRate& one : plan::rates_of(*plan::gpu_by_name(name))) {
      EXPECT_GT(one.rate, 0) << one.key;
      const bool of_one_gpu =
          one.key != "inner_bytes_per_s" && one.key != "outer_bytes_per_s" && one.key != "fp32_flops";
      EXPECT_EQ(one.rate.is_measured, std::string(name) == "h200" && of_one_gpu) << name << one.key;
    }
  }
  EXPECT_TRUE(number(plan_json(mistral(), target(1, 8)), "/rates/gemm_flops/per_s") == 640e12);
}

/// With the published rates that the figures below are derived from.
plan::Gpu published() {
  plan::Gpu gpu = *plan::gpu_by_name("h100");
  gpu.memory_bytes_per_s = 3.9e12;
  return gpu;
}

TEST(ComputeTime, IsThatOfFusedKernelsAtSustainedClocks) {
  const auto config = mistral({"model.window=8192"});
  const plan::ComputeTime time = plan::compute_time(shape_of(config), long_row, Recompute::none, 2, published());
  EXPECT_NEAR(time.gemm_s, 0.546, 0.001);
  EXPECT_NEAR(time.attention_s, 0.131, 0.001);
  EXPECT_NEAR(time.elementwise_s, 0.027, 0.001);  // 105 GB at 3.9 TB/s
  EXPECT_NEAR(time.total_s(), 0.714, 0.02 * 0.714);
}

TEST(OptimizerTime, CountsTheBytesOfWhatIsKept) {
  const plan::Gpu gpu = published();
  constexpr std::int64_t n = 7'241'732'096 / 128;
  const auto bytes_each = [&](const plan::UpdateShare& share) {
    return plan::optimizer_time(share, gpu).total_s() * gpu.memory_bytes_per_s / n;
  };
  const plan::UpdateTime adamw = plan::optimizer_time({.elements = n, .state_bytes = 8 * n}, gpu);
  EXPECT_NEAR(adamw.total_s(), 0.44e-3 * 34 / 30, 0.02e-3);
  EXPECT_NEAR(adamw.norm_s, adamw.total_s() * 4 / 34, 1e-9);
  EXPECT_NEAR(bytes_each({.elements = n, .state_bytes = 12 * n, .ema = true}), 46, 1e-9);
  EXPECT_NEAR(bytes_each({.elements = n, .state_bytes = 4 * n}), 34 - 8, 1e-9) << "moments in bf16, or one in fp32";
  EXPECT_NEAR(bytes_each({.elements = n, .state_bytes = 8 * n, .weight_bytes = 4}), 32, 1e-9) << "fp32";
  EXPECT_NEAR(bytes_each({.elements = n, .state_bytes = 8 * n, .master_bytes = 2}), 28, 1e-9) << "bf16_pure";
}

TEST(OptimizerTime, OfMuonIsThatOfTheRankWithMostMatrices) {
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  // A decoder's block: norms, q 64 x 64, k and v 32 x 64, output 64 x 64, gate and up 96 x 64, down 64 x 96.
  spec::ModelConfig config =
      model_config({.type = spec::ModelType::decoder, .width = 64, .ff = 96, .heads = 4, .decoder_layers = 1});
  config.kv_heads = 2;
  const spec::ModelSpec model = spec::resolve(config, 1000);
  const auto block = std::ranges::find_if(model.units, &spec::Unit::is_block);
  const auto index = static_cast<std::size_t>(block - model.units.begin());
  const auto flops = [](double m, double large) { return 5 * 2 * (2 * m * m * large + m * m * m); };
  const double square = flops(64, 64), key = flops(32, 64), wide = flops(64, 96);
  double fp32_flops = plan::muon_time(*block, index, 1, 4, gpu) * gpu.fp32_flops;
  EXPECT_NEAR(fp32_flops, 2 * square + 2 * key + 3 * wide, 1);
  // As many ranks as there are matrices and vectors: one has nothing but the largest.
  fp32_flops = plan::muon_time(*block, index, static_cast<int>(block->matrices().size()), 4, gpu) * gpu.fp32_flops;
  EXPECT_NEAR(fp32_flops, wide, 1);
  EXPECT_NEAR(plan::muon_time(*block, index, 1, 2, gpu) * gpu.gemm_flops, 2 * square + 2 * key + 3 * wide, 1) << "bf16";
}

TEST(ComputeTime, ABlockComputedAgainIsTheForwardPassButForItsEnds) {
  const spec::Architecture shape = shape_of(mistral());
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  const plan::ComputeTime none = plan::compute_time(shape, long_row, Recompute::none, 2, gpu),
                          block = plan::compute_time(shape, long_row, Recompute::block, 2, gpu);
  const double head_s = 2.0 * 4096 * 32000 * 8192 / gpu.gemm_flops;
  EXPECT_NEAR(none.forward_s, block.total_s() - none.total_s() + head_s + none.gaps_s / 3, 1e-12);
  EXPECT_EQ(block.forward_s, none.forward_s);
}

TEST(ComputeTime, RecomputingGateAndUpCostsWhatFastLlmMeasured) {
  const spec::Architecture shape = shape_of(mistral({"model.vocab_size=49152"}));
  const auto time = [&](Recompute level) {
    return plan::compute_time(shape, long_row, level, 2, *plan::gpu_by_name("a100"));
  };
  const plan::ComputeTime none = time(Recompute::none), full = time(Recompute::full), block = time(Recompute::block);
  EXPECT_NEAR(full.gemm_s - none.gemm_s, 8192 / 3804.49 - 8192 / 4234.09, 0.001);
  const double activation = time(Recompute::activation).total_s() / none.total_s() - 1;
  EXPECT_GT(activation, 0);
  EXPECT_LT(activation, 0.01);
  EXPECT_NEAR(block.total_s() / none.total_s(), 1.33, 0.03);
}

spec::Architecture translation() {
  return spec::resolve(model_config({.width = 256, .ff = 256, .heads = 4, .encoder_layers = 2, .decoder_layers = 3}),
                       1000);
}

TEST(VisitTimes, RecomputeIsPartOfTheWayBack) {
  const auto ratio = [](Recompute level) {
    const plan::VisitTime block =
        plan::visit_times(shape_of(mistral()), long_row, level, 2, *plan::gpu_by_name("h100"))[1];
    return block.backward_s / block.forward_s;
  };
  const double none = ratio(Recompute::none);
  EXPECT_NEAR(none, 2.2, 0.2) << "attention goes back in 3.2 times its way forward";
  EXPECT_NEAR(ratio(Recompute::block), none + 1, 0.05);
  EXPECT_NEAR(ratio(Recompute::full), none + 2 * 4096 * 14336 * 2 / 2 / 218.1e6 * 0.85, 0.15) << "gate and up again";
}

TEST(VisitTimes, ShareOutWhatTheModelTakes) {
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  const plan::MicroBatch pairs{
      .source_positions = 900, .target_positions = 700, .source_width = 30, .target_width = 35};
  for (const auto& [shape, batch] : {std::pair{shape_of(mistral()), long_row}, {translation(), pairs}}) {
    for (const Recompute level : {Recompute::none, Recompute::activation, Recompute::full, Recompute::block}) {
      const plan::ComputeTime all = plan::compute_time(shape, batch, level, 2, gpu);
      const std::vector<plan::VisitTime> visits = plan::visit_times(shape, batch, level, 2, gpu);
      EXPECT_EQ(std::ssize(visits), shape.encoder_layers + shape.decoder_layers + (shape.encoder_layers > 0 ? 3 : 2));
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

TEST(VisitTimes, AdaptersCountOnEveryRoute) {
  const plan::MicroBatch pairs{
      .source_positions = 900, .target_positions = 700, .source_width = 30, .target_width = 35};
  spec::Architecture shape = translation();
  shape.decoder_stacks = {{3, spec::Share::target}};
  const spec::ModelSpec tasks(shape, {.tasks = {{"en-fr", "en", "fr"}, {"en-de", "en", "de"}}});
  const spec::ModelSpec adapted = spec::with_adapters(tasks, {.rank = 8});
  const auto times = plan::visit_times(adapted, pairs, Recompute::none, 2, *plan::gpu_by_name("h100")),
             whole = plan::visit_times(tasks, pairs, Recompute::none, 2, *plan::gpu_by_name("h100"));
  std::map<std::string, double> back;
  for (std::size_t v = 0; v < adapted.visits.size(); ++v) {
    back[adapted.visits[v].name] = times[v].backward_s;
    if (adapted.visits[v].kind != spec::VisitKind::decoder_block) continue;
    EXPECT_LT(times[v].backward_s, whole[v].backward_s);
  }
  EXPECT_EQ(back.at("decoder.fr.1"), back.at("decoder.de.1"));
}

TEST(VisitTimes, FrozenMatricesHaveNoGradientsAndAdaptersTheirProducts) {
  const plan::Gpu& gpu = *plan::gpu_by_name("h100");
  const plan::MicroBatch pairs{
      .source_positions = 900, .target_positions = 700, .source_width = 30, .target_width = 35};
  const auto visits_of = [&](const spec::ModelSpec& spec, Recompute level = Recompute::none) {
    return plan::visit_times(spec, pairs, level, 2, gpu);
  };
  const auto gemm_s = [&](double operations) { return operations / gpu.gemm_flops; };
  const spec::Architecture shape = translation();
  const double square = 256.0 * 256, near = 1e-15;
  const auto all = visits_of(shape);
  // The source, 2 encoder blocks of 6 squares, the target, 3 decoder blocks of 10, of which 2 read the source, the
  // head.
  const auto frozen = visits_of(spec::with_frozen(shape, std::vector<std::string>{"encoder/layer_1/*", "decoder/*"}));
  EXPECT_EQ(std::tuple(frozen[1].forward_s, frozen[1].backward_s), std::tuple(all[1].forward_s, all[1].backward_s));
  EXPECT_EQ(frozen[2].forward_s, all[2].forward_s);
  EXPECT_NEAR(frozen[2].backward_s, all[2].backward_s - gemm_s(2 * 6 * square * 900), near);
  EXPECT_NEAR(frozen[4].backward_s, all[4].backward_s - gemm_s(2 * 2 * square * 900 + 2 * 8 * square * 700), near);
  const double table = 256.0 * static_cast<double>(shape.vocabulary.rows);
  EXPECT_NEAR(frozen[7].forward_s, all[7].forward_s - gemm_s(2 * table * 700), near);
  spec::Architecture two_tables = shape;
  two_tables.tie_embeddings = two_tables.tie_inputs = false;
  EXPECT_EQ(visits_of(spec::with_frozen(two_tables, std::vector<std::string>{"encoder/*"}))[1].backward_s, 0);

  const spec::ModelSpec adapted = spec::with_adapters(shape, {.rank = 4, .targets = {"ffn/*"}});
  const auto adapters = visits_of(adapted), block = visits_of(adapted, Recompute::block),
             all_block = visits_of(shape, Recompute::block);
  const double of_one = gemm_s(2 * 2 * 4 * 512.0 * 900);  // two pairs of A and B
  EXPECT_NEAR(adapters[1].forward_s, all[1].forward_s + of_one, near);
  EXPECT_NEAR(adapters[1].backward_s, all[1].backward_s - gemm_s(2 * 6 * square * 900) + 2 * of_one, near);
  EXPECT_NEAR(block[1].backward_s, all_block[1].backward_s - gemm_s(2 * 6 * square * 900) + 3 * of_one, near);
}

/// 2 nodes of 4, 100 bytes a second out of a node, 1000 inside; no latency.
plan::CostInputs inputs() {
  plan::CostInputs in{.visits = {{1, 2}, {3, 4}}, .update = {.norm_s = 4, .update_s = 30}, .matrices_s = {0, 7}};
  in.nodes = 2;
  in.ranks_per_node = 4;
  in.links = {.outer_bytes_per_s = 100, .inner_bytes_per_s = 1000, .outer_latency_s = 0, .inner_latency_s = 0};
  in.wire = {.weight = 2, .inner_gradient = 4, .outer_gradient = 8};
  return in;
}

std::vector<partition::FlatSpace> two_units() {
  const partition::Layout layout({4, 4});
  std::vector<partition::FlatSpace> spaces;
  for (const std::int64_t rows : {4096, 3 * 4096})
    spaces.emplace_back(std::vector<partition::ParamSpec>{{.name = "w", .shape = {rows}}}, layout);
  return spaces;
}

TEST(OpCost, GivesEachOperationItsShare) {
  plan::CostInputs in = inputs();
  const plan::OpCost cost = plan::op_cost(in, two_units());
  EXPECT_EQ(cost({.kind = OpKind::forward, .visit = 1, .unit = 1}), 3);
  EXPECT_EQ(cost({.kind = OpKind::backward, .visit = 0, .unit = 0}), 2);
  EXPECT_EQ(cost({.kind = OpKind::norm}), 4);
  EXPECT_EQ(cost({.kind = OpKind::update, .unit = 1}), 30 * 3 / 4.0);
  in.frozen = {0};
  EXPECT_EQ(plan::op_cost(in, two_units())({.kind = OpKind::update, .unit = 1}), 30);
  const auto moved = [&](OpKind kind, Levels levels) { return cost({.kind = kind, .unit = 0, .levels = levels}); };
  EXPECT_EQ(moved(OpKind::gather, Levels::both), 4096 * 2 / 2 / 100.0);
  EXPECT_EQ(cost({.kind = OpKind::to_shards, .unit = 1}), 7 + cost({.kind = OpKind::reduce, .unit = 1}))
      << "computed, and sent back";
  EXPECT_EQ(moved(OpKind::gather, Levels::outer), 4096 * 2 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::gather, Levels::inner), 4096 * 2 * 3 / 4 / 1000.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::both), 4096 * 8 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::outer), 4096 * 8 / 2 / 100.0);
  EXPECT_EQ(moved(OpKind::reduce, Levels::inner), 4096 * 4 * 3 / 4 / 1000.0);
  in.other = plan::Comparison::ddp;
  const plan::OpCost ddp = plan::op_cost(in, two_units());
  EXPECT_EQ(ddp({.kind = OpKind::gather, .unit = 0}), 0);
  EXPECT_EQ(ddp({.kind = OpKind::reduce, .unit = 0}), 2 * 4096 * 8 / 2 / 100.0) << "an all-reduce";
  in.other.reset();
  in.reduction = comm::Reduction::elastic;
  EXPECT_EQ(plan::op_cost(in, two_units())({.kind = OpKind::reduce, .unit = 0}), 4.0 * 4096 * 4 / 2 / 100);
}

TEST(OpCost, StartsAMessageForEachPeer) {
  plan::CostInputs in = inputs();
  in.links.outer_latency_s = 1000;
  in.links.inner_latency_s = 1;
  const plan::OpCost cost = plan::op_cost(in, two_units()), without = plan::op_cost(inputs(), two_units());
  const auto latency = [&](Levels levels) {
    const Op op{.kind = OpKind::gather, .unit = 0, .levels = levels};
    return std::round(cost(op) - without(op));
  };
  EXPECT_EQ(latency(Levels::both), 1000 + 3);
  EXPECT_EQ(latency(Levels::inner), 3);
  EXPECT_EQ(latency(Levels::outer), 1000);
}

TEST(FlopShape, CountsWhatFrozenPartsSaveAndAdaptersAdd) {
  spec::ModelConfig config = model_config({.width = 8, .ff = 16, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  config.tie_embeddings = false;
  const spec::Architecture shape = spec::resolve(config, 100);
  const telemetry::Work work{.source_positions = 10, .target_positions = 20, .encoder_pairs = 7};
  const auto flops = [&](const spec::ModelSpec& spec) {
    return telemetry::flops_of(plan::flop_shape(spec), work).causal;
  };
  const double all = flops(shape);
  // Elements: encoder 4 * 64 + 2 * 128; keys and values of cross-attention 128.
  const std::vector<std::string> encoder{"encoder/*"}, ffn{"encoder/*/ffn/*"}, key_values{"*/attention/linear_1/*"};
  EXPECT_EQ(flops(spec::with_frozen(shape, encoder)), all - 4 * 512 * 10 - 8 * 8 * 7) << "no backward pass";
  EXPECT_EQ(flops(spec::with_frozen(shape, ffn)), all - 2 * 256 * 10);
  EXPECT_EQ(flops(spec::with_frozen(shape, key_values)), all - 2 * 128 * 10);
  const auto rows = static_cast<double>(shape.vocabulary.rows);
  const double frozen = 2 * (512 + 128) * 10 + 2 * (256 + 128 + 256 + 8 * rows) * 20;
  const double adapters = 6 * (224 + 64) * 10 + 6 * 288 * 20;
  EXPECT_EQ(flops(spec::with_adapters(shape, {.rank = 2})), all - frozen + adapters);
}

}  // namespace
}  // namespace argosy::test
