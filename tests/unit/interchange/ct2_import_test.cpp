#include "interchange/ct2_import.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <cstring>

#include "interchange/source.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

using testing::HasSubstr, testing::Not;

class Ct2Import : public test::ExportFixture {
 protected:
  /// Exports, reads the folder, and compares every live element with the checkpoint's.
  model::StoredModel round_trip(const spec::ModelConfig& config, Quantization quantization = Quantization::float32) {
    write("ct2", config, {.quantization = quantization});
    model::StoredModel model = ctranslate2_model(files, out, Integers::read);
    const spec::Architecture wanted = spec::resolve(config, 300);
    const double most = quantization == Quantization::float32 ? 0 : 0x1p-6;  // of values of 1 or less
    for (const spec::Unit& unit : spec::ModelSpec(wanted).units) {
      for (const spec::Parameter& parameter : unit.parameters) {
        const std::int64_t columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
        const std::int64_t live = parameter.is_by_id() ? 300 * columns : parameter.numel();
        std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
        model.weights->read(parameter, 0, values);
        for (std::int64_t i = 0; i < live; ++i)
          EXPECT_NEAR(values[static_cast<std::size_t>(i)], test::element(parameter.name, 0, i, 1), most)
              << parameter.name << " " << i;
        if (parameter.is_by_id() && parameter.numel() > live) {
          EXPECT_EQ(values.back(), parameter.role == spec::Role::head_bias ? -1e4F : 0) << parameter.name;
        }
      }
    }
    return model;
  }
  /// What is said of a folder whose variables were changed.
  template <class Change>
  std::string refused(Fault fault, const Change& change) {
    write("ct2", translation);
    ModelBin bin = loaded(out / "model.bin");
    change(bin);
    files.remove(out / "model.bin");
    write_model_bin(context.get().world, files, out / "model.bin", bin);
    return test::refusal(fault, [&] { (void)ctranslate2_model(files, out); });
  }
  ModelBin loaded(const Path& path) {
    const ModelBinFile file{files, path};
    ModelBin bin{file.spec(), file.revision(), {}, {file.aliases().begin(), file.aliases().end()}};
    for (const auto& [name, variable] : file.variables())
      bin.variables.push_back({name, variable.dtype, variable.shape, holding(file.bytes(variable), variable.dtype)});
    return bin;
  }
  static Tensor& variable(ModelBin& bin, const std::string& name) {
    return *std::ranges::find(bin.variables, name, &Tensor::name);
  }
  template <class T>
  static void set(ModelBin& bin, const std::string& name, T value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    Tensor& changed = variable(bin, name);
    changed.fill = holding(bytes, changed.dtype);
  }

  Files files = Files::system();
};

TEST_F(Ct2Import, GivesBackATranslationModel) {
  translation.norm_epsilon = 0.25;
  translation.activation = spec::Activation::gelu;
  const model::StoredModel model = round_trip(translation);
  spec::Architecture wanted = spec::resolve(translation, 300);
  const spec::Architecture& got = model.spec.architecture;
  EXPECT_EQ(got.heads, 2);
  EXPECT_EQ(got.max_positions, 5);
  EXPECT_EQ(got.norm_epsilon, 0.25);
  EXPECT_EQ(got.activation, spec::Activation::gelu);
  EXPECT_EQ(got.norm_position, spec::NormPosition::post);
  EXPECT_TRUE(got.tie_embeddings && got.scales_embeddings && got.bias);
  EXPECT_EQ(got.vocabulary, wanted.vocabulary);
  EXPECT_EQ(model.id.size(), 32U);
}

TEST_F(Ct2Import, GivesBackOtherShapesOfTranslationModels) {
  translation.tie_embeddings = false;
  translation.norm_position = spec::NormPosition::pre;
  translation.encoder.layers = 2;
  translation.decoder.position = spec::Position::rope;
  translation.rope_theta = 12345.678;
  const spec::Architecture got = round_trip(translation).spec.architecture;
  EXPECT_FALSE(got.tie_embeddings);
  EXPECT_EQ(got.norm_position, spec::NormPosition::pre);
  EXPECT_EQ(got.encoder_layers, 2);
  EXPECT_EQ(got.decoder_layers, 1);
  EXPECT_EQ(got.encoder_position, spec::Position::sinusoidal);
  EXPECT_EQ(got.decoder_position, spec::Position::rope);
  EXPECT_FLOAT_EQ(static_cast<float>(got.rope_theta), 12345.678F);
}

