#include "interchange/hf_import.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <cstring>

#include "checkpoint/load.hpp"
#include "core/hash.hpp"
#include "data/tokenizer_training.hpp"
#include "interchange/hf_family.hpp"
#include "interchange/source.hpp"
#include "support/refusal.hpp"
#include "support/tokenizer_files.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

using testing::HasSubstr;

/// Exports toys as Hugging Face folders, changes these, and reads them.
class HfImport : public test::ExportFixture {
 protected:
  HfImport() {
    pegasus = untied = translation;
    pegasus.norm_position = spec::NormPosition::pre;
    untied.tie_embeddings = false;
    untied_pegasus = pegasus;
    untied_pegasus.tie_embeddings = false;
    llama = language;
    llama.window.reset();
    llama.head_size.reset();
    tied_llama = llama;
    tied_llama.tie_embeddings = true;
  }
  std::vector<float> values(const model::StoredModel& model, const spec::Parameter& parameter) {
    std::vector<float> all(static_cast<std::size_t>(parameter.numel()));
    model.weights->read(parameter, 0, all);
    return all;
  }
  /// A tensor file's text with one piece replaced by another of the same length.
  void edit(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = read(name);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_EQ(from.size(), to.size());
    text.replace(at, from.size(), to);
    Files::system().write_atomically(out / name, text);
  }
  void configure(const std::string& key, const boost::json::value& value) {
    boost::json::value config = boost::json::parse(read("config.json"));
    config.as_object()[key] = value;
    Files::system().write_atomically(out / "config.json", boost::json::serialize(config));
  }
  std::string refused(Fault fault) {
    return test::refusal(fault, [&] { (void)hugging_face_model(Files::system(), out); });
  }
  /// What is said of an exported model of which one key of config.json has changed.
  std::string unlike(const spec::ModelConfig& config, const std::string& key, const boost::json::value& value,
                     Fault fault = Fault::usage) {
    write("hf", config);
    configure(key, value);
    return refused(fault);
  }

  spec::ModelConfig pegasus, untied, untied_pegasus, llama, tied_llama;
};

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

class HfImportOfTables : public HfImport {
 protected:
  /// Exports a model whose tokenizer has a model for each side, and a table that both share.
  void write_pair(const char* format, const spec::ModelConfig& config) {
    boost::json::object ids{{"</s>", 0}, {"<unk>", 1}};
    const auto number = [&](const std::string& piece) { ids.emplace(piece, ids.size()); };
    parts.source = test::small_tokenizer(spec::TokenLayout::marian).model_bytes();
    parts.target = test::small_tokenizer(spec::TokenLayout::llama).model_bytes();
    const data::Tokenizer& source = test::small_tokenizer(spec::TokenLayout::marian);
    for (std::int64_t id = source.vocabulary().pieces - 1; id > 1; --id) number(source.piece(id));
    number(">>fr<<");
    number("<pad>");
    parts.table = boost::json::serialize(ids) + "\n";
    tokenizer_json = data::pack(parts);
    spec::ModelConfig with_table = config;
    with_table.vocab_multiple = 1;
    write(format, with_table);
  }

  data::TableParts parts;
};

TEST_F(HfImportOfTables, TwoModelsAndATableAreReadAndComeBackByteForByte) {
  for (const char* const format : {"hf", "ct2"}) {
    write_pair(format, translation);
    EXPECT_EQ(read("source.spm"), parts.source);
    EXPECT_EQ(read("target.spm"), parts.target);
    EXPECT_EQ(read("vocab.json"), parts.table);
    const model::StoredModel model = open_source(context.get(), out.string());
    EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json);
    EXPECT_EQ(model.spec.architecture.vocabulary.rows, 302);
    EXPECT_EQ(model.spec.architecture.vocabulary.pad, 301);
    EXPECT_EQ(model.tokenizer.id_of(">>fr<<"), 300);
    // The table counts, not the ids of the SentencePiece model.
    EXPECT_EQ(model.tokenizer.id_of(test::small_tokenizer(spec::TokenLayout::marian).piece(299)), 2);
  }
}

