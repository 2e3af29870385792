#include <gmock/gmock.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <map>

#include "core/hash.hpp"
#include "data/tokenizer_training.hpp"
#include "interchange/hf_tokenizer.hpp"
#include "support/refusal.hpp"
#include "tokenizer/pipeline.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

using boost::json::parse;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenizerJson, KeepsPiecesThatTransformsNeedWhole) {
  const std::vector<std::string> symbols{"<mask>", "<sep>", "<to_en>"};
  const data::Tokenizer tokenizer = data::Tokenizer::load(
      data::train_tokenizer({.vocab_size = 300}, test::verses(600).of_both(), spec::TokenLayout::marian, symbols), {});
  const auto exported = tokenizer::Pipeline::load(
      boost::json::serialize(tokenizer_json(tokenizer, Wrapping::eos_after)), "tokenizer.json");
  for (const std::string& symbol : symbols) {
    EXPECT_EQ(exported.id_of(symbol), tokenizer.id_of(symbol)) << symbol;
    const std::vector<std::int32_t> ids = exported.encode("God " + symbol + " created");
    EXPECT_EQ(std::ranges::count(ids, *tokenizer.id_of(symbol)), 1) << symbol;
  }
  std::vector<std::int32_t> trained = tokenizer.encode("God created");  // as the transform prefix makes them
  trained.insert(trained.begin(), narrow<std::int32_t>(*tokenizer.id_of("<to_en>")));
  EXPECT_EQ(exported.encode("<to_en> God created"), trained);
}

/// A safetensors file, read as FORMAT.md describes it. Its rules are checked on the way.
struct Weights {
  struct Entry {
    std::string type;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Entry> tensors;
  std::vector<std::string> order;

  void add(const std::string& file) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof size);
    EXPECT_EQ(size % 8, 0U);
    const boost::json::object header = parse(file.substr(8, size)).as_object();
    EXPECT_EQ(header.at("__metadata__").at("format"), "pt");
    std::uint64_t end = 0;
    for (const auto& item : header) {
      if (item.key() == "__metadata__") continue;
      Entry& entry = tensors[item.key()];
      order.emplace_back(item.key());
      entry.type = item.value().at("dtype").as_string();
      entry.shape = boost::json::value_to<std::vector<std::int64_t>>(item.value().at("shape"));
      const auto offsets = boost::json::value_to<std::vector<std::uint64_t>>(item.value().at("data_offsets"));
      EXPECT_EQ(offsets.at(0), end) << item.key();
      end = offsets.at(1);
      entry.bytes = file.substr(8 + size + offsets[0], end - offsets[0]);
    }
    EXPECT_EQ(file.size(), 8 + size + end);
  }
  [[nodiscard]] std::vector<float> floats(const std::string& name) const {
    const std::string& bytes = tensors.at(name).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  /// "name [extents]" of each.
  [[nodiscard]] std::vector<std::string> shapes() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : tensors) all.push_back(fmt::format("{} {}", name, fmt::join(entry.shape, "x")));
    return all;
  }
};

class HfExport : public test::ExportFixture {
 protected:
  Weights exported(const spec::ModelConfig& config, const ExportOptions& options = {}) {
    write("hf", config, options);
    Weights weights;
    weights.add(read("model.safetensors"));
    return weights;
  }
  [[nodiscard]] boost::json::value json(const std::string& name) const { return parse(read(name)); }
  std::string refusal_of(const spec::ModelConfig& config, const ExportOptions& options = {}) {
    return test::refusal(Fault::usage, [&] { write("hf", config, options); });
  }
};

