#include <boost/json/serialize.hpp>

#include "data/data_config.hpp"
#include "plan_support.hpp"
#include "support/json_numbers.hpp"

/// Every number of a configuration, set to what nobody should set it to: taken as it stands, or refused in a sentence.
namespace argosy::test {
namespace {

constexpr const char* translation = R"({
  "run_dir": "r", "seed": 1,
  "data": {"tokenizer": "t", "shards": "s", "workers": 2, "temperature": 2.0,
    "corpora": [{"name": "c", "source": "a", "target": "b", "weight": 2.0,
                 "transforms": [{"type": "max_length", "source": 100, "target": 100}]}],
    "tokenizer_training": {"vocab_size": 8000, "character_coverage": 0.5, "sample_lines": 100},
    "split": {"train": 0.9, "validation": 0.1}},
  "model": {"vocab_size": 8000, "width": 64, "ff": 96, "heads": 4, "kv_heads": 2, "head_size": 16,
            "vocab_multiple": 64, "rope_theta": 10000.0, "max_positions": 512, "position_shift_max": 8, "norm_epsilon": 1e-6, "dropout": 0.5,
            "neftune_alpha": 5.0,
            "encoder": {"layers": 2}, "decoder": {"layers": 2}},
  "loss": {"label_smoothing": 0.1, "z": 0.1, "error_norm_truncation": 1.3, "error_norm_truncation_after": 7, "chunk_bytes": 2000000},
  "optimizer": {"weight_decay": 0.1, "beta2": 0.9, "epsilon": 0.1},
  "schedule": {"lr": 0.001, "warmup": 10, "length": 100, "decay_end": 90},
  "batch": {"global_size": 2400, "micro_size": 600, "width_multiple": 8},
  "checkpoint": {"interval": 10, "export_interval": 50},
  "validation": {"steps": 5, "early_stop": {"metric": "loss", "patience": 3, "min_delta": 0.1}},
  "stop": {"before_end_s": 10.0}, "comm": {"timeout_s": 100.0}})";
constexpr const char* language = R"({
  "run_dir": "r", "data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a"}]},
  "model": {"type": "decoder", "vocab_size": 8000, "width": 64, "ff": 96, "heads": 4, "window": 64,
            "rope_scaling": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_positions": 512},
            "decoder": {"layers": 2}},
  "schedule": {"lr": 0.001, "warmup": 10, "length": 100},
  "batch": {"micro_size": 2048, "accumulation": 2}})";

/// All that is made of a configuration before anything is allocated by it.
void use(const plan::RunConfig& config) {
  const spec::Architecture shape = shape_of(config);
  EXPECT_GE(shape.vocabulary.rows, shape.vocabulary.pieces);
  for (const auto& [nodes, ranks] : {std::pair{1, 1}, {3, 4}}) {
    const data::StepSizes sizes = data::resolve_sizes(config.batch, nodes * ranks);
    EXPECT_GT(sizes.micro_batches, 0);
    EXPECT_GT(sizes.accumulation, 0);
    EXPECT_LE(sizes.accumulation, sizes.micro_batches);
    const plan::RunPlan plan = plan::plan_run(config, shape, target(nodes, ranks));
    EXPECT_GT(plan.checkpoint_bytes, 0);
    static_cast<void>(plan::json_of(plan));
    static_cast<void>(plan::lines_of(plan, config, plan::Schemes::all));
  }
}

class ConfigNumbers : public testing::TestWithParam<const char*> {};

TEST_P(ConfigNumbers, AreTakenAsTheyAreOrRefused) {
  const boost::json::value whole =
      config::to_json(config::from_document<plan::RunConfig>(config::Document::parse(GetParam(), "whole.json")));
  const std::vector<std::string> pointers = numbers_of(whole);
  EXPECT_GT(pointers.size(), 30U);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const boost::json::value values[] = {0, -1, 1LL << 31, (1LL << 32) + 1, most, 1e308, -1e308, 1e-300};
  int taken = 0;
  for (const std::string& pointer : pointers) {
    for (const boost::json::value& value : values) {
      SCOPED_TRACE(pointer + " = " + boost::json::serialize(value));
      boost::json::value changed = whole;
      boost::json::error_code none;
      *changed.find_pointer(pointer, none) = value;
      try {
        const auto config = config::from_document<plan::RunConfig>(
            config::Document::parse(boost::json::serialize(changed), "changed.json"));
        const boost::json::value said = config::to_json(config);
        EXPECT_EQ(said.find_pointer(pointer, none)->to_number<double>(), value.to_number<double>());
        use(config);
        ++taken;
      } catch (const Error& error) {
        EXPECT_TRUE(error.fault() == Fault::config || error.fault() == Fault::usage) << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(taken, 30) << "some of them are numbers like others";
}
INSTANTIATE_TEST_SUITE_P(All, ConfigNumbers, testing::Values(translation, language));

TEST(ConfigNumber, OfMoreThan32BitsIsNoSmallOne) {
  const auto micro_batches = [](const char* set) {
    config::Document document = config::Document::parse(translation, "translation.json");
    document.set(set);
    return data::resolve_sizes(config::from_document<plan::RunConfig>(document).batch, 4).micro_batches;
  };
  EXPECT_EQ(micro_batches("batch.global_size=6000"), 10);
  EXPECT_THROW((void)micro_batches("batch.global_size=2576980378200"), Error) << "2^32 + 1 micro-batches of 600";
  EXPECT_THROW((void)micro_batches("model.max_positions=4294967297"), Error);
}

}  // namespace
}  // namespace argosy::test
