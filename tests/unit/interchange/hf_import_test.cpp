#include <cstring>

#include "checkpoint/load.hpp"
#include "core/hash.hpp"
#include "interchange/hf_family.hpp"
#include "interchange/source.hpp"
#include "support/tokenizer_files.hpp"
#include "unit/interchange/hf_import_case.hpp"

namespace argosy::interchange {
namespace {

using testing::HasSubstr;

TEST_F(HfImport, IsTheInverseOfExportForEveryFamily) {
  spec::ModelConfig llama3 = llama, qwen2 = tied_llama, two_tables = translation, two_tables_pegasus = pegasus;
  two_tables.tie_inputs = two_tables_pegasus.tie_inputs = false;
  spec::ModelConfig learned = pegasus, t5_1_1 = t5, own = llama, more = llama;
  learned.decoder.position = spec::Position::learned;
  t5_1_1.tie_embeddings = false;
  t5_1_1.tie_inputs = true;
  own.token_ids = spec::TokenIds{.eos = 2, .bos = 7, .pad = 9, .start = 7};
  own.token_ids->unk = 0;
  more.token_ids = spec::TokenIds{.eos = 2, .unk = 0, .bos = 1};
  more.vocab_size = 310;
  llama3.rope_scaling = spec::RopeScaling{.factor = 4, .original_max_positions = 16};
  llama3.norm_epsilon = 2e-6;
  qwen2.qkv_bias = true;
  for (const auto& config : {translation, pegasus, untied, untied_pegasus, language, llama, tied_llama, llama3, qwen2,
                             learned, t5, t5_1_1, m2m, own, more, two_tables, two_tables_pegasus}) {
    write("hf", config);
    const Path folder_of_theirs = out;
    const std::string weights = read("model.safetensors"), configuration = read("config.json");
    const checkpoint::Reader reader{Files::system(), folder / fmt::format("run/checkpoints/{:09}", step)};
    const model::StoredModel ours = model::stored_model(reader);
    const model::StoredModel theirs = open_source(context.get(), "hf:" + folder_of_theirs.string());
    EXPECT_EQ(theirs.tokenizer.model_bytes(), ours.tokenizer.model_bytes());
    const spec::Architecture& shape = ours.spec.architecture;
    EXPECT_EQ(theirs.spec.architecture.vocabulary, shape.vocabulary);
    const std::int64_t live = shape.vocabulary.pieces;
    const bool cut = !has_output_bias(family_of(shape));
    for (const spec::Unit& unit : ours.spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) {
        std::vector<float> wanted = values(ours, parameter);
        if (cut && parameter.is_by_id()) std::fill(wanted.begin() + live * 8, wanted.end(), 0.0F);
        EXPECT_EQ(values(theirs, parameter), wanted) << parameter.name;
      }
    }
    out = folder / fmt::format("again-{}", step);
    (void)format_named("hf").write(context.get(), theirs, out, {});
    EXPECT_EQ(read("model.safetensors"), weights);
    EXPECT_EQ(read("config.json"), configuration);
  }
}

TEST_F(HfImport, ASavedImportIsACheckpoint) {
  write("hf", pegasus, {.max_shard_bytes = 2000});
  const model::StoredModel theirs = open_source(context.get(), out.string());
  const Path saved = folder / "imported";
  const ExportReport made = format_named("argosy").write(context.get(), theirs, saved, {});
  checkpoint::Reader reader{Files::system(), saved};
  EXPECT_TRUE(reader.verify().finite);
  EXPECT_GE(made.bytes, static_cast<std::uint64_t>(made.parameters) * 4);
  const model::StoredModel again = model::stored_model(reader);
  EXPECT_EQ(again.id, theirs.id);
  for (const spec::Unit& unit : again.spec.units) {
    for (const spec::Parameter& parameter : unit.parameters)
      EXPECT_EQ(values(again, parameter), values(theirs, parameter)) << parameter.name;
  }
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)format_named("argosy").write(context.get(), again, saved, {}); }),
              HasSubstr("imported exists already"));
  EXPECT_THAT(test::refusal(Fault::usage,
                            [&] {
                              (void)format_named("argosy").write(context.get(), again, folder / "x",
                                                                 {.quantization = Quantization::int8});
                            }),
              HasSubstr("--quantization"));
}

