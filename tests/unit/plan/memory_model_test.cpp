#include "plan/memory_model.hpp"

#include "formulas.hpp"
#include "spec/fine_tuning.hpp"
#include "support/small_model.hpp"

namespace argosy::test {
namespace {

using plan::Recompute;

/// Printed with so many GiB; padding of the flat spaces adds at most 2e-4 of it here.
void expect_printed(double gib, double printed, const std::string& what) {
  EXPECT_NEAR(gib, printed, 0.005 + 2e-4 * printed) << what;
}

double state_gib(const boost::json::value& plan, const std::string& scheme, const std::string& of = "/schemes/") {
  return number(plan, of + scheme + "/state_bytes") / gib;
}

TEST(StateMemory, ReproducesTheTableOfMistral) {
  const struct {
    int nodes;
    double stage_1, stage_2, stage_3;
  } rows[] = {{1, 50.58, 28.60, 15.93},
              {2, 45.52, 21.86, 9.18},
              {4, 43.00, 18.49, 5.81},
              {8, 41.73, 16.80, 4.12},
              {16, 41.10, 15.96, 3.28}};
  for (const auto& row : rows) {
    const auto plan = plan_json(mistral(), target(row.nodes, 8));
    const std::string what = fmt::format("{} nodes", row.nodes);
    expect_printed(state_gib(plan, "stage_1"), row.stage_1, what);
    expect_printed(state_gib(plan, "stage_2"), row.stage_2, what);
    expect_printed(state_gib(plan, "stage_3"), row.stage_3, what);
    EXPECT_NEAR(state_gib(plan, "hsdp", "/comparisons/"), 17.6, 0.05) << what;
    EXPECT_NEAR(state_gib(plan, "ddp", "/comparisons/"), 121.4, 0.05) << what;
  }
  EXPECT_NEAR(state_gib(plan_json(mistral(), target(1, 8)), "hybrid"), 17.6, 0.05);
  expect_printed(state_gib(plan_json(mistral(), target(16, 8)), "hybrid"), 8.13, "16 nodes");
  const plan::SpaceSizes sizes = plan::space_sizes(shape_of(mistral()), partition::Layout({8}));
  const auto bf16_gradients = plan::state_memory(sizes, plan::Comparison::ddp, {.gradient_bytes = 2});
  EXPECT_NEAR(static_cast<double>(bf16_gradients.state()) / gib, 107.9, 0.05);
}

TEST(StateMemory, TwoUnitsRotateAndScratchIsOneUnits) {
  const auto plan = plan_json(mistral(), target(16, 8));
  expect_printed(number(plan, "/schemes/stage_3/rotating_gradients_bytes") / gib, 1.62, "gradients");
  expect_printed(number(plan, "/schemes/stage_3/rotating_weights_bytes") / gib, 0.81, "weights");
  EXPECT_EQ(number(plan, "/schemes/stage_2/rotating_weights_bytes"), 0);
  expect_printed(number(plan, "/schemes/stage_1/scratch_bytes") / gib, 0.81, "scratch");
  EXPECT_EQ(number(plan_json(mistral(), target(1, 1)), "/schemes/stage_1/scratch_bytes"), 0);
}

// 2 blocks of width 256 and an embedding of 1024 rows larger than a block, or tied to the output.
spec::Architecture small(bool tied, std::int64_t vocab = 1024) {
  spec::ModelConfig config =
      model_config({.type = spec::ModelType::decoder, .width = 256, .ff = 256, .heads = 4, .decoder_layers = 2});
  config.tie_embeddings = tied;
  return spec::resolve(config, vocab);
}

std::int64_t padded_of(const spec::Architecture& shape, const partition::Layout& layout, std::string_view part) {
  std::int64_t sum = 0;
  for (const spec::Unit& unit : spec::ModelSpec(shape).units)
    if (unit.name.find(part) != std::string::npos) sum += partition::FlatSpace(unit.flat(), layout).padded_size();
  return sum;
}

TEST(SpaceSizes, LargeAndTiedEmbeddingsKeepTheirBuffers) {
  const partition::Layout layout({2, 2});
  const spec::Architecture tied = small(true, 64), large = small(false, 4096), little = small(false, 64);
  const std::int64_t block = padded_of(tied, layout, "decoder.0");
  EXPECT_EQ(plan::space_sizes(tied, layout).resident.padded, padded_of(tied, layout, "embedding"));
  EXPECT_EQ(plan::space_sizes(large, layout).resident.padded,
            padded_of(large, layout, "embedding") + padded_of(large, layout, "head"));
  EXPECT_EQ(plan::space_sizes(little, layout).resident.padded, 0);
  for (const auto& shape : {tied, large, little}) EXPECT_EQ(plan::space_sizes(shape, layout).rotating, block);
  EXPECT_EQ(plan::space_sizes(large, layout).largest, padded_of(large, layout, "head"));
}

TEST(SpaceSizes, UnevenNodesOwnByRoundedSlots) {
  const spec::Architecture shape = small(false);
  for (const std::vector<int>& nodes : {std::vector{1, 3}, {2, 3, 3}, {3}, {2, 2}, {1, 1, 2}}) {
    const partition::Layout layout(nodes);
    std::int64_t most = 0, padded = 0;
    const std::vector<partition::FlatSpace> spaces = formulas::spaces_of(shape, layout);
    for (const partition::FlatSpace& space : spaces) padded += space.padded_size();
    for (int rank = 0; rank < layout.world(); ++rank) {
      std::int64_t owned = 0;
      for (const partition::FlatSpace& space : spaces) owned += space.owned_size(rank);
      most = std::max(most, owned);
    }
    const plan::SpaceSizes sizes = plan::space_sizes(shape, layout);
    EXPECT_EQ(sizes.all.owned, most) << layout.world();
    EXPECT_EQ(sizes.all.padded, padded);
    EXPECT_EQ(sizes.all.held, most * layout.nodes());
    // A rank of several slices sums and keeps them apart from the flat buffers.
    EXPECT_EQ(sizes.all.apart, layout.world() == layout.nodes() * layout.slots() ? 0 : most);
  }
}

/// What other programs hold; Argosy's own state is compared with its buffers (unit/train/buffers_test.cpp).
TEST(StateMemory, WeightsOfTheMastersTypeAreTheMaster) {
  const plan::SpaceSizes sizes = plan::space_sizes(small(false, 64), partition::Layout({4}));
  ASSERT_EQ(sizes.resident.padded, 0);
  const auto ddp = [&](const plan::StateChoices& choices) {
    return plan::state_memory(sizes, plan::Comparison::ddp, choices).state();
  };
  EXPECT_EQ(ddp({.weight_bytes = 4}), 16 * sizes.all.padded);
  EXPECT_EQ(ddp({.master_bytes = 2}), 14 * sizes.all.padded) << "2 + 4 + 8";
  const auto optimizer_bytes = [](const std::string& mode) {
    return number(plan_json(mistral({"precision.mode=" + mode}), target(1, 8)), "/schemes/stage_1/optimizer_bytes");
  };
  EXPECT_EQ(optimizer_bytes("bf16_pure") * 3, optimizer_bytes("bf16") * 2);
}

TEST(StateMemory, TranslatingTakesTheWeightsThatARankLacks) {
  const plan::SpaceSizes sizes = plan::space_sizes(small(false, 4096), partition::Layout({4}));
  const std::int64_t in_turns = sizes.all.padded - sizes.resident.padded;
  ASSERT_GT(in_turns, 0);
  for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_2})
    EXPECT_EQ(plan::translating_bytes(sizes, scheme, 2, false), 0);
  for (const plan::Scheme scheme : {plan::Scheme::stage_3, plan::Scheme::hybrid})
    EXPECT_EQ(plan::translating_bytes(sizes, scheme, 2, false), 2 * in_turns);
  EXPECT_EQ(plan::translating_bytes(sizes, plan::Scheme::stage_3, 4, true), 4 * (in_turns + sizes.all.padded))
      << "matrices are packed on a CPU";
}

