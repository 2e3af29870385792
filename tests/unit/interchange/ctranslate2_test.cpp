#include <gmock/gmock.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "config/describe.hpp"
#include "model/stored_model.hpp"
#include "support/forged_numbers.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

using testing::ElementsAre, testing::HasSubstr;

/// model.bin as lib/interchange/FORMAT.md describes it, read once more.
struct Bin {
  struct Entry {
    std::vector<std::uint32_t> shape;
    int type = -1;
    std::string bytes;

    template <class T>
    [[nodiscard]] std::vector<T> as() const {
      std::vector<T> values(bytes.size() / sizeof(T));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
  };
  std::string spec;
  std::uint32_t revision = 0;
  std::vector<std::string> names;
  std::map<std::string, Entry> variables;
  std::map<std::string, std::string> aliases;

  template <class T>
  [[nodiscard]] T scalar(const std::string& name) const {
    const Entry& entry = variables.at(name);
    EXPECT_TRUE(entry.shape.empty() && entry.bytes.size() == sizeof(T)) << name;
    return entry.as<T>().at(0);
  }
  [[nodiscard]] std::vector<float> floats(const std::string& name) const { return variables.at(name).as<float>(); }

  explicit Bin(std::string_view rest) {
    const auto take = [&]<class T>(T value) {
      std::memcpy(&value, rest.data(), sizeof value);
      rest.remove_prefix(sizeof value);
      return value;
    };
    const auto text = [&] {
      const std::size_t size = take(std::uint16_t{});
      std::string value{rest.substr(0, size)};
      rest.remove_prefix(size);
      EXPECT_EQ(value.back(), '\0');
      value.pop_back();
      return value;
    };
    EXPECT_EQ(take(std::uint32_t{}), 6U);
    spec = text();
    revision = take(std::uint32_t{});
    for (std::uint32_t left = take(std::uint32_t{}); left > 0; --left) {
      names.push_back(text());
      Entry& entry = variables[names.back()];
      for (int rank = take(std::uint8_t{}); rank > 0; --rank) entry.shape.push_back(take(std::uint32_t{}));
      entry.type = take(std::uint8_t{});
      const std::size_t size = take(std::uint32_t{});
      entry.bytes = rest.substr(0, size);
      rest.remove_prefix(size);
    }
    for (std::uint32_t left = take(std::uint32_t{}); left > 0; --left) {
      const std::string alias = text();
      aliases[alias] = text();
    }
    EXPECT_TRUE(rest.empty());
  }
};

class Export : public test::ExportFixture {
 protected:
  Bin exported(const spec::ModelConfig& config, Quantization quantization = Quantization::float32) {
    write("ct2", config, {.quantization = quantization});
    return Bin{read("model.bin")};
  }
  void try_export(const Path& directory) {
    const checkpoint::Reader reader{Files::system(), directory};
    (void)format_named("ct2").write(context.get(), model::stored_model(reader), folder / "out", {});
  }
};

TEST_F(Export, ReadsAParameterWhateverUnitHoldsIt) {
  static_cast<void>(exported(translation));
  const std::string bin = read("model.bin");
  unit_prefix = "other/";
  static_cast<void>(exported(translation));
  EXPECT_EQ(read("model.bin"), bin);
}

TEST_F(Export, TokenizerAndModelHaveTheSameIdsForAnyMultiple) {
  for (spec::ModelConfig config : {translation, language}) {
    for (const std::int64_t multiple : {16, 64, 256}) {
      config.vocab_multiple = multiple;
      const Bin bin = exported(config);
      const checkpoint::Reader reader{Files::system(), folder / fmt::format("run/checkpoints/{:09}", step)};
      const model::StoredModel stored = model::stored_model(reader);
      const spec::Vocabulary& vocabulary = stored.tokenizer.vocabulary();
      const bool pairs = config.type == spec::ModelType::encoder_decoder;
      EXPECT_EQ(vocabulary.rows, multiple == 16 ? 304 : multiple == 64 ? 320 : 512);
      EXPECT_EQ(vocabulary.start, pairs ? vocabulary.rows - 1 : 1);
      EXPECT_EQ(stored.spec.architecture.vocabulary, vocabulary);
      EXPECT_EQ(bin.variables.at("decoder/embeddings/weight").shape[0], 300U);
    }
  }
}

TEST_F(Export, TranslationModelHasCTranslate2sVariables) {
  const Bin bin = exported(translation);
  EXPECT_EQ(std::tuple(bin.spec, bin.revision), std::tuple("TransformerSpec", 7U));
  const std::string decoder = "decoder/layer_0/", encoder = "encoder/layer_0/";
  EXPECT_THAT(
      bin.names,
      ElementsAre("decoder/activation", "decoder/embeddings/weight", decoder + "attention/layer_norm/beta",
                  decoder + "attention/layer_norm/gamma", decoder + "attention/linear_0/bias",
                  decoder + "attention/linear_0/weight", decoder + "attention/linear_1/bias",
                  decoder + "attention/linear_1/weight", decoder + "attention/linear_2/bias",
                  decoder + "attention/linear_2/weight", decoder + "ffn/layer_norm/beta",
                  decoder + "ffn/layer_norm/gamma", decoder + "ffn/linear_0/bias", decoder + "ffn/linear_0/weight",
                  decoder + "ffn/linear_1/bias", decoder + "ffn/linear_1/weight",
                  decoder + "self_attention/layer_norm/beta", decoder + "self_attention/layer_norm/gamma",
                  decoder + "self_attention/linear_0/bias", decoder + "self_attention/linear_0/weight",
                  decoder + "self_attention/linear_1/bias", decoder + "self_attention/linear_1/weight",
                  "decoder/num_heads", "decoder/position_encodings/encodings", "decoder/pre_norm",
                  "decoder/projection/bias", "decoder/scale_embeddings", "decoder/start_from_zero_embedding",
                  "encoder/activation", encoder + "ffn/layer_norm/beta", encoder + "ffn/layer_norm/gamma",
                  encoder + "ffn/linear_0/bias", encoder + "ffn/linear_0/weight", encoder + "ffn/linear_1/bias",
                  encoder + "ffn/linear_1/weight", encoder + "self_attention/layer_norm/beta",
                  encoder + "self_attention/layer_norm/gamma", encoder + "self_attention/linear_0/bias",
                  encoder + "self_attention/linear_0/weight", encoder + "self_attention/linear_1/bias",
                  encoder + "self_attention/linear_1/weight", "encoder/num_heads",
                  "encoder/position_encodings/encodings", "encoder/pre_norm", "encoder/scale_embeddings"));
  EXPECT_EQ(bin.aliases,
            (std::map<std::string, std::string>{{"decoder/projection/weight", "decoder/embeddings/weight"},
                                                {"encoder/embeddings_0/weight", "decoder/embeddings/weight"}}));
  for (const std::string side : {"encoder", "decoder"}) {
    EXPECT_EQ(bin.variables.at(side + "/num_heads").type, 2);
    EXPECT_EQ(bin.scalar<std::int16_t>(side + "/num_heads"), 2);
    EXPECT_EQ(bin.scalar<std::int8_t>(side + "/pre_norm"), 0);
    EXPECT_EQ(bin.scalar<std::int8_t>(side + "/activation"), 0);
    EXPECT_EQ(bin.scalar<std::int8_t>(side + "/scale_embeddings"), 1);
    const Bin::Entry& positions = bin.variables.at(side + "/position_encodings/encodings");
    EXPECT_THAT(positions.shape, ElementsAre(5, 8));
    EXPECT_FLOAT_EQ(positions.as<float>()[4 * 8 + 1], static_cast<float>(std::sin(0.4)));  // 10000^(-2/8) = 1/10
    EXPECT_FLOAT_EQ(positions.as<float>()[4 * 8 + 5], static_cast<float>(std::cos(0.4)));
    EXPECT_EQ(positions.as<float>()[4], 1.0F);
  }
  EXPECT_EQ(bin.scalar<std::int8_t>("decoder/start_from_zero_embedding"), 1);

  // 320 rows in the model; fillers and <pad> are cut
  EXPECT_THAT(bin.variables.at("decoder/embeddings/weight").shape, ElementsAre(300, 8));
  EXPECT_EQ(bin.floats("decoder/embeddings/weight"), rows("decoder/embeddings/weight", 8, 0, 300));
  EXPECT_THAT(bin.variables.at("decoder/projection/bias").shape, ElementsAre(300));
  EXPECT_EQ(bin.floats("decoder/projection/bias"), rows("decoder/projection/bias", 1, 0, 300));
  const std::string cross = decoder + "attention/linear_1/weight";
  EXPECT_EQ(bin.variables.at(cross).type, 0);
  EXPECT_THAT(bin.variables.at(cross).shape, ElementsAre(16, 8));
  EXPECT_EQ(bin.floats(cross), rows(cross, 8, 0, 16));
  // embeddings and bias; encoder: qkv 24, out 8, ff 12 and 8 rows; decoder: cross q 8, kv 16, out 8 as well; 2 + 3
  // norms
  EXPECT_EQ(report.parameters, 300 * 9 + 2 * (24 * 9 + 8 * 9 + 12 * 9 + 8 * 13) + (8 + 16 + 8) * 9 + 5 * 16);
}

TEST_F(Export, TranslationFolderSpellsTheVocabularyInOrder) {
  (void)exported(translation);
  EXPECT_THAT(Files::system().list(out),
              testing::UnorderedElementsAre("SHA256SUMS", "config.json", "model.bin", "shared_vocabulary.json",
                                            "source.spm", "target.spm"));
  const data::Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  const boost::json::value parsed = boost::json::parse(read("shared_vocabulary.json"));
  const boost::json::array& pieces = parsed.as_array();
  ASSERT_EQ(pieces.size(), 300U);
  EXPECT_EQ(pieces[0], "</s>");
  EXPECT_EQ(pieces[1], "<unk>");
  for (std::size_t id = 0; id < 300; ++id)
    EXPECT_EQ(std::string(pieces[id].as_string()), tokenizer.piece(static_cast<std::int64_t>(id)));
  EXPECT_EQ(read("source.spm"), tokenizer.model_bytes());
  EXPECT_EQ(read("target.spm"), tokenizer.model_bytes());
  EXPECT_EQ(boost::json::parse(read("config.json")), boost::json::parse(R"({
      "add_source_bos": false, "add_source_eos": true, "decoder_start_token": "</s>", "bos_token": "</s>",
      "eos_token": "</s>", "unk_token": "<unk>", "layer_norm_epsilon": 1e-5, "multi_query_attention": false})"));
}

TEST_F(Export, LanguageModelSplitsGateFromUpAndSaysHowHeadsAndPositionsWork) {
  const Bin bin = exported(language);
  EXPECT_EQ(std::tuple(bin.spec, bin.revision), std::tuple("TransformerDecoderSpec", 8U));
  const std::string layer = "decoder/layer_0/", self = layer + "self_attention/";
  EXPECT_THAT(bin.names, ElementsAre("decoder/activation", "decoder/embeddings/weight", layer + "ffn/layer_norm/gamma",
                                     layer + "ffn/linear_0/weight", layer + "ffn/linear_0_noact/weight",
                                     layer + "ffn/linear_1/weight", self + "head_dim", self + "layer_norm/gamma",
                                     self + "linear_0/weight", self + "linear_1/weight", self + "num_heads_kv",
                                     self + "rotary_base", self + "rotary_dim", self + "rotary_interleave",
                                     self + "sliding_window", "decoder/layer_norm/gamma", "decoder/num_heads",
                                     "decoder/pre_norm", "decoder/projection/weight", "decoder/scale_embeddings",
                                     "decoder/sliding_window", "decoder/start_from_zero_embedding"));
  EXPECT_TRUE(bin.aliases.empty());
  const std::pair<std::string, int> bytes[] = {{"decoder/activation", 2},
                                               {"decoder/pre_norm", 1},
                                               {"decoder/scale_embeddings", 0},
                                               {"decoder/start_from_zero_embedding", 0},
                                               {self + "rotary_interleave", 0}};
  for (const auto& [name, value] : bytes) EXPECT_EQ(bin.scalar<std::int8_t>(name), value) << name;
  const std::pair<std::string, int> numbers[] = {{"decoder/sliding_window", 3},
                                                 {self + "sliding_window", 3},
                                                 {self + "head_dim", 6},
                                                 {self + "num_heads_kv", 2},
                                                 {self + "rotary_dim", 0}};
  for (const auto& [name, value] : numbers) EXPECT_EQ(bin.scalar<std::int32_t>(name), value) << name;
  EXPECT_EQ(bin.variables.at(self + "num_heads_kv").type, 3);
  EXPECT_EQ(bin.scalar<float>(self + "rotary_base"), 500.0F);
  const std::string fused = layer + "ffn/linear_0/weight";
  EXPECT_EQ(bin.floats(fused), rows(fused, 8, 0, 12));
  EXPECT_EQ(bin.floats(layer + "ffn/linear_0_noact/weight"), rows(fused, 8, 12, 24));
  EXPECT_EQ(bin.floats("decoder/projection/weight"), rows("decoder/projection/weight", 8, 0, 300));
  EXPECT_EQ(boost::json::parse(read("vocabulary.json")).as_array().at(1), "<s>");
  EXPECT_EQ(read("tokenizer.model"), test::small_tokenizer(spec::TokenLayout::llama).model_bytes());
  EXPECT_EQ(boost::json::parse(read("config.json")), boost::json::parse(R"({
      "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "layer_norm_epsilon": 1e-5,
      "multi_query_attention": true})"));
}

TEST_F(Export, AGatedLayersBiasIsSplitLikeItsMatrix) {
  language.bias = true;
  const Bin bin = exported(language);
  const std::string layer = "decoder/layer_0/ffn/", fused = layer + "linear_0/bias";
  EXPECT_EQ(bin.floats(fused), rows(fused, 1, 0, 12));
  EXPECT_EQ(bin.floats(layer + "linear_0_noact/bias"), rows(fused, 1, 12, 24));
}

TEST_F(Export, Int8HasAScaleForEachRowOfEachMatrix) {
  const Bin bin = exported(translation, Quantization::int8);
  const std::string name = "decoder/layer_0/ffn/linear_1/weight";  // [8, 12]
  const Bin::Entry &codes = bin.variables.at(name), &scales = bin.variables.at(name + "_scale");
  EXPECT_EQ(codes.type, 1);
  EXPECT_EQ(scales.type, 0);
  EXPECT_THAT(codes.shape, ElementsAre(8, 12));
  EXPECT_THAT(scales.shape, ElementsAre(8));
  const std::vector<float> weights = rows(name, 12, 0, 8), scale = scales.as<float>();
  const std::vector<std::int8_t> code = codes.as<std::int8_t>();
  for (std::size_t row = 0; row < 8; ++row) {
    double largest = 0;
    for (std::size_t i = row * 12; i < row * 12 + 12; ++i) largest = std::max(largest, std::abs(double{weights[i]}));
    EXPECT_NEAR(scale[row], 127 / largest, 1e-4 * scale[row]);
    for (std::size_t i = row * 12; i < row * 12 + 12; ++i)
      EXPECT_LE(std::abs(code[i] * largest / 127 - weights[i]), largest / 127 * 0.5001);
  }
  EXPECT_FALSE(bin.variables.contains("decoder/projection/bias_scale"));
  EXPECT_EQ(bin.variables.at("decoder/projection/bias").type, 0);
  EXPECT_FALSE(bin.aliases.contains("decoder/projection/weight_scale"));  // the reader aliases scales by itself
}

TEST_F(Export, MixedTypesHaveIntegerMatricesAndNarrowFloats) {
  const std::string name = "decoder/layer_0/ffn/linear_1/weight", bias = "decoder/layer_0/ffn/linear_1/bias";
  for (const auto& [quantization, type] :
       {std::pair{Quantization::int8_float32, 0}, {Quantization::int8_float16, 4}, {Quantization::int8_bfloat16, 5}}) {
    const Bin bin = exported(translation, quantization);
    EXPECT_EQ(std::tuple(bin.variables.at(name).type, bin.variables.at(name + "_scale").type), std::tuple(1, 0));
    EXPECT_EQ(bin.variables.at(bias).type, type);
    EXPECT_EQ(bin.variables.at("encoder/position_encodings/encodings").type, type);
  }
  const Bin bin = exported(translation, Quantization::int16);
  EXPECT_EQ(std::tuple(bin.variables.at(name).type, bin.variables.at(bias).type), std::tuple(2, 0));
  const float scale = bin.scalar<float>(name + "_scale");
  const std::vector<std::int16_t> codes = bin.variables.at(name).as<std::int16_t>();
  const std::vector<float> weights = rows(name, 12, 0, 8);
  for (std::size_t i = 0; i < codes.size(); ++i)
    EXPECT_LE(std::abs(static_cast<float>(codes[i]) / scale - weights[i]), 0.5001F / scale);
}

TEST_F(Export, T5HasSharedBiasesUnscaledQueriesAndAScaledOutput) {
  t5.decoder.layers = 2;
  const Bin bin = exported(t5, Quantization::int8);
  const std::string self = "decoder/layer_0/self_attention/", next = "decoder/layer_1/self_attention/";
  EXPECT_EQ(bin.scalar<float>("decoder/scale_outputs"), static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(bin.scalar<std::int8_t>("decoder/start_from_zero_embedding"), 0);
  EXPECT_EQ(bin.scalar<std::int8_t>("encoder/scale_embeddings"), 0);
  EXPECT_EQ(bin.scalar<std::int8_t>("encoder/activation"), 1);
  EXPECT_EQ(bin.scalar<float>(next + "queries_scale"), 1.0F);
  EXPECT_EQ(bin.scalar<float>("decoder/layer_1/attention/queries_scale"), 1.0F);
  EXPECT_EQ(bin.scalar<std::int32_t>(next + "relative_attention_max_distance"), 128);
  EXPECT_EQ(bin.variables.at(self + "relative_attention_bias").type, 0) << "it is added";
  EXPECT_EQ(bin.aliases.at(next + "relative_attention_bias"), self + "relative_attention_bias");
  EXPECT_FALSE(bin.variables.contains("encoder/position_encodings/encodings"));
  EXPECT_EQ(boost::json::parse(read("config.json")).at("decoder_start_token"), "<pad>");

  t5.tie_embeddings = false;
  t5.tie_inputs = true;
  const Bin untied = exported(t5);
  EXPECT_FALSE(untied.variables.contains("decoder/scale_outputs"));
  EXPECT_EQ(untied.aliases.at("encoder/embeddings_0/weight"), "decoder/embeddings/weight");
  EXPECT_EQ(untied.floats("decoder/projection/weight"), rows("decoder/projection/weight", 8, 0, 300));
}

TEST_F(Export, EachKindOfPositionsIsSaid) {
  const Bin fairseq = exported(m2m);
  const std::vector<float> table = fairseq.floats("decoder/position_encodings/encodings");  // of position 2 first
  EXPECT_FLOAT_EQ(table.at(0), std::sin(2.0F));
  EXPECT_FLOAT_EQ(table.at(8 + 7), static_cast<float>(std::cos(3e-4)));  // 10000^(-3/3)
  EXPECT_FALSE(fairseq.variables.contains("decoder/projection/bias"));
  EXPECT_EQ(boost::json::parse(read("config.json")).at("decoder_start_token"), "</s>");

  translation.encoder.position = spec::Position::learned;
  translation.decoder.position = spec::Position::none;
  const Bin learned = exported(translation);
  const std::string encodings = "/position_encodings/encodings";
  EXPECT_EQ(learned.floats("encoder" + encodings), rows("encoder" + encodings, 8, 0, 5));
  EXPECT_EQ(learned.floats("decoder" + encodings), std::vector<float>(40));

  language.decoder.position = spec::Position::alibi;
  const Bin alibi = exported(language);
  for (const auto& [name, value] : {std::pair{"alibi", 1}, {"alibi_use_positive_positions", 1}, {"scale_alibi", 0}})
    EXPECT_EQ(alibi.scalar<std::int8_t>(std::string("decoder/") + name), value) << name;

  language.decoder.position = spec::Position::rope;
  language.rope_scaling = spec::RopeScaling{.factor = 4, .original_max_positions = 16};
  const Bin scaled = exported(language);
  const std::string self = "decoder/layer_0/self_attention/";
  EXPECT_EQ(scaled.scalar<std::int8_t>(self + "rotary_scaling_type"), 2);
  for (const auto& [name, value] :
       {std::pair{"rotary_scaling_factor", 4.0F}, {"rotary_low_freq_factor", 1.0F}, {"rotary_high_freq_factor", 4.0F}})
    EXPECT_EQ(scaled.scalar<float>(self + name), value) << name;
  EXPECT_EQ(scaled.scalar<std::int32_t>(self + "original_max_position_embeddings"), 16);
}

TEST_F(Export, HalfPrecisionRoundsEveryFloatAndNothingElse) {
  for (const auto& [quantization, type] : {std::pair{Quantization::bfloat16, 5}, std::pair{Quantization::float16, 4}}) {
    const Bin bin = exported(translation, quantization);
    for (const auto& [name, entry] : bin.variables) EXPECT_TRUE(entry.shape.empty() || entry.type == type) << name;
    EXPECT_EQ(bin.variables.at("decoder/num_heads").type, 2);
  }
}

TEST_F(Export, WeightsThatAreNotFiniteLeaveNoFolder) {
  const Path directory = save(translation, std::numeric_limits<float>::infinity());
  EXPECT_THAT(test::refusal(Fault::numeric, [&] { try_export(directory); }), HasSubstr("encoder/layer_0/"));
  for (const std::string& name : Files::system().list(folder.path())) EXPECT_EQ(name.find("out"), std::string::npos);
}

/// What the manifest says of the model is changed, its own digest made right again.
class ForgedExport : public Export {
 protected:
  std::string refused(const std::function<void(boost::json::object& model)>& change) {
    const Path directory = save(translation);
    test::edit_manifest(directory, [&](boost::json::object& document) {
      document["float_bits"].as_object().clear();
      change(document["model"].as_object()["config"].as_object());
    });
    return test::refusal(Fault::corrupt, [&] { try_export(directory); });
  }
};

TEST_F(ForgedExport, OfAnotherModelThanTheParametersAreOfIsDamage) {
  EXPECT_THAT(refused([](auto& model) { model["width"] = 16; }), HasSubstr("of shape [320, 16], got [320, 8]"));
  EXPECT_THAT(refused([](auto& model) { model["bias"] = false; }), HasSubstr("also "));
  EXPECT_THAT(refused([](auto& model) { model["no_such_key"] = 1; }), HasSubstr("no_such_key"));
  const auto refused_layers = [&](const char* side, int layers) {
    return refused([&](auto& model) { model[side].as_object()["layers"] = layers; });
  };
  EXPECT_THAT(refused_layers("encoder", 2), HasSubstr("encoder/layer_1/"));
  EXPECT_THAT(refused_layers("decoder", 1 << 12), HasSubstr("the parameters of 4097 layers"));
  EXPECT_THAT(refused_layers("encoder", 1'000'000'000), HasSubstr("encoder.layers"));
}

TEST_F(ForgedExport, NumbersAreRefusedOrHarmless) {
  const Path directory = save(language);
  test::forge_numbers(directory, [&] {
    try_export(directory);
    Files::system().remove_tree(folder / "out");
  });
}

TEST_F(Export, RefusesMoreHeadsThanTheFormatCounts) {
  language.heads = 1 << 15;
  language.kv_heads = 1;
  language.head_size = 2;
  const Path directory = save(language);
  EXPECT_THAT(test::refusal(Fault::usage, [&] { try_export(directory); }),
              HasSubstr("model.heads is 32768, and CTranslate2 stores at most 32767"));
}

}  // namespace
}  // namespace argosy::interchange
