#include "plan/run_config.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "config/describe.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;

/// `members`: what stands next to a sound `data` section.
RunConfig read(const std::string& members) {
  const std::string text =
      R"({"data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a", "target": "b"}]},)";
  return config::from_document<RunConfig>(config::Document::parse(text + members + "}", "test.json"));
}

TEST(RunConfig, EveryKeyIsExplained) { EXPECT_EQ(config::keys_without_text<RunConfig>(), std::vector<std::string>{}); }

TEST(RunConfig, CountAndPreprocessNeedNoSchedule) {
  EXPECT_NO_THROW((void)read(""));
  EXPECT_TRUE(
      says(refusal(Fault::config, [] { require_trainable(read("")); }), "run_dir, schedule.lr, schedule.length"));
  EXPECT_NO_THROW(require_trainable(read(R"("run_dir": "r", "schedule": {"lr": 1e-3, "length": 9000})")));
  EXPECT_NO_THROW(
      require_trainable(read(R"("run_dir": "r", "schedule": {"style": "noam", "noam_scale": 2, "length": 9000})")));
}

TEST(RunConfig, NeedsTextToReadUnlessTasksSayIt) {
  const std::string text = R"({"data": {"tokenizer": "t", "shards": "s", "corpora": []}})";
  EXPECT_TRUE(says(refusal(Fault::config,
                           [&] { (void)config::from_document<RunConfig>(config::Document::parse(text, "test.json")); }),
                   "data.corpora must be at least one corpus, unless tasks is given"));
}

TEST(RunConfig, APresetChangesTheDefaultsAlone) {
  const auto effective = [](const std::string& members, const std::vector<std::string>& set = {}) {
    config::Document document = config::Document::parse(
        R"({"data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a", "target": "b"}]})" +
            members + "}",
        "test.json");
    for (const std::string& assignment : set) document.set(assignment);
    const boost::json::value all = config::to_json(config::from_document<RunConfig>(document));
    std::string text;
    for (const char* key :
         {"/preset", "/optimizer/max_grad_norm", "/optimizer/skip/factor", "/loss/label_smoothing", "/loss/z"})
      text += config::text_of(all.at_pointer(key), false) + " ";
    return text;
  };
  const std::string tuning = R"(, "preset": "fine_tuning")";
  EXPECT_EQ(effective(""), R"("none" null 0 null 0 )");
  EXPECT_EQ(effective(tuning), R"("fine_tuning" 5 10 0 0 )");
  EXPECT_EQ(effective("", {"preset=fine_tuning"}), effective(tuning));
  EXPECT_EQ(effective(tuning, {"preset=none"}), effective(""));
  EXPECT_EQ(effective(tuning + R"(, "optimizer": {"max_grad_norm": 1, "skip": {"after": 9}}, "loss": {"z": 2})"),
            R"("fine_tuning" 1 10 0 2 )")
      << "a section that sets other keys";
  EXPECT_EQ(effective(tuning, {"optimizer.skip.factor=3", "loss.label_smoothing=0.2"}), R"("fine_tuning" 5 3 0.2 0 )");
  EXPECT_EQ(effective(tuning, {"loss.label_smoothing=null"}), R"("fine_tuning" 5 10 null 0 )");
  EXPECT_EQ(effective(tuning + R"(, "optimizer": {"type": "adafactor"})"), R"("fine_tuning" null 10 0 0 )");
  EXPECT_TRUE(says(refusal(Fault::config, [&] { (void)effective(R"(, "preset": "finetuning")"); }),
                   "preset must be one of none, fine_tuning, got \"finetuning\"; did you mean fine_tuning?"));
}