TEST(StateMemory, ElasticSumsNeedPlaceForEveryOtherRank) {
  for (const std::int64_t vocab : {64, 4096}) {
    const plan::SpaceSizes sizes = plan::space_sizes(small(false, vocab), partition::Layout({2, 2}));
    EXPECT_EQ(plan::state_memory(sizes, {.reduction = comm::Reduction::elastic}).scratch, 3 * sizes.largest / 4 * 4);
  }
}

TEST(Activations, ReproduceTheGuide) {
  const auto in_mib = [](const std::vector<std::string>& set, const std::string& part) {
    const boost::json::value plan = plan_json(mistral(set), target(16, 8));
    const double bytes = number(plan, "/activations/" + part + "_bytes");
    // The guide leaves out what attention takes for a moment.
    return (part == "total" ? bytes - number(plan, "/activations/attention_bytes") : bytes) / mib;
  };
  const std::string large = "model.vocab_size=49152";
  EXPECT_NEAR(in_mib({large}, "total"), 36514, 0.5);
  EXPECT_EQ(in_mib({large}, "blocks"), 34816);
  EXPECT_NEAR(in_mib({}, "total"), 35978, 0.5);
  const auto level = [](const char* name) { return std::string("sharding.recompute=") + name; };
  EXPECT_EQ(in_mib({large}, "total") - in_mib({large, level("activation")}, "total"), 7168);
  EXPECT_EQ(in_mib({large}, "total") - in_mib({large, level("full")}, "total"), 21504);
  EXPECT_EQ(in_mib({level("block")}, "blocks"), 2048);
  EXPECT_EQ(in_mib({level("block")}, "recomputed"), 1088);
  EXPECT_EQ(in_mib({}, "recomputed"), 0);
  EXPECT_EQ(in_mib({}, "logits"), 1000);
  EXPECT_EQ(in_mib({"loss.chunk_bytes=268435456"}, "logits"), 256);
  EXPECT_EQ(in_mib({"loss.chunk_bytes=268435456"}, "whole_logits"), 1000);
  EXPECT_EQ(in_mib({"precision.mode=fp32"}, "blocks"), 2 * 34816);
}