TEST_F(HfExport, MarianHasItsNamesAndShapes) {
  const Weights weights = exported(translation);
  std::vector<std::string> expected{"final_logits_bias 1x320", "model.shared.weight 320x8"};
  for (const std::string side : {"encoder", "decoder"}) {
    const std::string layer = "model." + side + ".layers.0.";
    const auto linear = [&](const std::string& name, int to, int from) {
      expected.push_back(fmt::format("{}{}.weight {}x{}", layer, name, to, from));
      expected.push_back(fmt::format("{}{}.bias {}", layer, name, to));
    };
    const auto norm = [&](const std::string& name) {
      for (const char* leaf : {"weight", "bias"}) expected.push_back(fmt::format("{}{}.{} 8", layer, name, leaf));
    };
    for (const std::string attention : {"self_attn", "encoder_attn"}) {
      if (attention == "encoder_attn" && side == "encoder") continue;
      for (const char* projection : {"q_proj", "k_proj", "v_proj", "out_proj"})
        linear(attention + "." + projection, 8, 8);
      norm(attention + "_layer_norm");
    }
    linear("fc1", 12, 8);
    linear("fc2", 8, 12);
    norm("final_layer_norm");
  }
  EXPECT_THAT(weights.shapes(), testing::UnorderedElementsAreArray(expected));

  const std::string ours = "decoder/layer_0/attention/linear_1/weight";  // keys, then values
  EXPECT_EQ(weights.floats("model.decoder.layers.0.encoder_attn.k_proj.weight"), rows(ours, 8, 0, 8));
  EXPECT_EQ(weights.floats("model.decoder.layers.0.encoder_attn.v_proj.weight"), rows(ours, 8, 8, 16));
  EXPECT_EQ(weights.floats("model.encoder.layers.0.self_attn.v_proj.bias"),
            rows("encoder/layer_0/self_attention/linear_0/bias", 1, 16, 24));
  EXPECT_EQ(weights.floats("model.shared.weight"), rows("decoder/embeddings/weight", 8, 0, 320));
  EXPECT_EQ(weights.floats("final_logits_bias"), rows("decoder/projection/bias", 1, 0, 320));

  const boost::json::value config = json("config.json");
  EXPECT_EQ(config.at("architectures"), parse(R"(["MarianMTModel"])"));
  for (const auto& [key, value] : {std::pair{"pad_token_id", 319},
                                   {"decoder_start_token_id", 319},
                                   {"eos_token_id", 0},
                                   {"vocab_size", 320},
                                   {"max_position_embeddings", 5}})
    EXPECT_EQ(config.at(key), value) << key;
  EXPECT_EQ(config.at("normalize_before"), false);
  EXPECT_TRUE(config.at("dropout").is_double());
  EXPECT_EQ(json("generation_config.json").at("bad_words_ids"), parse("[[319]]"));
  EXPECT_THAT(Files::system().list(out),
              ElementsAre("SHA256SUMS", "config.json", "generation_config.json", "model.safetensors", "source.spm",
                          "special_tokens_map.json", "target.spm", "tokenizer_config.json", "vocab.json"));
  const boost::json::value ids = json("vocab.json");
  EXPECT_EQ(ids.as_object().size(), 320U);
  EXPECT_EQ(ids.at("</s>"), 0);
  EXPECT_EQ(ids.at("<unused_0>"), 300);
  EXPECT_EQ(ids.at("<pad>"), 319);
}

TEST_F(HfExport, PegasusHasFinalNormsAndItsPositions) {
  translation.norm_position = spec::NormPosition::pre;
  const Weights weights = exported(translation);
  EXPECT_EQ(json("config.json").at("architectures"), parse(R"(["PegasusForConditionalGeneration"])"));
  EXPECT_EQ(json("config.json").at("normalize_before"), true);
  EXPECT_EQ(weights.floats("model.encoder.layer_norm.weight"), rows("encoder/layer_norm/gamma", 1, 0, 8));
  EXPECT_EQ(weights.floats("model.decoder.layer_norm.bias"), rows("decoder/layer_norm/beta", 1, 0, 8));
  const std::vector<float> positions = weights.floats("model.decoder.embed_positions.weight");
  EXPECT_FLOAT_EQ(positions.at(4 * 8 + 1), static_cast<float>(std::sin(0.4)));  // 10000^(-2/8) = 1/10
  EXPECT_FLOAT_EQ(positions.at(4 * 8 + 5), static_cast<float>(std::cos(0.4)));
  const boost::json::value tokenizer = json("tokenizer.json");
  EXPECT_EQ(tokenizer.at("added_tokens").as_array().back().at("id"), 319);
  EXPECT_EQ(tokenizer.at("post_processor").at("single").at(1).at("SpecialToken").at("id"), "</s>");
}

