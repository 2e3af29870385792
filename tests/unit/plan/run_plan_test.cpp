#include "plan/run_plan.hpp"

#include <boost/json/serialize.hpp>
#include <set>

#include "formulas.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::Scheme;

std::string text(const boost::json::value& json, const std::string& pointer) {
  const boost::json::value& value = json.at_pointer(pointer);
  return value.is_null() ? "" : std::string(value.as_string());
}

TEST(RunPlan, CountsParametersAndFlopsAsPublished) {
  const auto giga = [](const std::vector<std::string>& set, const char* figure) {
    return number(plan_json(mistral(set), target(16, 8)), std::string("/flops_per_position/") + figure) / 1e9;
  };
  EXPECT_EQ(number(plan_json(mistral(), target(1, 8)), "/parameters"), 7'241'732'096);
  EXPECT_EQ(number(plan_json(mistral({"model.vocab_size=49152"}), target(1, 8)), "/parameters"), 7'382'241'280);
  EXPECT_NEAR(giga({"model.vocab_size=49152"}, "causal"), 47.9157, 5e-5);
  EXPECT_NEAR(giga({}, "causal"), 47.4942, 5e-5);
  EXPECT_NEAR(giga({}, "exact"), 47.495, 5e-4);
  const std::tuple<int, int, double> figures[] = {{8192, 32000, 49.106},
                                                  {4096, 32000, 45.884},
                                                  {2048, 32000, 44.274},
                                                  {8192, 128256, 51.471},
                                                  {4096, 128256, 48.250}};
  for (const auto& [width, vocab, printed] : figures) {
    const std::vector<std::string> set{"model.window=8192", fmt::format("batch.sequence_length={}", width),
                                       fmt::format("model.vocab_size={}", vocab)};
    EXPECT_NEAR(giga(set, "exact"), printed, 5e-4) << width << " " << vocab;
  }
  for (const auto& [width, printed] : {std::pair{1024, 40.449}, {4096, 42.864}}) {
    EXPECT_NEAR(giga({"model.preset=none", "model.width=4096", "model.ff=11008", "model.heads=32",
                      "model.decoder.layers=32", fmt::format("batch.sequence_length={}", width)},
                     "exact"),
                printed, 5e-4);
  }
}

TEST(RunPlan, GivesTheRatesOfFastLlmAsItDoes) {
  const struct {
    const char* level;
    double rate, tflops, mfu;
  } rows[] = {{"none", 4234.09, 202.88, 65.0}, {"activation", 4218.63, 202.14, 64.8}, {"full", 3804.49, 182.29, 58.4}};
  for (const auto& row : rows) {
    plan::PlanTarget where = target(1, 4, "a100");
    where.gpu_positions_per_s = row.rate;
    const auto plan =
        plan_json(mistral({"model.vocab_size=49152", std::string("sharding.recompute=") + row.level}), where);
    EXPECT_NEAR(number(plan, "/schemes/stage_1/positions_per_s_per_gpu"), row.rate, 2e-4 * row.rate)
        << "but for the first gather and the last reduction";
    EXPECT_NEAR(number(plan, "/schemes/stage_1/causal_flops_per_s_per_gpu") / 1e12, row.tflops, 0.03);
    EXPECT_NEAR(100 * number(plan, "/schemes/stage_1/mfu"), row.mfu, 0.05);
  }
}

TEST(RunPlan, ReproducesTheRunOfTheGuide) {
  plan::PlanTarget where = target(16, 8);
  where.gpu_positions_per_s = 9000;
  const auto plan = plan_json(mistral(), where);
  EXPECT_EQ(number(plan, "/positions_per_step"), 1'048'576);
  EXPECT_EQ(number(plan, "/positions_in_all"), 524'288'000'000);
  const double formula_s = formulas::step_time(formulas::Scheme::stage_1, formulas::inputs_of(mistral(), where));
  EXPECT_NEAR(formula_s, 0.91, 0.005);
  EXPECT_NEAR(500'000 * formula_s / 3600, 126.4, 0.05);
  EXPECT_NEAR(number(plan, "/run_s"), 500'000 * formula_s, 0.01 * 500'000 * formula_s);
  EXPECT_GT(number(plan, "/run_s"), 500'000 * formula_s) << "the first gather and the last reduction show";
  // "440 TFLOP/s" is 48.9 GFLOP a token: attention without the window, 0.5 % below every pair.
  const auto no_window = plan_json(mistral({"model.window=8192"}), where);
  EXPECT_NEAR(number(no_window, "/flops_per_position/exact") * 9000, 440e12, 0.005 * 440e12);
}

/// Activations as the guide counts them, without what attention takes for a moment.
double kept_gib(const boost::json::value& plan) {
  return (number(plan, "/activations/total_bytes") - number(plan, "/activations/attention_bytes")) / gib;
}

TEST(RunPlan, NeedsExactlySixteenNodes) {
  const struct {
    int nodes, accumulation;
    double gib;  // state and activations
    bool fits;   // with context and scratch
  } rows[] = {{1, 16, 85.7, false}, {2, 8, 80.7, false}, {4, 4, 78.1, false}, {8, 2, 76.9, true}, {16, 1, 76.2, true}};
  const auto together = [](const boost::json::value& plan) {
    return number(plan, "/schemes/stage_1/state_bytes") / gib + kept_gib(plan);
  };
  const auto table = plan_json(mistral(), target(16, 8));
  ASSERT_EQ(table.at_pointer("/layouts").as_array().size(), std::size(rows));
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const auto plan = plan_json(mistral(), target(rows[i].nodes, 8));
    const std::string row = fmt::format("/layouts/{}", i);
    EXPECT_NEAR(together(plan), rows[i].gib, 0.05 + 0.01) << rows[i].nodes;
    EXPECT_EQ(plan.at_pointer("/fits").as_bool(), rows[i].fits) << rows[i].nodes;
    EXPECT_EQ(number(plan, "/accumulation"), rows[i].accumulation);
    EXPECT_EQ(number(table, row + "/nodes"), rows[i].nodes);
    EXPECT_EQ(number(table, row + "/accumulation"), rows[i].accumulation);
    EXPECT_EQ(table.at_pointer(row + "/fits").as_bool(), rows[i].fits);
    EXPECT_EQ(number(table, row + "/total_bytes"), number(plan, "/schemes/stage_1/total_bytes"));
  }
  EXPECT_NEAR(number(table, "/schemes/stage_1/state_bytes") / gib, 41.1, 0.05);
  EXPECT_NEAR(kept_gib(table), 35.1, 0.05);
  EXPECT_NEAR(number(table, "/activations/total_bytes") / gib, 35.47, 0.05);
  EXPECT_NEAR(together(plan_json(mistral({"model.vocab_size=49152"}), target(16, 8))), 77.6, 0.05);
  EXPECT_NEAR(number(table, "/capacity_bytes") / gib, 78.6, 1e-6);
}

TEST(RunPlan, OneH200NeedsRecompute) {
  const auto plan = [](const char* level) {
    return plan_json(mistral({std::string("sharding.recompute=") + level}), target(1, 1, "h200"));
  };
  const auto none = plan("none");
  EXPECT_NEAR(140 - number(none, "/schemes/stage_1/state_bytes") / gib, 19, 0.5);
  EXPECT_NEAR(number(none, "/capacity_bytes") / gib, 138.8, 1e-6);
  EXPECT_FALSE(none.at_pointer("/fits").as_bool());
  EXPECT_FALSE(plan("activation").at_pointer("/fits").as_bool());
  EXPECT_TRUE(plan("full").at_pointer("/fits").as_bool());
  EXPECT_TRUE(plan("block").at_pointer("/fits").as_bool());
  EXPECT_NEAR(kept_gib(plan("full")), 14.1, 0.05);
  EXPECT_EQ(text(none, "/cure"), "--set sharding.recompute=full") << "cheaper than block";
  const auto sizes = plan::space_sizes(shape_of(mistral()), partition::Layout({1}));
  const auto bf16_gradients = plan::state_memory(sizes, {.gradient_bytes = 2});
  EXPECT_NEAR(static_cast<double>(bf16_gradients.state()) / gib + kept_gib(plan("activation")), 136.0, 0.05);
}

TEST(RunPlan, NamesTheLargestMicroBatchThatFits) {
  const auto largest = [](const std::vector<std::string>& set, const plan::PlanTarget& where) {
    return static_cast<int>(number(plan_json(mistral(set), where), "/largest_micro_size"));
  };
  const auto fits = [](int micro_size, const char* level) {
    return plan_json(mistral({fmt::format("batch.micro_size={}", micro_size),
                              fmt::format("batch.global_size={}", 64 * micro_size),
                              std::string("sharding.recompute=") + level}),
                     target(8, 8, "h200"))
        .at_pointer("/fits")
        .as_bool();
  };
  EXPECT_EQ(largest({}, target(16, 8)), 1);
  EXPECT_EQ(largest({}, target(1, 8)), 0);
  for (const char* level : {"none", "full", "block"}) {
    const int size = largest({std::string("sharding.recompute=") + level}, target(8, 8, "h200"));
    EXPECT_TRUE(fits(size, level)) << size;
    EXPECT_FALSE(fits(size + 1, level)) << size;
  }
}

TEST(RunPlan, NamesTheShortestCure) {
  const auto cure = [](const std::vector<std::string>& set, const plan::PlanTarget& where) {
    return text(plan_json(mistral(set), where), "/cure");
  };
  EXPECT_EQ(cure({}, target(16, 8)), "") << "fits";
  EXPECT_EQ(cure({}, target(4, 8)), "--set sharding.recompute=activation") << "costs less than a stage";
  EXPECT_EQ(cure({"batch.micro_size=2"}, target(8, 8)), "--set batch.micro_size=1");
  EXPECT_EQ(cure({"sharding.recompute=block"}, target(1, 1, "a100")), "take 4 nodes");
  EXPECT_EQ(cure({"batch.global_size=1"}, target(1, 1, "a100")), "use more GPUs, or GPUs with more memory");
  EXPECT_TRUE(says(cure({"batch.global_size=16", "batch.micro_size=8"}, target(1, 2, "a100")), " and "));
}

TEST(RunPlan, CompletesOrRefusesTheArithmeticOfAStep) {
  const auto sizes = [](const std::vector<std::string>& set, int ranks) {
    return plan_json(mistral(set), {.layout = plan::spread(ranks, std::nullopt)});
  };
  EXPECT_EQ(number(sizes({}, 4), "/accumulation"), 32);
  EXPECT_EQ(number(sizes({}, 64), "/accumulation"), 2);
  const auto uneven = sizes({}, 48);
  EXPECT_EQ(number(uneven, "/accumulation"), 3);
  EXPECT_NEAR(number(uneven, "/idle_share"), 1 - 128 / 144.0, 1e-12);
  EXPECT_EQ(number(sizes({"batch.global_size=null", "batch.accumulation=3"}, 8), "/global_size"), 24);
  EXPECT_EQ(number(sizes({"batch.micro_size=null", "batch.accumulation=4"}, 8), "/micro_size"), 4);
  const auto refused = [&](const std::vector<std::string>& set) {
    return refusal(Fault::config, [&] { (void)sizes(set, 8); });
  };
  EXPECT_TRUE(says(refused({"batch.accumulation=3"}), "try accumulation 16 or global_size 24"));
  EXPECT_TRUE(says(refused({"batch.micro_size=null", "batch.accumulation=3"}), "120 or 144"));
  EXPECT_TRUE(says(refused({"batch.micro_size=3"}), "126 or 129"));
}

TEST(RunPlan, SpreadsRanksOverNodes) {
  EXPECT_EQ(plan::spread(128, std::nullopt), partition::Layout(std::vector<int>(16, 8)));
  EXPECT_EQ(plan::spread(4, std::nullopt), partition::Layout({4}));
  EXPECT_EQ(plan::spread(8, 3), partition::Layout({3, 3, 2}));
  EXPECT_TRUE(says(refusal(Fault::usage, [] { (void)plan::spread(2, 3); }), "1 to 2 nodes"));
}

TEST(RunPlan, CountsTheDiskOfCheckpoints) {
  const auto plan_with = [](std::vector<std::string> set) {
    set.insert(set.end(), {"checkpoint.export_interval=25000", "schedule.length=51000"});
    return plan_json(mistral(set), target(1, 8));
  };
  const auto plan = plan_with({});
  const double bytes = number(plan, "/checkpoint_bytes");
  EXPECT_GE(bytes, 12.0 * 7'241'732'096);
  EXPECT_LT(bytes, 12.0 * 7'241'732'096 + 8 * 34 * 3 * mib + 12e6) << "a MiB for each dataset at most";
  EXPECT_EQ(number(plan, "/disk_bytes"), bytes * (5 + 1 + 3)) << "two exports on the way, one at the end";
  EXPECT_NEAR(number(plan, "/copy_bytes"), bytes / 8, 0.01 * bytes / 8) << "of 8 ranks";
  const auto weights = plan_with({"checkpoint.export_state=weights"});
  EXPECT_NEAR(number(weights, "/disk_bytes"), bytes * (5 + 1 + 1), 3.0);
  const auto mean = plan_with({"checkpoint.export_state=weights", "optimizer.ema=0.999"});
  EXPECT_EQ(number(mean, "/checkpoint_bytes") * 3, bytes * 4);
  EXPECT_NEAR(number(mean, "/disk_bytes"), bytes * 4 / 3 * (5 + 1) + bytes * 2 / 3 * 3, 8.0) << "and of its exports";
  EXPECT_EQ(number(mean, "/copy_bytes") * 3, number(plan, "/copy_bytes") * 4);
  EXPECT_TRUE(plan_json(mistral({"checkpoint.export_interval=1e"}), target(1, 8)).at_pointer("/disk_bytes").is_null());
}

TEST(RunPlan, PlansTranslationWithoutData) {
  const auto config = config::from_document<plan::RunConfig>(config::Document::parse(
      R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a", "target": "b"}]},
          "model": {"preset": "mt_base", "vocab_size": 32000}, "schedule": {"lr": 1e-4, "length": "10e"},
          "batch": {"global_size": 400000, "micro_size": 25000}})",
      "mt.json"));
  const auto plan = plan_json(config, target(1, 8));
  EXPECT_EQ(text(plan, "/position"), "padded_tokens");
  EXPECT_EQ(number(plan, "/positions_per_step"), 400000);
  EXPECT_TRUE(plan.at_pointer("/steps").is_null()) << "epochs depend on the data";
  EXPECT_TRUE(plan.at_pointer("/fits").as_bool());
  EXPECT_GT(number(plan, "/schemes/stage_1/positions_per_s_per_gpu"), 0);
}

TEST(RunPlan, NamesTheLargestPresetThatFits) {
  const std::vector<spec::Preset> presets = spec::presets_of(spec::ModelType::decoder);
  std::set<std::string> named;
  for (const plan::PlanTarget& where : {target(1, 1), target(16, 8), target(16, 8, "h200")}) {
    const auto plan = plan_json(mistral({"model.preset=lm_tiny", "model.width=256"}), where);
    const std::string name = text(plan, "/largest_preset/preset");
    named.insert(name);
    bool larger = false;
    for (const spec::Preset preset : presets) {
      const std::string other = boost::describe::enum_to_string(preset, "");
      const auto of = plan_json(mistral({"model.preset=" + other}), where);
      EXPECT_EQ(of.at_pointer("/fits").as_bool(), !larger) << other;
      if (other != name) continue;
      EXPECT_EQ(number(of, "/schemes/stage_1/total_bytes"), number(plan, "/largest_preset/total_bytes"));
      larger = true;
    }
    EXPECT_TRUE(larger) << name;
  }
  EXPECT_GT(named.size(), 1U);
  EXPECT_TRUE(plan_json(mistral({"init_from=ckpt"}), target(1, 1)).at_pointer("/largest_preset").is_null());
}

TEST(RunPlan, SaysNothingOfFittingWithoutAGpu) {
  const auto plan = plan_json(mistral(), {.layout = partition::Layout({4})});
  for (const char* figure : {"/fits", "/run_s", "/largest_micro_size", "/largest_preset"})
    EXPECT_TRUE(plan.at_pointer(figure).is_null()) << figure;
  EXPECT_TRUE(plan.at_pointer("/layouts").as_array().empty());
  EXPECT_GT(number(plan, "/schemes/stage_1/total_bytes"), 0);
}

TEST(RunPlan, IsRefusedWhereStateAloneIsTooLarge) {
  const plan::RunPlan plan = run_plan_of(mistral(), target(4, 8));
  const std::int64_t state = plan.chosen().state.state() + plan.chosen().state.scratch;
  EXPECT_NO_THROW(plan::require_state_fits(plan, state));
  const std::string said = refusal(Fault::config, [&] { plan::require_state_fits(plan, state - 1); });
  EXPECT_TRUE(says(said, "scheme stage_1 on 32 ranks (4 nodes) needs ", "--set sharding.recompute=activation"));
}

TEST(RunPlan, NamesAStageWhoseStateFitsWhereNothingElseIsKnown) {
  const plan::RunPlan plan = run_plan_of(mistral(), {.layout = partition::Layout({8})});
  const auto remedy = [&](Scheme largest) {
    const plan::StateMemory& state = plan.schemes[static_cast<std::size_t>(largest)].state;
    const std::int64_t capacity = state.state() + state.scratch + plan.copy_bytes;
    return error_of([&] { plan::require_state_fits(plan, capacity); }).facts().remedy;
  };
  EXPECT_TRUE(remedy(Scheme::stage_2).starts_with("try --set sharding.zero_stage=2, which needs "))
      << remedy(Scheme::stage_2);
  EXPECT_TRUE(remedy(Scheme::stage_3).starts_with("try --set sharding.zero_stage=3, which needs "))
      << remedy(Scheme::stage_3);
  EXPECT_TRUE(
      says(refusal(Fault::config, [&] { plan::require_state_fits(plan, 1 << 20); }), "no sharding scheme fits"));
}

TEST(RunPlan, CountsTheWholeModelWhereAValidationTranslates) {
  const auto config_of = [](const char* metric) {
    return config::from_document<plan::RunConfig>(
        config::Document::parse(fmt::format(R"({{"run_dir": "r", "data": {{"tokenizer": "t", "shards": "s",
            "corpora": [{{"name": "c", "source": "a", "target": "b"}}]}},
          "model": {{"preset": "mt_base", "vocab_size": 32000}}, "schedule": {{"lr": 1e-4, "length": "10e"}},
          "batch": {{"global_size": 64, "micro_size": 1, "unit": "examples"}}, "sharding": {{"zero_stage": 3}},
          "validation": {{"metrics": ["loss", "{}"]}}}})",
                                            metric),
                                "mt.json"));
  };
  const plan::RunConfig translating = config_of("ter");
  const plan::PlanTarget where{.layout = partition::Layout({8})};
  const plan::RunPlan with = run_plan_of(translating, where), without = run_plan_of(config_of("perplexity"), where);
  const plan::StateMemory& state = with.chosen().state;
  EXPECT_EQ(without.chosen().state.translating, 0);
  EXPECT_GT(state.translating, state.scratch);
  EXPECT_EQ(with.chosen().total_bytes, state.state() + state.translating) << "more than one sentence takes";
  EXPECT_LT(without.chosen().total_bytes, with.chosen().total_bytes);
  const std::vector<std::string> lines = plan::lines_of(with, translating, plan::Schemes::configured);
  EXPECT_TRUE(says(fmt::format("{}", fmt::join(lines, "\n")), "while a validation translates, "));
  const std::int64_t needed = state.state() + state.translating + with.copy_bytes;
  EXPECT_NO_THROW(plan::require_state_fits(with, needed));
  (void)refusal(Fault::config, [&] { plan::require_state_fits(with, needed - 1); });
}