TEST_F(Ct2Import, GivesBackASourceWithItsOwnEmbeddings) {
  translation.tie_inputs = false;
  const spec::Architecture got = round_trip(translation).spec.architecture;
  EXPECT_TRUE(got.tie_embeddings);
  EXPECT_FALSE(got.tie_inputs);
}

TEST_F(Ct2Import, GivesBackALanguageModel) {
  language.tie_embeddings = false;
  const model::StoredModel model = round_trip(language);
  const spec::Architecture& got = model.spec.architecture;
  EXPECT_EQ(got.kv_heads, 2);
  EXPECT_EQ(got.head_size, 6);
  EXPECT_EQ(got.window, 3);
  EXPECT_EQ(got.rope_theta, 500);
  EXPECT_EQ(got.activation, spec::Activation::swiglu);
  EXPECT_EQ(got.norm, spec::Norm::rms_norm);
  EXPECT_FALSE(got.bias || got.scales_embeddings || got.tie_embeddings);
  EXPECT_EQ(got.max_positions, 2048);  // the folder does not say
}

TEST_F(Ct2Import, GivesBackEveryKindOfPositions) {
  using spec::Position;
  for (const auto& [encoder, decoder] : {std::pair{Position::sinusoidal_fairseq, Position::none},
                                         {Position::learned, Position::alibi},
                                         {Position::rope, Position::t5}}) {
    translation.encoder.position = encoder;
    translation.decoder.position = decoder;
    const spec::Architecture got = round_trip(translation).spec.architecture;
    EXPECT_EQ(got.encoder_position, encoder);
    EXPECT_EQ(got.decoder_position, decoder);
  }
  language.rope_scaling = spec::RopeScaling{.factor = 4.5, .original_max_positions = 3};
  const spec::Architecture scaled = round_trip(language).spec.architecture;
  ASSERT_TRUE(scaled.rope_scaling);
  EXPECT_EQ(scaled.rope_scaling->factor, 4.5);
  EXPECT_EQ(scaled.rope_scaling->high_freq_factor, 4);
  EXPECT_EQ(scaled.rope_scaling->original_max_positions, 3);
  EXPECT_EQ(scaled.max_positions, 5);
}

TEST_F(Ct2Import, GivesBackT5AndBiasesOfSomeLayers) {
  t5.encoder.layers = 2;
  const spec::Architecture got = round_trip(t5).spec.architecture;
  EXPECT_EQ(got.vocabulary.layout, spec::TokenLayout::t5);
  EXPECT_EQ(got.tie_inputs, spec::resolve(t5, 300).tie_inputs);
  EXPECT_EQ(got.tie_embeddings, spec::resolve(t5, 300).tie_embeddings);
  EXPECT_FALSE(got.output_bias);
  const spec::Vocabulary own = round_trip(m2m).spec.architecture.vocabulary;
  EXPECT_TRUE(own.has_own_ids);
  EXPECT_EQ(own.eos, 0);
  EXPECT_EQ(own.start, 0);
  translation.output_bias = false;
  EXPECT_FALSE(round_trip(translation).spec.architecture.output_bias);
  language.qkv_bias = true;
  EXPECT_TRUE(round_trip(language).spec.architecture.qkv_bias);
}

TEST_F(Ct2Import, GivesBackRoundedWeights) {
  for (const Quantization quantization : {Quantization::bfloat16, Quantization::float16, Quantization::int8,
                                          Quantization::int8_float16, Quantization::int16}) {
    (void)round_trip(translation, quantization);
    (void)round_trip(language, quantization);
  }
}

TEST_F(Ct2Import, SourcesAreRecognisedByTheirContent) {
  write("ct2", language);
  const model::StoredModel model = open_source(context.get(), out.string());
  EXPECT_EQ(model.spec.architecture.heads, 4);
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)open_source(context.get(), out.string(), true); }),
              HasSubstr("has no running means"));
  EXPECT_FALSE(is_ctranslate2(files, folder / "run"));
  const interchange::ExportReport again = format_named("ct2").write(context.get(), model, folder / "again", {});
  EXPECT_EQ(again.parameters, report.parameters);
  EXPECT_EQ(files.read_text(folder / "again/SHA256SUMS"), read("SHA256SUMS"));
}