TEST(RunConfig, RelativeStepsDecideTheSchedule) {
  const std::string optimizer = R"("run_dir": "r", "optimizer": {"type": "adafactor", "relative_step": true})";
  const RunConfig config = read(optimizer + R"(, "schedule": {"length": 20000})");
  EXPECT_NO_THROW(require_trainable(config));
  EXPECT_DOUBLE_EQ(optim::learning_rate(schedule_of(config), 1), 1e-2);
  EXPECT_DOUBLE_EQ(optim::learning_rate(schedule_of(config), 40000), 5e-3);
  RunConfig slow = config;
  slow.optimizer.warmup_init = true;
  EXPECT_DOUBLE_EQ(optim::learning_rate(schedule_of(slow), 3), 3e-6);
  for (const char* const key : {R"("lr": 1e-3)", R"("style": "cosine")", R"("warmup": 9)", R"("min_lr": 1e-9)",
                                R"("decay_end": 100)", R"("length": "2e")"})
    EXPECT_TRUE(
        says(refusal(Fault::config, [&] { (void)read(fmt::format(R"({}, "schedule": {{{}}})", optimizer, key)); }),
             "since optimizer.relative_step"))
        << key;
}

TEST(RunConfig, AMissingRateComesWithAUsualOne) {
  const RunConfig config = read(R"("run_dir": "r", "model": {"preset": "mt_base"}, "schedule": {"length": 9000})");
  EXPECT_TRUE(
      says(refusal(Fault::config, [&] { require_trainable(config); }), "(44.1 M parameters in blocks) is 0.0008"));
}

TEST(RunConfig, RefusesWhatDoesNotFit) {
  for (const char* text :
       {R"("sharding": {"zero_stage": 4})",
        R"("sharding": {"zero_stage": 0})",
        R"("sharding": {"zero_stage": 2, "scope": "hybrid"})",
        R"("sharding": {"recompute": "some"})",
        R"("sharding": {"reduction": "elastic"}, "optimizer": {"type": "adafactor"})",
        R"("sharding": {"reduction": "elastic"}, "optimizer": {"update_clip": 1})",
        R"("precision": {"gradient_wire": "fp16"})",
        R"("precision": {"gradient_wire": {"inner": "bf8"}})",
        R"("precision": {"gradient_wire": {"middle": "bf16"}})",
        R"("device": "gpu")",
        R"("run_dir": "run\u0000dir")",
        R"("loss": {"label_smoothing": 1})",
        R"("loss": {"z": -1})",
        R"("loss": {"error_norm_truncation": -1})",
        R"("loss": {"chunk_bytes": 10})",
        R"("checkpoint": {"interval": 0})",
        R"("checkpoint": {"max_checkpoints": 0})",
        R"("checkpoint": {"max_failed_saves": 0})",
        R"("validation": {"interval": 0})",
        R"("validation": {"steps": 0})",
        R"("validation": {"metrics": []})",
        R"("validation": {"metrics": ["blue"]})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "keep_best": ["blue"]})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "early_stop": {"metric": "blue"}})",
        R"("validation": {"sets": [{"source": "a"}]})",
        R"("validation": {"early_stop": {"patience": 3}})",
        R"("validation": {"keep_best": ["loss"]})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "early_stop": {"patience": 0}})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "early_stop": {"min_delta": -1}})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "early_stop": {"metric": "chrf"}})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "keep_best": ["loss", "bleu"]})",
        R"("validation": {"sets": [{"source": "", "target": "b"}]})",
        R"("validation": {"sets": [{"source": "a", "target": "b"}], "samples": -1})",
        R"("validation": {"samples": 2, "collapse": true})",
        R"("validation": {"command": {"run": ""}})",
        R"("validation": {"command": {"run": "true", "limit_s": 0}})",
        R"("model": {"type": "decoder"}, "validation": {"sets": [{"source": "a"}], "samples": 1, "collapse": true})",
        R"("model": {"type": "decoder"}, "validation": {"sets": [{"source": "a", "target": "b"}]})",
        R"("model": {"type": "decoder"}, "validation": {"sets": [{"source": "a", "corpus": "c"}]})",
        R"("model": {"type": "decoder"}, "validation": {"metrics": ["bleu", "ter"]})",
        R"("comm": {"timeout_s": 0})",
        R"("precision": {"mode": "fp16"})",
        R"("sharding": {"reduction": "slow"})",
        R"("telemetry": {"wandb": {"mode": "sometimes"}})",
        R"("telemetry": {"wandb": {"project": ""}})",
        R"("telemetry": {"wandb": {"name": "a\u0000b"}})",
        R"("sharding": {"reduction": "elastic"}, "precision": {"gradient_wire": {"outer": "bf16"}})",
        R"("run_dri": "x")"}) {
    SCOPED_TRACE(text);
    const std::string said = test::refusal(Fault::config, [&] { (void)read(text); });
    EXPECT_EQ(said.find(": data."), std::string::npos) << said;
  }
}