TEST(RunPlan, SaysWhatTheOptimizerKeepsWhereItIsNotAdamw) {
  const auto text = [](std::vector<std::string> set) {
    return fmt::format("{}", fmt::join(plan::lines_of(run_plan_of(mistral(set), target(16, 8)), mistral(set),
                                                      plan::Schemes::configured),
                                       "\n"));
  };
  EXPECT_TRUE(text({}).find("optimizer adamw") == std::string::npos);
  // 7.2 G parameters, two moments of 4 bytes, 128 ranks.
  EXPECT_TRUE(says(text({"optimizer.type=adafactor"}), "of state on the fullest rank; AdamW in fp32: 431.69 MiB"));
  // One moment in the blocks; or 1 byte and 1/64, or 1/2 and 1/32, for each of two.
  EXPECT_TRUE(says(text({"optimizer.type=muon"}), "optimizer muon: "));
  EXPECT_TRUE(says(text({"optimizer.state=int8"}), "optimizer adamw: 116.95 MiB"));
  EXPECT_TRUE(says(text({"optimizer.state=int4"}), "optimizer adamw: "));
  EXPECT_TRUE(text({"optimizer.type=adafactor"}).find("max_grad_norm") == std::string::npos);
  EXPECT_TRUE(says(text({"optimizer.type=adafactor", "optimizer.max_grad_norm=1"}), "optimizer.max_grad_norm is set"));
}