TEST_F(Ct2Import, RefusesIntegersAsASource) {
  write("ct2", translation, {.quantization = Quantization::int8});
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)open_source(context.get(), out.string()); }),
              HasSubstr("rounded to int8, which are not the weights of the model that was exported"));
}

TEST_F(Ct2Import, ListsWhatIsMissingLeftOverOrOfAnotherShape) {
  EXPECT_THAT(refused(Fault::data,
                      [](ModelBin& bin) {
                        variable(bin, "decoder/layer_0/ffn/linear_1/bias").name = "decoder/layer_0/ffn/odd";
                        variable(bin, "encoder/layer_0/ffn/linear_1/bias").shape = {2, 4};
                        std::erase_if(bin.aliases, [](auto& alias) { return alias.first[0] == 'e'; });
                      }),
              testing::AllOf(HasSubstr("missing decoder/layer_0/ffn/linear_1/bias"),
                             HasSubstr("unexpected decoder/layer_0/ffn/odd"),
                             HasSubstr("encoder/layer_0/ffn/linear_1/bias of shape [2, 4] instead of [8]"),
                             HasSubstr("missing encoder/embeddings_0/weight")));
}

TEST_F(Ct2Import, RefusesValuesThatArgosyDoesNotWrite) {
  const auto refused_value = [&](const std::string& name, auto value) {
    return refused(Fault::data, [&](ModelBin& bin) { set(bin, name, value); });
  };
  EXPECT_THAT(refused_value("decoder/activation", std::int8_t{4}), HasSubstr("expected 0, 2 or 3"));
  EXPECT_THAT(refused_value("encoder/activation", std::int8_t{2}),
              HasSubstr("encoder/activation of another type or value"));
  EXPECT_THAT(refused_value("decoder/num_heads", std::int16_t{-2}),
              HasSubstr("expected a positive whole number, got -2"));
  EXPECT_THAT(refused_value("encoder/pre_norm", std::int8_t{1}),
              HasSubstr("encoder/pre_norm of another type or value"));
}

TEST_F(Ct2Import, RefusesATableThatIsNoTableOfSinusoids) {
  const std::string text = refused(Fault::data, [](ModelBin& bin) {
    Tensor& table = variable(bin, "encoder/position_encodings/encodings");
    std::vector<std::byte> bytes = table.bytes();
    bytes[8] = static_cast<std::byte>(static_cast<unsigned>(bytes[8]) ^ 1U);  // one unit in the last place
    table.fill = holding(bytes, table.dtype);
  });
  EXPECT_THAT(text, HasSubstr("encoder/position_encodings/encodings that are no sinusoids"));
}

TEST_F(Ct2Import, RefusesAnotherSpecificationVocabularyOrConfiguration) {
  EXPECT_THAT(refused(Fault::usage, [](ModelBin& bin) { bin.spec = "WhisperSpec"; }),
              HasSubstr("expected a TransformerSpec or TransformerDecoderSpec, got WhisperSpec"));
  write("ct2", translation);
  const auto refused_file = [&](const char* name, std::string_view content) {
    const std::string before = read(name);
    files.write_atomically(out / name, content);
    const std::string said = test::refusal(Fault::data, [&] { (void)ctranslate2_model(files, out); });
    files.write_atomically(out / name, before);
    return said;
  };
  EXPECT_THAT(refused_file("config.json", "[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refused_file("shared_vocabulary.json", "[\"</s>\"]"),
              HasSubstr("expected the pieces of the folder's tokenizer"));
  EXPECT_THAT(refused_file("shared_vocabulary.json", "[\"</s>\""), HasSubstr("expected JSON"));
  files.remove(out / "source.spm");
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)ctranslate2_model(files, out); }),
              HasSubstr("expected a tokenizer.json or tokenizer.model, got neither"));
}

}  // namespace
}  // namespace argosy::interchange