TEST_F(HfExport, T5CountsThePartsOfABlock) {
  t5.tie_embeddings = false;
  t5.tie_inputs = true;
  const Weights weights = exported(t5);
  std::vector<std::string> expected{"shared.weight 300x8", "lm_head.weight 300x8"};
  for (const std::string side : {"encoder", "decoder"}) {
    const std::string block = side + ".block.0.layer.";
    expected.push_back(side + ".final_layer_norm.weight 8");
    expected.push_back(block + "0.SelfAttention.relative_attention_bias.weight 32x2");
    int part = 0;
    for (const std::string attention : {"SelfAttention", "EncDecAttention"}) {
      if (attention == "EncDecAttention" && side == "encoder") continue;
      expected.push_back(fmt::format("{}{}.layer_norm.weight 8", block, part));
      for (const char* name : {"q", "k", "v"})
        expected.push_back(fmt::format("{}{}.{}.{}.weight 12x8", block, part, attention, name));
      expected.push_back(fmt::format("{}{}.{}.o.weight 8x12", block, part++, attention));
    }
    expected.push_back(fmt::format("{}{}.layer_norm.weight 8", block, part));
    for (const char* name : {"wi_0", "wi_1"})
      expected.push_back(fmt::format("{}{}.DenseReluDense.{}.weight 12x8", block, part, name));
    expected.push_back(fmt::format("{}{}.DenseReluDense.wo.weight 8x12", block, part));
  }
  EXPECT_THAT(weights.shapes(), testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(weights.floats("decoder.block.0.layer.2.DenseReluDense.wi_1.weight"),
            rows("decoder/layer_0/ffn/linear_0/weight", 8, 12, 24));
  EXPECT_EQ(weights.floats("decoder.block.0.layer.1.EncDecAttention.v.weight"),
            rows("decoder/layer_0/attention/linear_1/weight", 8, 12, 24));
  EXPECT_EQ(weights.floats("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
            rows("encoder/layer_0/self_attention/relative_attention_bias", 2, 0, 32));
  const boost::json::value config = json("config.json");
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  EXPECT_EQ(std::tuple(config.at("pad_token_id"), config.at("decoder_start_token_id"), config.at("eos_token_id")),
            std::tuple(0, 0, 1));
  EXPECT_EQ(json("tokenizer.json").at("post_processor").at("single").at(1).at("SpecialToken").at("id"), "</s>");
}

TEST_F(HfExport, M2m100HasPegasusNamesWithoutPositionsAndBiasOfTheOutput) {
  const Weights weights = exported(m2m);
  EXPECT_TRUE(weights.tensors.contains("model.encoder.layer_norm.weight"));
  EXPECT_TRUE(weights.tensors.contains("model.decoder.layers.0.encoder_attn.out_proj.bias"));
  EXPECT_FALSE(weights.tensors.contains("model.decoder.embed_positions.weight"));
  EXPECT_FALSE(weights.tensors.contains("final_logits_bias"));
  EXPECT_EQ(weights.floats("model.shared.weight"), rows("decoder/embeddings/weight", 8, 0, 300));
  const boost::json::value config = json("config.json");
  EXPECT_EQ(std::tuple(config.at("model_type"), config.at("pad_token_id"), config.at("decoder_start_token_id")),
            std::tuple("m2m_100", 1, 0));
  m2m.token_ids->pad = 2;
  EXPECT_THAT(refusal_of(m2m), HasSubstr("model.token_ids.pad"));
}

TEST_F(HfExport, UntiedMatricesAreWrittenEach) {
  translation.tie_embeddings = false;
  const Weights weights = exported(translation);
  EXPECT_EQ(weights.floats("model.encoder.embed_tokens.weight"), rows("encoder/embeddings_0/weight", 8, 0, 320));
  EXPECT_EQ(weights.floats("model.decoder.embed_tokens.weight"), rows("decoder/embeddings/weight", 8, 0, 320));
  EXPECT_EQ(weights.floats("lm_head.weight"), rows("decoder/projection/weight", 8, 0, 320));
  EXPECT_FALSE(weights.tensors.contains("model.shared.weight"));
  EXPECT_EQ(json("config.json").at("tie_word_embeddings"), false);
  EXPECT_EQ(json("config.json").at("share_encoder_decoder_embeddings"), false);
}

TEST_F(HfExport, MistralHasItsNamesAndNoDeadRows) {
  const Weights weights = exported(language);
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(weights.shapes(), testing::UnorderedElementsAre(
                                    "model.embed_tokens.weight 300x8", "model.norm.weight 8", "lm_head.weight 300x8",
                                    layer + "self_attn.q_proj.weight 24x8", layer + "self_attn.k_proj.weight 12x8",
                                    layer + "self_attn.v_proj.weight 12x8", layer + "self_attn.o_proj.weight 8x24",
                                    layer + "mlp.gate_proj.weight 12x8", layer + "mlp.up_proj.weight 12x8",
                                    layer + "mlp.down_proj.weight 8x12", layer + "input_layernorm.weight 8",
                                    layer + "post_attention_layernorm.weight 8"));
  const std::string fused = "decoder/layer_0/ffn/linear_0/weight",
                    packed = "decoder/layer_0/self_attention/linear_0/weight";
  EXPECT_EQ(weights.floats(layer + "mlp.up_proj.weight"), rows(fused, 8, 12, 24));
  EXPECT_EQ(weights.floats(layer + "self_attn.k_proj.weight"), rows(packed, 8, 24, 36));
  EXPECT_EQ(report.parameters, 2 * 300 * 8 + 8 + 8 * (24 + 12 + 12 + 24 + 12 + 12 + 12 + 2));
  const boost::json::value config = json("config.json");
  EXPECT_EQ(config.at("architectures"), parse(R"(["MistralForCausalLM"])"));
  for (const auto& [key, value] : {std::pair{"sliding_window", 3},
                                   {"head_dim", 6},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 300},
                                   {"bos_token_id", 1},
                                   {"eos_token_id", 2}})
    EXPECT_EQ(config.at(key), value) << key;
  EXPECT_EQ(config.at("rope_theta"), 500.0);
  EXPECT_EQ(config.at("rope_parameters").at("rope_theta"), 500.0);
  EXPECT_EQ(json("tokenizer.json").at("post_processor").at("single").at(0).at("SpecialToken").at("id"), "<s>");
}

TEST_F(HfExport, WithoutAWindowAndWithWholeHeadsItIsLlama) {
  language.window.reset();
  language.head_size.reset();
  (void)exported(language);
  EXPECT_EQ(json("config.json").at("architectures"), parse(R"(["LlamaForCausalLM"])"));
}

TEST_F(HfExport, LargeModelsGoIntoSeveralFiles) {
  const Weights whole = exported(translation);
  write("hf", translation, {.max_shard_bytes = 2000});
  const boost::json::value index = json("model.safetensors.index.json");
  std::map<std::string, Weights> files;
  std::uint64_t bytes = 0;
  Weights all;
  for (const auto& item : index.at("weight_map").as_object()) {
    const std::string name(item.value().as_string());
    if (!files.contains(name)) files[name].add(read(name));
    EXPECT_TRUE(files[name].tensors.contains(item.key())) << item.key();
  }
  for (const auto& [name, weights] : files) {
    std::uint64_t own = 0;
    for (const auto& [of, entry] : weights.tensors) {
      own += entry.bytes.size();
      EXPECT_EQ(entry.bytes, whole.tensors.at(of).bytes) << of;
    }
    EXPECT_TRUE(own <= 2000 || weights.tensors.size() == 1) << name;
    EXPECT_THAT(name, testing::EndsWith(fmt::format("-of-{:05}.safetensors", files.size())));
    bytes += own;
  }
  EXPECT_GT(files.size(), 2U);
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  EXPECT_FALSE(Files::system().exists(out / "model.safetensors"));
}

TEST_F(HfExport, HalfPrecisionIsOfTheFileAndOfTheConfiguration) {
  for (const auto& [quantization, type, name] :
       {std::tuple{Quantization::bfloat16, "BF16", "bfloat16"}, std::tuple{Quantization::float16, "F16", "float16"}}) {
    const Weights weights = exported(translation, {.quantization = quantization});
    for (const auto& [of, entry] : weights.tensors) EXPECT_EQ(entry.type, type) << of;
    EXPECT_EQ(json("config.json").at("dtype"), name);
    EXPECT_EQ(json("config.json").at("torch_dtype"), name);
  }
  EXPECT_THAT(refusal_of(translation, {.quantization = Quantization::int8}), HasSubstr("integer"));
}

TEST_F(HfExport, WhatItsClassesCannotSayIsRefusedByKey) {
  const auto without = [&](spec::ModelConfig config, auto change) {
    change(config);
    return refusal_of(config);
  };
  EXPECT_THAT(without(translation, [](auto& c) { c.bias = false; }), HasSubstr("model.bias"));
  EXPECT_THAT(without(translation, [](auto& c) { c.norm = spec::Norm::rms_norm; }), HasSubstr("model.norm"));
  EXPECT_THAT(without(translation, [](auto& c) { c.kv_heads = 1; }), HasSubstr("model.kv_heads"));
  EXPECT_THAT(without(translation, [](auto& c) { c.head_size = 6; }), HasSubstr("model.head_size"));
  EXPECT_THAT(without(translation, [](auto& c) { c.activation = spec::Activation::swiglu; }),
              HasSubstr("model.activation"));
  EXPECT_THAT(without(translation, [](auto& c) { c.encoder.position = spec::Position::rope; }),
              HasSubstr("model.encoder.position"));
  EXPECT_THAT(without(language, [](auto& c) { c.bias = true; }), HasSubstr("model.bias"));
  EXPECT_THAT(without(language, [](auto& c) { c.norm = spec::Norm::layer_norm; }), HasSubstr("model.norm"));
  EXPECT_THAT(without(language, [](auto& c) { c.norm_position = spec::NormPosition::post; }),
              HasSubstr("model.norm_position"));
  EXPECT_THAT(without(language, [](auto& c) { c.activation = spec::Activation::gelu; }), HasSubstr("model.activation"));
  EXPECT_THAT(without(language, [](auto& c) { c.decoder.position = spec::Position::sinusoidal; }),
              HasSubstr("model.decoder.position"));
}

}  // namespace
}  // namespace argosy::interchange