TEST(PlanLines, SetWhatWasMeasuredBesideThePlan) {
  EXPECT_TRUE(says(plan::memory_line(run_plan_of(mistral(), target(16, 8)), 3LL << 30, 5LL << 29),
                   "rank: 3.00 GiB for state and buffers (planned: 41.1",
                   "at most 2.50 GiB for the rest (estimated activations: 35.47"));
}

TEST(PlanLines, ShowEverySchemeAndTheCure) {
  const auto config = mistral();
  const plan::RunPlan plan = run_plan_of(config, target(4, 8));
  std::string all;
  const std::vector<std::string> formats{"ct2", "hf"};
  for (const std::string& line : plan::lines_of(plan, config, plan::Schemes::all, formats)) all += line + "\n";
  EXPECT_TRUE(
      says(all, "7,241,732,096 parameters", "; exportable as ct2, hf\n", "accumulation 4",
           "scheme stage_1, as configured: does not fit\n", "\nscheme stage_2: ", "\nscheme stage_3: ",
           "\nscheme hybrid: ", "\nscheme ddp, for comparison (Argosy does not run it): ", "\nscheme hsdp, for ",
           "by a rank 198.491 GB inside its node, 21.267 GB out of it; by a node 170.14 GB", " s (bound), ",
           "rates of a GPU, measured with this code on h100: none; not measured, but bounds: matrix products "
           "640 TFLOP/s, ",
           "\n  time of a step    at least ", "\n  speed             at most ", "MFU", "activations 35.47 (estimate)",
           "no batch.micro_size fits\n", "16 nodes", "of the run ", "524,288,000,000 in all", "h100 has 78.6 GiB"));
  plan::PlanTarget measured = target(4, 8);
  measured.gpu_positions_per_s = 9000;
  all.clear();
  for (const std::string& line : plan::lines_of(run_plan_of(config, measured), config, plan::Schemes::configured))
    all += line + "\n";
  EXPECT_TRUE(says(all, " s (estimate), ")) << "a speed that the user has measured";
  EXPECT_EQ(all.find("bound"), std::string::npos);
  const auto own = plan::lines_of(plan, config, plan::Schemes::configured);
  for (const std::string& line : own) EXPECT_EQ(line.find("stage_2"), std::string::npos) << line;
}