TEST_F(HfImportOfTables, ATokenizerForEachSideIsReadAndComesBackByteForByte) {
  const std::string source = test::small_tokenizer(spec::TokenLayout::marian).model_bytes(),
                    target = data::train_tokenizer({.vocab_size = 260}, test::verses(400).spanish,
                                                   spec::TokenLayout::marian);
  spec::ModelConfig by_side = translation;
  by_side.tie_inputs = false;
  for (const char* const format : {"hf", "ct2"}) {
    tokenizer_json = data::Tokenizer::by_side(source, target, {}).model_bytes();
    write(format, by_side);
    EXPECT_EQ(read("source.spm"), source);
    EXPECT_EQ(read("target.spm"), target);
    const model::StoredModel model = open_source(context.get(), out.string());
    EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json);
    EXPECT_EQ(model.spec.architecture.vocabulary.pieces, 300);
    EXPECT_EQ(model.config.token_ids, std::nullopt);
    const std::string pieces = read(format == std::string("hf") ? "target_vocab.json" : "target_vocabulary.json");
    EXPECT_THAT(pieces, HasSubstr("<unused_39>"));
  }
  EXPECT_FALSE(Files::system().exists(out / "shared_vocabulary.json"));
  boost::json::value pieces = boost::json::parse(read("target_vocabulary.json"));
  std::swap(pieces.as_array()[5], pieces.as_array()[6]);
  Files::system().write_atomically(out / "target_vocabulary.json", boost::json::serialize(pieces));
  const auto refused_folder = [&] {
    return test::refusal(Fault::data, [&] { (void)open_source(context.get(), out.string()); });
  };
  EXPECT_THAT(refused_folder(), HasSubstr("target_vocabulary.json: expected the pieces of the folder's tokenizer"));
  EXPECT_THAT(test::refusal(Fault::corrupt, [&] { write("hf", translation); }),
              HasSubstr("a tokenizer for each side only where each side has its embeddings"));
  // A folder of others: ids that only the tables say.
  write("hf", by_side);
  for (const char* const name : {"vocab.json", "target_vocab.json"}) {
    boost::json::value ids = boost::json::parse(read(name));
    std::vector<std::string> names;
    for (const auto& [piece, id] : ids.as_object()) {
      if (id == 7) names.emplace_back(piece);
      if (id == 8) names.emplace_back(piece);
    }
    std::swap(ids.at(names.at(0)), ids.at(names.at(1)));
    Files::system().write_atomically(out / name, boost::json::serialize(ids));
  }
  const model::StoredModel model = open_source(context.get(), out.string());
  for (const auto& [side, bytes] : {std::pair{data::Side::source, &source}, {data::Side::target, &target}}) {
    const data::Tokenizer &own = model.tokenizer.side(side), alone = data::Tokenizer::load(*bytes, {});
    EXPECT_EQ(own.kind(), data::TokenizerKind::table);
    EXPECT_EQ(own.id_of(alone.piece(7)), 8);
  }
  EXPECT_THAT(
      test::refusal(Fault::data, [&] { (void)format_named("hf").write(context.get(), model, folder / "no", {}); }),
      HasSubstr("both are SentencePiece models"));
  boost::json::value ids = boost::json::parse(read("target_vocab.json")),
                     config = boost::json::parse(read("config.json"));
  std::swap(ids.at("</s>"), ids.at("<unk>"));
  config.at("eos_token_id") = 1;
  Files::system().write_atomically(out / "target_vocab.json", boost::json::serialize(ids));
  Files::system().write_atomically(out / "config.json", boost::json::serialize(config));
  EXPECT_THAT(refused_folder(),
              HasSubstr("one piece of the id 1, which ends a text, in all tokenizers, got <unk>, and </s> of target"));
}

TEST_F(HfImportOfTables, ATableThatRepeatsTheModelIsLeftOut) {
  write("hf", translation);
  EXPECT_EQ(open_source(context.get(), out.string()).tokenizer.kind(), data::TokenizerKind::sentence_piece);
  boost::json::value more = boost::json::parse(read("vocab.json"));
  std::swap(more.at("<unused_0>"), more.as_object()[">>fr<<"]);
  more.as_object().erase("<unused_0>");
  Files::system().write_atomically(out / "vocab.json", boost::json::serialize(more));
  EXPECT_EQ(open_source(context.get(), out.string()).tokenizer.kind(), data::TokenizerKind::table);
}

TEST_F(HfImportOfTables, RefusesFoldersThatDoNotFitTogether) {
  write_pair("hf", translation);
  boost::json::value other = boost::json::parse(read("vocab.json"));
  std::swap(other.at("</s>"), other.at("<unk>"));
  Files::system().write_atomically(out / "vocab.json", boost::json::serialize(other));
  EXPECT_THAT(refused(Fault::data), HasSubstr("eos_token_id is 0, and </s> has the id 1 in vocab.json"));
  Files::system().write_atomically(out / "vocab.json", std::string_view{"[]"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("vocab.json: expected a JSON object"));
  Files::system().remove(out / "vocab.json");
  EXPECT_THAT(refused(Fault::data), HasSubstr("target.spm is another model than source.spm"));
  Files::system().write_atomically(out / "target_vocab.json", std::string_view{"{}"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("(target): vocab.json: expected the piece <unk>"));
  tokenizer_json.clear();
  write("hf", translation);
  Files::system().write_atomically(out / "vocab.json", std::string_view{"[]"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("a JSON object"));
}

TEST_F(HfImportOfTables, LanguageTokensComeWithM2m100) {
  boost::json::object ids{{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}};
  const data::Tokenizer& pieces = test::small_tokenizer(spec::TokenLayout::marian);
  for (std::int64_t id = 2; id < pieces.vocabulary().pieces; ++id) ids.emplace(pieces.piece(id), ids.size());
  for (const char* const languages : {"m2m100", "wmt21"}) {
    parts = {
        .source = pieces.model_bytes(), .target = {}, .table = boost::json::serialize(ids), .languages = languages};
    tokenizer_json = data::pack(parts);
    spec::ModelConfig config = m2m;
    config.token_ids = spec::TokenIds{.eos = 2, .unk = 3, .bos = 0, .pad = 1, .start = 2};
    config.vocab_size = 420;
    for (const char* const format : {"hf", "ct2"}) {
      write(format, config);
      EXPECT_EQ(read("sentencepiece.bpe.model"), parts.source);
      EXPECT_EQ(read("vocab.json"), parts.table);
      const model::StoredModel model = open_source(context.get(), out.string());
      EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json) << format;
      EXPECT_EQ(model.config.token_ids, config.token_ids) << format;
      EXPECT_TRUE(model.tokenizer.id_of("__de__"));
    }
  }
  Files::system().remove(out / "tokenizer_config.json");  // which says wmt21: without it m2m100 is meant
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)open_source(context.get(), out.string()); }),
              HasSubstr("shared_vocabulary.json"));
}

TEST_F(HfImportOfTables, AFamilyWithoutThemAndAnotherPaddingAreRefused) {
  EXPECT_THAT(test::refusal(Fault::data, [&] { write_pair("hf", pegasus); }), HasSubstr("have no table of ids"));
  EXPECT_NO_THROW(write_pair("ct2", pegasus));
  spec::ModelConfig padded = translation;  // with fillers before the padding
  EXPECT_THAT(test::refusal(Fault::data, [&] { write("hf", padded); }), HasSubstr("model.vocab_multiple"));
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
