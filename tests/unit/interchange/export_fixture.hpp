#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/describe.hpp"
#include "interchange/formats.hpp"
#include "spec/fine_tuning.hpp"
#include "spec/model_spec.hpp"
#include "support/saved_toys.hpp"
#include "support/small_model.hpp"
#include "support/small_text.hpp"
#include "support/temp_folder.hpp"

namespace argosy::test {

/// Exports small checkpoints whose every element is known. Configurations are changed by the tests.
class ExportFixture : public testing::Test {
 protected:
  ExportFixture() {
    translation.max_positions = 5;
    t5 = translation;
    t5.norm = spec::Norm::rms_norm;
    t5.norm_position = spec::NormPosition::pre;
    t5.activation = spec::Activation::geglu;
    t5.bias = false;
    t5.encoder.position = t5.decoder.position = spec::Position::t5;
    t5.head_size = 6;
    m2m = translation;
    m2m.norm_position = spec::NormPosition::pre;
    m2m.output_bias = false;
    m2m.encoder.position = m2m.decoder.position = spec::Position::sinusoidal_fairseq;
    m2m.token_ids = spec::TokenIds{.eos = 0, .unk = 1, .pad = 1, .start = 0};
    language = translation;
    language.type = spec::ModelType::decoder;
    language.heads = 4;
    language.kv_heads = 2;
    language.head_size = 6;
    language.window = 3;
    language.rope_theta = 500;
    language.encoder.layers.reset();
  }

  Path save(const spec::ModelConfig& config, float spoil = 0) {
    const spec::VocabularyRule rule = spec::vocabulary_rule(config);
    const std::string tokenizer = tokenizer_json.empty() ? small_tokenizer(rule.layout).model_bytes() : tokenizer_json;
    const std::int64_t pieces = data::Tokenizer::load(tokenizer, rule).vocabulary().pieces;
    Units units;
    spec::ModelSpec spec(spec::resolve(config, pieces), sharing);
    if (lora) spec = spec::with_adapters(std::move(spec), *lora);
    for (const spec::Unit& unit : spec.units) units.emplace_back(unit_prefix + unit.name, unit.flat());
    checkpoint::Sections all = sections;
    all.model["config"] = config::to_json(config);
    all.model["vocab_size"] = pieces;
    if (!spec::is_plain(config)) all.model["sharing"] = config::to_json(sharing);
    if (lora) all.model["lora"] = config::to_json(*lora);
    Toy toy{units, context.topology().layout(), 0};
    toy.fill(1);
    if (spoil != 0) toy.tensor(0, 1)[3] = spoil;
    return save_step(context, folder / "run", ++step, toy.states(), all, {{"tokenizer.model", tokenizer}});
  }
  void write(const char* format, const spec::ModelConfig& config, const interchange::ExportOptions& options = {}) {
    out = folder / fmt::format("out-{}", step);
    const checkpoint::Reader reader{Files::system(), save(config)};
    report = interchange::format_named(format).write(context.get(), model::stored_model(reader), out, options);
  }
  [[nodiscard]] std::string read(const std::string& name) const { return Files::system().read_text(out / name); }

  /// Rows of a parameter of the checkpoint.
  static std::vector<float> rows(const std::string& name, std::int64_t columns, std::int64_t begin, std::int64_t end) {
    std::vector<float> values;
    for (std::int64_t i = begin * columns; i < end * columns; ++i) values.push_back(element(name, 0, i, 1));
    return values;
  }

  Os os;
  TempFolder folder;
  TestContext context{os, world()};
  spec::ModelConfig translation =
      model_config({.width = 8, .ff = 12, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  spec::ModelConfig language, t5, m2m;
  std::int64_t step = 0;
  checkpoint::Sections sections = toy_sections();  // of the next checkpoint, but for its model
  std::string tokenizer_json;                      // instead of a small SentencePiece model
  std::string unit_prefix;
  spec::Sharing sharing;  // of a model with tasks
  std::optional<spec::LoraConfig> lora;
  Path out;
  interchange::ExportReport report;
};

}  // namespace argosy::test