TEST(Activations, CountTheStatisticsOfEveryNorm) {
  const spec::Architecture shape = shape_of(mistral());  // two RMSNorms a block and one behind them all
  const plan::MicroBatch batch{.target_positions = 64, .target_width = 64};
  EXPECT_EQ(plan::activation_memory(shape, batch, {}).statistics, 4 * 32 * 32 * 64 + 4 * 64 * (2 * 32 + 1));
}

TEST(Activations, CountWhatAttentionTakesOnAGpu) {
  const spec::Architecture shape = shape_of(mistral());
  const plan::MicroBatch batch{.target_positions = 8192, .target_width = 8192};
  const auto with = [&](int multiprocessors, std::int64_t bytes, const spec::Architecture& of) {
    return plan::activation_memory(of, batch, {.element_bytes = bytes, .multiprocessors = multiprocessors}).attention;
  };
  EXPECT_EQ(with(0, 2, shape), 0);
  // 32 heads and one of zeros in 4 parts: sums of each, three gradients, five copies; the gradients of the output, of
  // q, k and v, and twice that of the block; less the logits and their gradient.
  const double values = 8192.0 * 33 * 128, on_their_way = 8192.0 * 2 * (4096 + 6144 + 2 * 4096),
               logits = 2 * 2 * 8192.0 * static_cast<double>(shape.vocabulary.rows);
  EXPECT_EQ(with(132, 2, shape), 4 * 4 * values + (3 + 5) * 2 * values + on_their_way - logits);
  // Without flash attention there are scores of some queries, and keys and values in fp32.
  spec::Architecture small = shape;
  small.vocabulary.rows = 64;
  EXPECT_GT(with(132, 4, small), 6.0 * (64 << 20));
  small.head_size = 12;
  EXPECT_GT(with(132, 2, small), 6.0 * (64 << 20));
  // What is computed again is there as well.
  const auto at_level = [&](Recompute level) {
    return plan::activation_memory(shape, batch, {.recompute = level, .multiprocessors = 132}).attention;
  };
  EXPECT_EQ(at_level(Recompute::activation) - at_level(Recompute::none), 2.0 * 8192 * 14336);
  EXPECT_EQ(at_level(Recompute::full) - at_level(Recompute::none), 3 * 2.0 * 8192 * 14336);
}