TEST_F(HfImport, TheTypeOfTrainingIsKeptAndIsTheDefault) {
  const auto expect_type = [&](const model::StoredModel& model, Quantization wanted) {
    for (const char* const format : {"hf", "ct2"})
      EXPECT_EQ(default_quantization(format_named(format), model), wanted) << format;
    for (const char* const format : {"argosy", "peft"})
      EXPECT_EQ(default_quantization(format_named(format), model), Quantization::float32) << format;
  };
  const auto opened = [&](const Path& path) { return open_source(context.get(), path.string()); };
  expect_type(opened(save(llama)), Quantization::float32);
  sections.optimizer = {{"precision", {{"mode", "bf16_pure"}}}};  // as checkpoints said it before
  expect_type(opened(save(llama)), Quantization::bfloat16);
  for (const auto& [name, type] :
       {std::pair{"f32", Quantization::float32}, {"f16", Quantization::float16}, {"bf16", Quantization::bfloat16}}) {
    sections.model["trained_in"] = name;
    const model::StoredModel model = opened(save(llama));
    expect_type(model, type);
    for (const char* const format : {"hf", "ct2", "argosy"}) {
      const Path kept = folder / fmt::format("{}-{}", format, name);
      const ExportOptions options{.quantization = default_quantization(format_named(format), model)};
      (void)format_named(format).write(context.get(), model, kept, options);
      expect_type(opened(kept), type);
    }
  }
}

TEST_F(HfImport, SpieceModelIsTheTokenizerOfT5Alone) {
  const Files files = Files::system();
  write("hf", t5);
  const std::string tokenizer = read("tokenizer.model");
  const auto rename = [&] {
    for (const char* const name : {"tokenizer.json", "tokenizer.model", "source.spm", "target.spm", "vocab.json"})
      files.remove(out / name);
    files.write_atomically(out / "spiece.model", tokenizer);
  };
  rename();
  EXPECT_EQ(hugging_face_model(files, out).tokenizer.model_bytes(), tokenizer);
  write("hf", translation);
  rename();
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)hugging_face_model(files, out); }),
              HasSubstr("expected a tokenizer.json or tokenizer.model, got neither"));
}

TEST_F(HfImport, HalfPrecisionIsWidened) {
  write("hf", llama, {.quantization = Quantization::bfloat16});
  const model::StoredModel theirs = open_source(context.get(), out.string());
  const spec::Parameter& norm = theirs.spec.units.back().parameters.back();
  const float stored = test::element(norm.name, 0, 3, 1);
  EXPECT_EQ(values(theirs, norm).at(3), f32_from_bf16(bf16_from_f32(stored)));
}

TEST_F(HfImport, TensorsThatDoNotFitAreListedTogether) {
  write("hf", llama);
  edit("model.safetensors", "model.norm.weight", "model.nose.weight");
  configure("intermediate_size", 10);
  const std::string said = refused(Fault::data);
  EXPECT_THAT(said, HasSubstr("missing model.norm.weight"));
  EXPECT_THAT(said, HasSubstr("unexpected model.nose.weight"));
  EXPECT_THAT(said, HasSubstr("mlp.up_proj.weight of shape [12, 8] instead of [10, 8]"));
}

TEST_F(HfImport, ATiedMatrixMayHaveAnyOfItsNamesAndCopiesMustBeEqual) {
  write("hf", tied_llama);
  edit("model.safetensors", "model.embed_tokens.weight\"", "lm_head.weight\"           ");
  const model::StoredModel theirs = open_source(context.get(), out.string());
  const spec::Parameter& matrix = theirs.spec.units.front().parameters.front();
  EXPECT_EQ(values(theirs, matrix).front(), test::element("decoder/embeddings/weight", 0, 0, 1));

  write("hf", llama);  // untied, with equal shapes and different values
  configure("tie_word_embeddings", true);
  EXPECT_THAT(refused(Fault::data), HasSubstr("model.embed_tokens.weight and lm_head.weight differ"));
  write("hf", tied_llama);
  configure("tie_word_embeddings", false);
  EXPECT_THAT(refused(Fault::data), HasSubstr("missing lm_head.weight"));
}