TEST(RunPlan, CountsThePartsOfEachFamily) {
  const auto parameters = [](const std::vector<std::string>& set) {
    return static_cast<std::int64_t>(number(plan_json(t5(set), target(1, 8)), "/parameters"));
  };
  constexpr std::int64_t d = 512, f = 2048, v = 8000, attention = 4 * d * d, gated = 3 * d * f;
  const std::int64_t all = v * d + 6 * (attention + gated + 2 * d) + 6 * (2 * attention + gated + 3 * d) + 2 * d;
  EXPECT_EQ(parameters({}), all + 2 * 32 * 8) << "two tables of 32 buckets and 8 heads";
  EXPECT_EQ(parameters({"model.tie_embeddings=false"}), all + 2 * 32 * 8 + 2 * v * d);
  EXPECT_EQ(parameters({"model.encoder.position=learned", "model.decoder.position=learned"}),
            all + 2 * 2048 * d + 64 * d)
      << "and Pegasus' row of pad";
  EXPECT_EQ(parameters({"model.encoder.position=alibi", "model.qkv_bias=true"}),
            all + 32 * 8 + 64 * d + 6 * 3 * d + 6 * 6 * d);
  // Gelu by tanh has the matrices of swiglu.
  const auto figures = [](const char* activation) {
    boost::json::object plan =
        plan_json(t5({std::string("model.activation=") + activation, "model.qkv_bias=true"}), target(1, 8)).as_object();
    return std::pair(boost::json::serialize(plan["flops_per_position"]), boost::json::serialize(plan["activations"]));
  };
  EXPECT_EQ(figures("geglu"), figures("swiglu"));
  EXPECT_NE(figures("geglu"), figures("gelu"));
}

}  // namespace
}  // namespace argosy::test