/// Of 10 source and 6 target positions.
plan::ActivationMemory kept_with_frozen(std::vector<std::string> patterns, Recompute level = Recompute::none) {
  spec::ModelConfig config = model_config({.width = 8, .ff = 16, .heads = 2, .encoder_layers = 3, .decoder_layers = 2});
  config.tie_embeddings = config.tie_inputs = false;
  const plan::MicroBatch batch{.source_positions = 10, .target_positions = 6, .source_width = 5, .target_width = 3};
  return plan::activation_memory(spec::with_frozen(spec::resolve(config, 63), patterns), batch,
                                 {.recompute = level, .element_bytes = 4});
}

TEST(Activations, OfLayersWithoutABackwardPassAreNotKept) {
  const auto all = kept_with_frozen({}), last = kept_with_frozen({"decoder/layer_1/*"});
  EXPECT_EQ(last.total(), all.total()) << "what comes before is trained";
  EXPECT_EQ(kept_with_frozen({"encoder/layer_*"}).total(), all.total()) << "the embedding before it is trained";
  const auto decoder = kept_with_frozen({"encoder/*"});
  const double of_encoder = all.blocks - decoder.blocks, one = of_encoder / 3;
  EXPECT_GT(one, 0);
  EXPECT_LT(decoder.statistics, all.statistics);
  const auto later = kept_with_frozen({"encoder/embeddings_0/*", "encoder/layer_0/*", "encoder/layer_1/*"});
  EXPECT_EQ(all.blocks - later.blocks, 2 * one);
  // Of a decoder without a block of its own to train, one is there while it is computed.
  const auto head = kept_with_frozen({"encoder/*", "decoder/embeddings/*", "decoder/layer_*"});
  EXPECT_EQ(head.blocks, std::max(one, decoder.blocks / 2));
  const auto again = kept_with_frozen({"encoder/*"}, Recompute::block);
  EXPECT_EQ(again.blocks, 2 * 4 * 8 * 6);
}

TEST(Activations, CountAnEncoderDecoderByHand) {
  // LayerNorm behind the branches, two heads of 4
  spec::ModelConfig config = model_config({.width = 8, .ff = 16, .heads = 2, .encoder_layers = 3, .decoder_layers = 2});
  config.activation = spec::Activation::gelu;
  spec::Architecture shape = spec::resolve(config, 63);
  const plan::MicroBatch batch{.source_positions = 10, .target_positions = 6, .source_width = 5, .target_width = 3};
  const auto kept = [&](Recompute level) {
    return plan::activation_memory(shape, batch, {.recompute = level, .element_bytes = 4});
  };
  const double encoder = 6 * 8 + 2 * 8 + 2 * 16, decoder = encoder + 4 * 8, cross = 2 * 8;
  const auto none = kept(Recompute::none);
  EXPECT_EQ(none.blocks, 4 * (3 * 10 * encoder + 2 * (6 * decoder + 10 * cross)));
  EXPECT_EQ(none.blocks - kept(Recompute::activation).blocks, 4 * 16 * (3 * 10 + 2 * 6));
  EXPECT_EQ(none.blocks - kept(Recompute::full).blocks, 4 * 2 * 16 * (3 * 10 + 2 * 6));
  EXPECT_EQ(kept(Recompute::block).blocks, 4 * 8 * (3 * 10 + 2 * 6));
  EXPECT_EQ(kept(Recompute::block).recomputed, std::max(4 * 10 * encoder, 4 * (6 * decoder + 10 * cross)));
  EXPECT_EQ(none.statistics, 4 * 2 * (3 * 10 + 2 * 2 * 6) + 4 * 2 * (10 * 6 + 6 * 6));
  EXPECT_EQ(none.logits, 2 * 4 * 6 * 64);
  const double products = none.blocks - kept(Recompute::activation).blocks;
  shape.activation = spec::Activation::relu;  // overwrites its input
  EXPECT_EQ(kept(Recompute::none).blocks, none.blocks - products);
  EXPECT_EQ(kept(Recompute::activation).blocks, none.blocks - products);
  EXPECT_EQ(kept(Recompute::full).blocks, none.blocks - 2 * products);
}

}  // namespace
}  // namespace argosy::test