TEST(RunConfig, ReadsTheWireOfGradientsByLevel) {
  const auto wire = [](const char* json) {
    return read(std::string(R"("precision": {"gradient_wire": )") + json + "}").precision.gradient_wire;
  };
  using enum plan::WireType;
  EXPECT_EQ(read("").precision.gradient_wire, (plan::GradientWire{fp32, fp32}));
  EXPECT_EQ(wire(R"("bf16")"), (plan::GradientWire{bf16, bf16}));
  EXPECT_EQ(wire(R"({"outer": "bf16"})"), (plan::GradientWire{fp32, bf16}));
  EXPECT_EQ(wire(R"({"inner": "bf16", "outer": "fp32"})"), (plan::GradientWire{bf16, fp32}));
  EXPECT_EQ(plan::GradientWire::parse(wire(R"({"outer": "bf16"})").text()), (plan::GradientWire{fp32, bf16}));
}

TEST(RunConfig, RefusesChoicesThatCannotWorkTogether) {
  const auto refused = [](const char* text, const char* key) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(says(test::refusal(Fault::config, [&] { (void)read(text); }), key));
  };
  refused(R"("sharding": {"zero_stage": 3, "scope": "hybrid", "reduction": "elastic"})", "sharding.scope");
  refused(R"("precision": {"mode": "bf16_pure"}, "optimizer": {"ema": 0.999})", "optimizer.ema");
  refused(R"("optimizer": {"ema": 1})", "optimizer.ema");
  refused(R"("sharding": {"accumulation_order": "breadth_first", "reduction": "elastic"})",
          "sharding.accumulation_order");
  refused(R"("model": {"type": "decoder", "embeddings": {"share": "language"}})", "model.embeddings.share");
  refused(R"("model": {"type": "decoder", "tie_inputs": false})", "model.tie_inputs");
  refused(R"("model": {"token_ids": {"eos": -1}})", "model.token_ids.eos");
  refused(R"("model": {"type": "decoder", "max_positions": 64}, "batch": {"sequence_length": 65})",
          "batch.sequence_length");
  refused(R"("model": {"type": "decoder", "max_positions": 64, "position_shift_max": 10, "decoder": {"position":
             "learned"}}, "batch": {"sequence_length": 55})",
          "batch.sequence_length");
  refused(R"("loss": {"error_norm_truncation_after": 3})", "loss.error_norm_truncation_after");
  refused(R"("loss": {"error_norm_truncation": 1.1, "error_norm_truncation_after": -1})",
          "loss.error_norm_truncation_after");
  refused(R"("model": {"prefix_lm": true})", "model.prefix_lm");
  EXPECT_NO_THROW((void)read(R"("sharding": {"zero_stage": 3}, "validation": {"metrics": ["loss", "bleu", "ter"]})"));
}

TEST(RunConfig, AValidationSetHasThePrefixesOfItsCorpus) {
  const auto read_with = [](const std::string& prefix, const std::string& set) {
    const std::string text =
        R"({"data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a", "target": "b",
            "languages": ["fi", "en"], "directions": "both", "source_prefix": [")" +
        prefix + R"("]}]}, "validation": {"sets": [{"source": "v", "target": "w")" + set + "}]}}";
    return config::from_document<RunConfig>(config::Document::parse(text, "test.json"));
  };
  const auto source_prefix = [](const RunConfig& config) {
    return prefixes_of(config.validation.sets.at(0), config.data).value().source;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(source_prefix(read_with("<dom>", "")), Pieces{"<dom>"});
  EXPECT_EQ(source_prefix(read_with("<{to}>", R"(, "corpus": "c")")), Pieces{"<en>"});
  EXPECT_EQ(source_prefix(read_with("<{to}>", R"(, "corpus": "c-reversed")")), Pieces{"<fi>"});
  for (const auto& [set, words] :
       {std::pair{"",
                  "the name of the corpus that the set is for, since their prefixes differ: c, c-reversed, got none"},
        {R"(, "corpus": "d")", "the name of a corpus: c, c-reversed, got d"}})
    EXPECT_TRUE(says(test::refusal(Fault::config, [&] { (void)read_with("<{to}>", set); }), words));
}