TEST_F(HfImport, PositionsThatAreNoSinusoidsAreLearned) {
  write("hf", pegasus);
  std::string text = read("model.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  const boost::json::value header = boost::json::parse(text.substr(8, size));
  const auto place =
      header.at("model.decoder.embed_positions.weight").at("data_offsets").at(0).to_number<std::size_t>();
  text[8 + size + place + 3] = 0x40;  // 2.0 and more
  Files::system().write_atomically(out / "model.safetensors", text);
  const model::StoredModel theirs = open_source(context.get(), out.string());
  EXPECT_EQ(theirs.spec.architecture.encoder_position, spec::Position::sinusoidal);
  EXPECT_EQ(theirs.spec.architecture.decoder_position, spec::Position::learned);
  const auto& parameters = theirs.spec.units.front().parameters;
  const auto table = std::ranges::find(parameters, spec::Role::position_table, &spec::Parameter::role);
  EXPECT_GE(values(theirs, *table).front(), 2.0F);
}

TEST_F(HfImport, WhatOurModelsDoNotHaveIsRefusedByKey) {
  EXPECT_THAT(unlike(llama, "model_type", "gpt_neox"),
              HasSubstr("llama, mistral, qwen2, marian, pegasus, m2m_100, t5"));
  EXPECT_THAT(unlike(llama, "hidden_act", "gelu"), HasSubstr("hidden_act"));
  EXPECT_THAT(unlike(llama, "attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_THAT(unlike(llama, "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(unlike(llama, "rope_scaling", {{"type", "dynamic"}}), HasSubstr("rope_scaling"));
  EXPECT_THAT(unlike(llama, "rope_parameters", {{"rope_type", "yarn"}}), HasSubstr("rope_parameters"));
  EXPECT_THAT(unlike(translation, "scale_embedding", false), HasSubstr("scale_embedding"));
  EXPECT_THAT(unlike(translation, "static_position_embeddings", false), HasSubstr("static_position_embeddings"));
  EXPECT_THAT(unlike(translation, "normalize_before", true), HasSubstr("normalize_before"));
  EXPECT_THAT(unlike(pegasus, "add_final_layer_norm", false), HasSubstr("add_final_layer_norm"));
  EXPECT_THAT(unlike(translation, "normalize_embedding", true), HasSubstr("normalize_embedding"));
  EXPECT_THAT(unlike(translation, "add_bias_logits", true), HasSubstr("add_bias_logits"));
  EXPECT_THAT(unlike(translation, "activation_function", "quick_gelu"), HasSubstr("activation_function"));
  EXPECT_THAT(unlike(translation, "decoder_attention_heads", 4), HasSubstr("decoder_attention_heads"));
  EXPECT_THAT(unlike(translation, "decoder_ffn_dim", 4), HasSubstr("decoder_ffn_dim"));
  EXPECT_THAT(unlike(translation, "decoder_vocab_size", 321), HasSubstr("decoder_vocab_size"));
  EXPECT_THAT(unlike(translation, "pad_token_id", nullptr), HasSubstr("pad_token_id"));
  EXPECT_THAT(unlike(translation, "decoder_start_token_id", nullptr), HasSubstr("decoder_start_token_id"));
  EXPECT_THAT(unlike(translation, "eos_token_id", nullptr), HasSubstr("eos_token_id"));
  EXPECT_THAT(unlike(translation, "eos_token_id", -1, Fault::data), HasSubstr("eos_token_id"));
  EXPECT_THAT(unlike(translation, "eos_token_id", 320, Fault::config), HasSubstr("model.token_ids.eos"));
  EXPECT_THAT(unlike(m2m, "pad_token_id", 3), HasSubstr("pad_token_id"));
  EXPECT_THAT(unlike(m2m, "tie_word_embeddings", false), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(unlike(t5, "feed_forward_proj", "relu"), HasSubstr("feed_forward_proj"));
  EXPECT_THAT(unlike(t5, "relative_attention_num_buckets", 16), HasSubstr("relative_attention_num_buckets"));
  EXPECT_THAT(unlike(t5, "relative_attention_max_distance", 64), HasSubstr("relative_attention_max_distance"));
  EXPECT_THAT(unlike(llama, "hidden_size", "large", Fault::data), HasSubstr("hidden_size"));
  EXPECT_THAT(unlike(llama, "hidden_size", 0, Fault::data), HasSubstr("hidden_size"));
  EXPECT_THAT(unlike(llama, "hidden_size", 1LL << 40, Fault::data), HasSubstr("hidden_size"));
  EXPECT_THAT(unlike(llama, "num_hidden_layers", nullptr, Fault::data), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(unlike(llama, "rms_norm_eps", "small", Fault::data), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(unlike(llama, "tie_word_embeddings", 1, Fault::data), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(unlike(llama, "vocab_size", 400, Fault::data), HasSubstr("of shape [300, 8] instead of [400, 8]"));
  EXPECT_THAT(unlike(llama, "vocab_size", 299, Fault::data), HasSubstr("vocab_size is 299, and the tokenizer has 300"));
}

TEST_F(HfImport, WithoutASentencePieceModelItsTokenizerJsonSaysTheSame) {
  for (const auto& config : {llama, pegasus, t5}) {
    write("hf", config);
    const model::StoredModel by_model = open_source(context.get(), out.string());
    Files::system().remove(out / "tokenizer.model");
    const model::StoredModel by_json = open_source(context.get(), out.string());
    EXPECT_EQ(by_json.tokenizer.kind(), data::TokenizerKind::json);
    EXPECT_EQ(by_model.tokenizer.kind(), data::TokenizerKind::sentence_piece);
    std::vector<std::string> lines = test::verses(50).of_both();
    for (const char* odd :
         {"", " ", "  two  blanks  ", "a\tb\u00a0c\u3000d", "\ufb01sh \u2460 \u00bd \uff21",
          "e\u0301 \u65e5\u672c \u0915\u094d\u0937", "\U0001F469\u200D\U0001F467 \u200b\ufeff", "\u0001\r\n\u2028"})
      lines.emplace_back(odd);
    for (const std::string& line : lines) EXPECT_EQ(by_json.tokenizer.encode(line), by_model.tokenizer.encode(line));
  }
}

TEST_F(HfImport, ATokenizerJsonComesBackByteForByte) {
  tokenizer_json = test::small_file("byte_level").first;
  spec::ModelConfig config = llama;
  config.token_ids = spec::TokenIds{.eos = 267, .bos = 266};
  config.vocab_size = 300;  // more than the pieces of the file
  write("hf", config);
  EXPECT_EQ(read("tokenizer.json"), tokenizer_json);
  EXPECT_FALSE(Files::system().exists(out / "tokenizer.model"));
  EXPECT_THAT(read("tokenizer_config.json"), HasSubstr("<|end|>"));
  const model::StoredModel theirs = open_source(context.get(), out.string());
  EXPECT_EQ(theirs.tokenizer.model_bytes(), tokenizer_json);
  EXPECT_EQ(theirs.config.token_ids, config.token_ids);
  EXPECT_EQ(theirs.spec.architecture.vocabulary.pieces, 300);
}

TEST_F(HfImport, ABeginningThatTheTokenizerJsonDoesNotWriteIsNone) {
  boost::json::value whole = boost::json::parse(test::small_file("byte_level").first);
  whole.as_object()["post_processor"] = nullptr;
  tokenizer_json = boost::json::serialize(whole);
  spec::ModelConfig config = llama;
  config.token_ids = spec::TokenIds{.eos = 267};
  write("hf", config);
  configure("bos_token_id", 266);
  EXPECT_EQ(open_source(context.get(), out.string()).config.token_ids, config.token_ids);
}

TEST_F(HfImport, AModelWhosePadIsNoPieceOfItsTokenizerJsonIsRefused) {
  boost::json::value pieces = boost::json::parse(test::small_file("unigram").first);
  pieces.at_pointer("/model/vocab/0/0") = "</s>";  // the ids of Marian's layout
  pieces.at_pointer("/model/vocab/1/0") = "<unk>";
  pieces.at_pointer("/model/vocab/2/0") = "\u00a7";
  pieces.at_pointer("/model/unk_id") = 1;
  boost::json::array& added = pieces.at_pointer("/added_tokens").as_array();
  added.erase(added.begin() + 2, added.end());
  added[0].as_object()["content"] = "</s>";
  added[1].as_object()["content"] = "<unk>";
  tokenizer_json = boost::json::serialize(pieces);
  EXPECT_THAT(test::refusal(Fault::data, [&] { write("hf", translation); }), HasSubstr("the piece <pad>"));
  EXPECT_NO_THROW(write("ct2", translation));
  EXPECT_EQ(read("tokenizer.json"), tokenizer_json);
  EXPECT_FALSE(Files::system().exists(out / "source.spm"));
  EXPECT_EQ(boost::json::parse(read("shared_vocabulary.json")).as_array().size(), 25U);
}

TEST_F(HfImport, OfSeveralEndsTheFirstCounts) {
  write("hf", llama);
  configure("eos_token_id", boost::json::array{2, 5});
  const model::StoredModel theirs = open_source(context.get(), out.string());
  EXPECT_EQ(theirs.config.token_ids, std::nullopt);
}

TEST_F(HfImport, AFolderThatIsNoModelSaysSo) {
  write("hf", llama);
  const auto said = [&](const std::string& name) {
    return test::refusal(Fault::data, [&] { (void)open_source(context.get(), name); });
  };
  Files::system().remove(out / "tokenizer.model");
  Files::system().remove(out / "tokenizer.json");
  EXPECT_THAT(said(out.string()), HasSubstr("expected a tokenizer.json or tokenizer.model, got neither"));
  Files::system().write_atomically(out / "config.json", std::string_view{"[]"});
  EXPECT_THAT(said(out.string()), HasSubstr("JSON object"));
  Files::system().write_atomically(out / "config.json", std::string_view{"{"});
  EXPECT_THAT(said(out.string()), HasSubstr("config.json"));
  EXPECT_THAT(said("hf:" + save(llama).string()), HasSubstr("a Hugging Face folder"));
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)open_source(context.get(), out.string(), true); }),
              HasSubstr("--ema"));
}

}  // namespace
}  // namespace argosy::interchange