TEST(RunConfig, WidthsAreMultiplesOf8WhereAttentionAddsABias) {
  using testing::Optional;
  EXPECT_EQ(batch_of(read("")).width_multiple, std::nullopt);
  EXPECT_THAT(batch_of(read(R"("model": {"encoder": {"position": "t5"}})")).width_multiple, Optional(8));
  EXPECT_THAT(batch_of(read(R"("model": {"decoder": {"position": "alibi"}})")).width_multiple, Optional(8));
  EXPECT_EQ(batch_of(read(R"("model": {"decoder": {"position": "rope"}})")).width_multiple, std::nullopt);
  EXPECT_THAT(
      batch_of(read(R"("model": {"encoder": {"position": "t5"}}, "batch": {"width_multiple": 1})")).width_multiple,
      Optional(1));
}

TEST(RunConfig, PromptsInBothDirectionsNeedACorpusWithPrompts) {
  const auto text = [](const char* corpus) {
    return fmt::format(
        R"({{"model": {{"type": "decoder", "prefix_lm": true}}, "data": {{"tokenizer": "t", "shards": "s",
                       "corpora": [{{"name": "a", "languages": ["en"], {}}}]}}}})",
        corpus);
  };
  const auto read_text = [](const std::string& json) {
    return config::from_document<RunConfig>(config::Document::parse(json, "test"));
  };
  for (const char* none : {R"("source": "a.txt")", R"("source": "a.jsonl", "fields": {"text": "/body"})",
                           R"("source": "a.tsv")", R"("source": "a.tsv", "fields": {"text": "2"})"})
    EXPECT_TRUE(says(test::refusal(Fault::config, [&] { (void)read_text(text(none)); }), "model.prefix_lm")) << none;
  for (const char* some : {R"("source": "a.jsonl")", R"("source": "a.jsonl", "fields": {"messages": "/chat"})",
                           R"("source": "a.tsv", "fields": {"source": "1", "target": "2"})"})
    EXPECT_TRUE(read_text(text(some)).model.prefix_lm) << some;
}

TEST(RunConfig, ATrainedTokenizerHasTheUsualIds) {
  RunConfig config = read(R"("model": {"token_ids": {"eos": 2}})");
  config.data.tokenizer_training.emplace();
  config::Problems problems;
  validate(config, problems);
  ASSERT_EQ(problems.all().size(), 1U);
  EXPECT_EQ(problems.all().front().pointer, "/model/token_ids");
}

TEST(RunConfig, SmoothingFollowsTheKindOfModel) {
  EXPECT_EQ(label_smoothing_of(read("")), 0.1);
  EXPECT_EQ(label_smoothing_of(read(R"("model": {"type": "decoder"})")), 0);
  EXPECT_EQ(label_smoothing_of(read(R"("loss": {"label_smoothing": 0.2})")), 0.2);
}

TEST(RunConfig, CommittedConfigurationsAreSound) {
  const Path folder = Path(std::getenv("ARGOSY_SOURCE_DIR")) / "configs";
  int seen = 0;
  for (const std::string& name : Files::system().list(folder)) {
    if (!name.ends_with(".json")) continue;
    ++seen;
    const auto config = config::from_document<RunConfig>(
        config::Document::parse(config::read_source(Files::system(), folder / name), name));
    EXPECT_NO_THROW(require_trainable(config)) << name;
    EXPECT_NO_THROW((void)spec::resolve(config.model, config.model.vocab_size.value_or(8000))) << name;
  }
  EXPECT_GE(seen, 6);
}

}  // namespace
}  // namespace argosy::test
