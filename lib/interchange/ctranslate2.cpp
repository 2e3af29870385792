/// The format ct2: a CTranslate2 model folder with model.bin, config.json, vocabulary, the SentencePiece model and
/// SHA256SUMS.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/ct2_import.hpp"
#include "interchange/table_tokenizer.hpp"
#include "interchange/verify.hpp"
#include "spec/positions.hpp"

namespace argosy::interchange {
namespace {

template <class T>
Tensor scalar(std::string name, DType dtype, T value) {
  const Bytes bytes = std::as_bytes(std::span{&value, 1});
  return {std::move(name), dtype, {}, holding({bytes.begin(), bytes.end()}, dtype)};
}
Tensor flag(std::string name, bool value) {
  return scalar(std::move(name), DType::i8, static_cast<std::int8_t>(value));
}
Tensor number(std::string name, std::int64_t value) {
  return scalar(std::move(name), DType::i32, narrow<std::int32_t>(value));
}

/// CTranslate2's activation codes.
std::int8_t activation_code(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::relu:
      return 0;
    case spec::Activation::swish:
    case spec::Activation::swiglu:
      return 2;
    case spec::Activation::gelu:
      return 3;
    case spec::Activation::geglu:
      return 1;
  }
  ARGOSY_CHECK(false, "unknown activation");
}

std::optional<Facts> ct2_limit(const spec::Architecture& shape) {
  constexpr std::int64_t most_heads = std::numeric_limits<std::int16_t>::max();
  if (shape.heads > most_heads)
    return Facts{
        .sentence = fmt::format("model.heads is {}, and CTranslate2 stores at most {}; train a model with fewer heads",
                                shape.heads, most_heads),
        .wanted = fmt::format("at most {} heads", most_heads),
        .got = std::to_string(shape.heads),
        .where = "model.heads",
        .remedy = "train a model with fewer heads"};
  struct Need {
    bool met;
    const char *key, *wanted;
  };
  const bool translation = shape.type == spec::ModelType::encoder_decoder;
  // What CTranslate2 has on both sides, or in the decoder alone.
  const Need needs[] = {{!shape.prefix_lm, "model.prefix_lm", "false, since its decoders read prompts causally"},
                        {!translation || shape.encoder_position != spec::Position::alibi, "model.encoder.position",
                         "another one than alibi"}};
  for (const Need& need : needs) {
    if (need.met) continue;
    return Facts{.sentence = fmt::format("--format ct2 needs {} to be {}", need.key, need.wanted),
                 .wanted = need.wanted,
                 .got = "another value",
                 .where = need.key};
  }
  return std::nullopt;
}

/// Collects the variables of one model.
class Ct2Model {
 public:
  Ct2Model(const model::StoredModel& model, Quantization quantization)
      : model_(model), shape_(model.spec.architecture), quantization_(quantization) {
    const spec::Architecture& shape = shape_;
    const bool encoder_decoder = shape.type == spec::ModelType::encoder_decoder;
    bin_.spec = encoder_decoder ? "TransformerSpec" : "TransformerDecoderSpec";
    bin_.revision = encoder_decoder ? 7 : 8;
    if (auto facts = ct2_limit(shape)) throw Error{Fault::usage, std::move(*facts)};
    if (encoder_decoder) side("encoder", shape.encoder_layers, shape.encoder_position);
    side("decoder", shape.decoder_layers, shape.decoder_position);
    bin_.variables.push_back(flag("decoder/start_from_zero_embedding", shape.vocabulary.zero_row().has_value()));
    if (shape.output_scale() != 1)
      bin_.variables.push_back(scalar("decoder/scale_outputs", DType::f32, static_cast<float>(shape.output_scale())));
    if (shape.window) bin_.variables.push_back(number("decoder/sliding_window", *shape.window));
    for (const spec::Unit& unit : model.spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) weight(parameter);
    }
    if (shape.tie_embeddings) bin_.aliases.emplace_back("decoder/projection/weight", "decoder/embeddings/weight");
    if (encoder_decoder && shape.tie_inputs)
      bin_.aliases.emplace_back("encoder/embeddings_0/weight", "decoder/embeddings/weight");
  }

  [[nodiscard]] ModelBin take() { return std::move(bin_); }
  [[nodiscard]] std::int64_t parameters() const noexcept { return parameters_; }

 private:
  void side(const std::string& side, std::int64_t layers, spec::Position position) {
    auto& variables = bin_.variables;
    variables.push_back(scalar(side + "/num_heads", DType::i16, narrow<std::int16_t>(shape_.heads)));
    variables.push_back(flag(side + "/pre_norm", shape_.norm_position == spec::NormPosition::pre));
    variables.push_back(scalar(side + "/activation", DType::i8, activation_code(shape_.activation)));
    variables.push_back(flag(side + "/scale_embeddings", shape_.scales_embeddings));
    const bool fairseq = position == spec::Position::sinusoidal_fairseq, none = position == spec::Position::none;
    if (position == spec::Position::sinusoidal || fairseq || none) {  // without a table CTranslate2 has its own
      const std::int64_t positions = shape_.max_positions, width = shape_.width;
      const DType dtype = float_type();
      variables.push_back(
          {side + "/position_encodings/encodings",
           dtype,
           {positions, width},
           [width, dtype, fairseq, none](std::int64_t first, MutableBytes to) {
             const std::size_t count = to.size() / size_of(dtype);
             to_floats(none ? std::vector<float>(count)
                            : sinusoids(static_cast<std::int64_t>(count) / width, width, fairseq, first / width),
                       dtype, "positions", to);
           }});
    }
    if (position == spec::Position::alibi) {
      variables.push_back(flag(side + "/alibi", true));
      variables.push_back(flag(side + "/alibi_use_positive_positions", true));
      variables.push_back(flag(side + "/scale_alibi", false));
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string prefix = fmt::format("{}/layer_{}/", side, layer);
      attention(prefix + "self_attention/", side, position);
      if (side == "decoder" && shape_.type == spec::ModelType::encoder_decoder)
        attention(prefix + "attention/", side, spec::Position::sinusoidal);
      if (position == spec::Position::t5) {
        const std::string bias = "self_attention/relative_attention_bias";
        if (layer > 0) bin_.aliases.emplace_back(prefix + bias, fmt::format("{}/layer_0/{}", side, bias));
        variables.push_back(number(prefix + "self_attention/relative_attention_max_distance", spec::most_distance));
      }
      if (shape_.window && side == "decoder")
        variables.push_back(number(prefix + "self_attention/sliding_window", *shape_.window));
    }
  }

  void attention(const std::string& prefix, const std::string& side, spec::Position position) {
    auto& variables = bin_.variables;
    if (shape_.position(side == "encoder") == spec::Position::t5)
      variables.push_back(
          scalar(prefix + "queries_scale", DType::f32, static_cast<float>(shape_.attention_scale(side == "encoder"))));
    if (shape_.head_size * shape_.heads != shape_.width)
      variables.push_back(number(prefix + "head_dim", shape_.head_size));
    if (shape_.kv_heads != shape_.heads) variables.push_back(number(prefix + "num_heads_kv", shape_.kv_heads));
    if (position == spec::Position::rope) {
      variables.push_back(number(prefix + "rotary_dim", 0));           // all of the head
      variables.push_back(flag(prefix + "rotary_interleave", false));  // half-split
      variables.push_back(scalar(prefix + "rotary_base", DType::f32, static_cast<float>(shape_.rope_theta)));
      if (shape_.rope_scaling) rope_scaling(prefix, *shape_.rope_scaling);
    }
  }

  void rope_scaling(const std::string& prefix, const spec::RopeScaling& scaling) {
    auto& variables = bin_.variables;
    const auto real = [&](const char* name, double value) {
      variables.push_back(scalar(prefix + name, DType::f32, static_cast<float>(value)));
    };
    constexpr std::int8_t llama3 = 2;
    variables.push_back(scalar(prefix + "rotary_scaling_type", DType::i8, llama3));
    real("rotary_scaling_factor", scaling.factor);
    real("rotary_low_freq_factor", scaling.low_freq_factor);
    real("rotary_high_freq_factor", scaling.high_freq_factor);
    variables.push_back(number(prefix + "original_max_position_embeddings", scaling.original_max_positions));
    variables.push_back(number(prefix + "max_position_embeddings", shape_.max_positions));
  }

  [[nodiscard]] DType float_type() const {
    switch (quantization_) {
      case Quantization::bfloat16:
      case Quantization::int8_bfloat16:
        return DType::bf16;
      case Quantization::float16:
      case Quantization::int8_float16:
        return DType::f16;
      case Quantization::float32:
      case Quantization::int8:
      case Quantization::int8_float32:
      case Quantization::int16:
        return DType::f32;
    }
    ARGOSY_CHECK(false, "unknown quantization");
  }
  [[nodiscard]] bool has_int8() const {
    return quantization_ == Quantization::int8 || quantization_ == Quantization::int8_float32 ||
           quantization_ == Quantization::int8_float16 || quantization_ == Quantization::int8_bfloat16;
  }

  /// Our parameters have CTranslate2's names. Two kinds differ in rows: those with a vocabulary dimension lose the
  /// unused rows, and the fused gate and up projection becomes two variables.
  void weight(const spec::Parameter& parameter) {
    const std::int64_t rows = parameter.shape.front();
    if (!parameter.parts.empty() && parameter.parts.back().name == "up") {
      const std::int64_t gate = parameter.parts.front().rows;
      rows_of(parameter, parameter.name, 0, gate);
      std::string up = parameter.name;
      up.insert(up.rfind('/'), "_noact");
      rows_of(parameter, up, gate, rows);
    } else {
      rows_of(parameter, parameter.name, 0, parameter.is_by_id() ? shape_.vocabulary.pieces : rows);
    }
  }

  /// Rows [begin, end) of a parameter as variable `name` (and its scales).
  void rows_of(const spec::Parameter& parameter, const std::string& name, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> dimensions = parameter.shape;
    dimensions.front() = end - begin;
    const std::int64_t columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
    parameters_ += (end - begin) * columns;
    // Tables of positions and biases of distances are added, not multiplied with.
    const bool is_matrix = name.ends_with("/weight") && dimensions.size() == 2;
    const std::int64_t from = begin * columns, elements = (end - begin) * columns;
    if (has_int8() && is_matrix) {
      int8_rows(parameter, name, dimensions, from);
    } else if (quantization_ == Quantization::int16 && is_matrix) {
      int16_matrix(parameter, name, dimensions, from, elements);
    } else {
      bin_.variables.push_back(
          {name, float_type(), dimensions,
           [&model = model_, &parameter, from, name, dtype = float_type()](std::int64_t first, MutableBytes to) {
             fill_floats(model, parameter, from + first, dtype, name, to);
           }});
    }
  }

  /// Elements [begin, begin + count) of a parameter, in pieces: visit(the number before the piece, values).
  template <class F>
  static void by_pieces(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin,
                        std::int64_t count, std::int64_t row, F&& visit) {
    const std::int64_t most = row * std::max<std::int64_t>(1, (1 << 20) / row);
    std::vector<float> values;
    for (std::int64_t done = 0; done < count; done += most) {
      values.resize(static_cast<std::size_t>(std::min(most, count - done)));
      read_finite(model, parameter, begin + done, values);
      visit(done, std::span<const float>{values});
    }
  }

  /// A matrix and its scales. `from`: the first element of the parameter that belongs to it.
  void int8_rows(const spec::Parameter& parameter, const std::string& name, const std::vector<std::int64_t>& shape,
                 std::int64_t from) {
    const auto visit_rows = [&model = model_, &parameter, from, columns = shape[1]](std::int64_t row, std::int64_t rows,
                                                                                    auto&& visit) {
      by_pieces(model, parameter, from + row * columns, rows * columns, columns,
                [&](std::int64_t done, std::span<const float> values) {
                  visit(done / columns, as_int8_rows(values, values.size() / static_cast<std::size_t>(columns)));
                });
    };
    bin_.variables.push_back(
        {name, DType::i8, shape, [visit_rows, columns = shape[1]](std::int64_t first, MutableBytes to) {
           visit_rows(first / columns, std::ssize(to) / columns, [&](std::int64_t row, const Int8Rows& rows) {
             std::ranges::copy(rows.codes, to.begin() + row * columns);
           });
         }});
    bin_.variables.push_back(
        {name + "_scale", DType::f32, {shape.front()}, [visit_rows](std::int64_t first, MutableBytes to) {
           constexpr std::int64_t size = sizeof(float);
           visit_rows(first, std::ssize(to) / size, [&](std::int64_t row, const Int8Rows& rows) {
             std::ranges::copy(rows.scales, to.begin() + row * size);
           });
         }});
  }

  void int16_matrix(const spec::Parameter& parameter, const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t from, std::int64_t elements) {
    // Read when it is first wanted, by the rank that writes the matrix.
    const auto scale = [&model = model_, &parameter, from, elements, known = std::make_shared<std::optional<float>>()] {
      if (!*known) {
        float largest = 0;
        by_pieces(model, parameter, from, elements, 1, [&](std::int64_t, std::span<const float> values) {
          largest = std::max(largest, largest_magnitude(values));
        });
        *known = int16_scale(largest);
      }
      return **known;
    };
    bin_.variables.push_back(
        {name, DType::i16, shape, [&model = model_, &parameter, from, scale](std::int64_t first, MutableBytes to) {
           constexpr std::int64_t size = sizeof(std::int16_t);
           by_pieces(model, parameter, from + first, std::ssize(to) / size, 1,
                     [&](std::int64_t done, std::span<const float> values) {
                       to_int16(values, scale(),
                                to.subspan(static_cast<std::size_t>(done * size), values.size() * size));
                     });
         }});
    bin_.variables.push_back({name + "_scale", DType::f32, {}, [scale](std::int64_t, MutableBytes to) {
                                const float value = scale();
                                std::memcpy(to.data(), &value, sizeof value);
                              }});
  }

  const model::StoredModel& model_;
  const spec::Architecture shape_;
  Quantization quantization_;
  ModelBin bin_;
  std::int64_t parameters_ = 0;
};

boost::json::object ct2_config(const spec::Architecture& shape, const data::Tokenizer& tokenizer) {
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  boost::json::object out;
  if (shape.type == spec::ModelType::encoder_decoder) {
    out["add_source_bos"] = false;
    out["add_source_eos"] = true;
    // A start id with an embedding of zeros is no piece: any will do.
    out["decoder_start_token"] = tokenizer.piece(vocabulary.zero_row() ? vocabulary.eos : vocabulary.start);
  }
  out["bos_token"] = tokenizer.piece(vocabulary.bos.value_or(vocabulary.eos));
  out["eos_token"] = tokenizer.piece(vocabulary.eos);
  out["unk_token"] = tokenizer.piece(vocabulary.unk.value_or(vocabulary.eos));  // must be a piece
  out["layer_norm_epsilon"] = shape.norm_epsilon;
  out["multi_query_attention"] = shape.kv_heads < shape.heads;
  return out;
}

ExportReport write_ct2(comm::Context& context, const model::StoredModel& model, const Path& folder,
                       const ExportOptions& options) {
  const double begin_s = context.clock.monotonic_s();
  const data::Tokenizer& tokenizer = model.tokenizer;
  const spec::Architecture& shape = model.spec.architecture;
  std::optional<Ct2Model> built;
  std::map<std::string, boost::json::array> pieces;  // by file
  const bool encoder_decoder = shape.type == spec::ModelType::encoder_decoder;
  comm::agree(context.world, [&] {
    refuse_sides(tokenizer, "ct2");
    for (const auto& [file, own] : ct2_vocabularies(tokenizer, encoder_decoder))
      for (std::string& piece : distinct_pieces(*own)) pieces[file].emplace_back(std::move(piece));
    built.emplace(model, options.quantization);
  });
  ExportReport report{.folder = folder, .parameters = built->parameters()};
  OutputFolder output{context, folder};
  const ModelBin bin = built->take();
  const Written written = write_model_bin(context.world, context.files, output.path() / "model.bin", bin);
  report.bytes = written.bytes;
  output.add_sums(written.sums);
  output.write("config.json", pretty(ct2_config(shape, tokenizer.side(data::Side::target))));
  for (const auto& [file, own] : pieces) output.write(file, pretty(own));
  if (tokenizer.is_by_side()) {
    output.write("source.spm", tokenizer.side(data::Side::source).model_bytes());
    output.write("target.spm", tokenizer.side(data::Side::target).model_bytes());
  } else if (tokenizer.kind() == data::TokenizerKind::table) {
    const data::TableParts parts = data::unpack(tokenizer.model_bytes(), model.where);
    write_table_tokenizer(output, parts);
    boost::json::object languages;
    languages["language_codes"] = parts.languages;
    if (!parts.languages.empty()) output.write("tokenizer_config.json", pretty(languages));
  } else if (tokenizer.kind() == data::TokenizerKind::json) {
    output.write("tokenizer.json", tokenizer.model_bytes());
  } else if (encoder_decoder) {
    output.write("source.spm", tokenizer.model_bytes());
    output.write("target.spm", tokenizer.model_bytes());
  } else {
    output.write("tokenizer.model", tokenizer.model_bytes());
  }
  for (const checkpoint::Attachment& file : model.attachments) output.write(file.name, file.content);
  output.commit([&] { report.verified = verify_ctranslate2(context, output, bin, model, options); });
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

}  // namespace

std::map<std::string, const data::Tokenizer*> ct2_vocabularies(const data::Tokenizer& tokenizer, bool encoder_decoder) {
  if (tokenizer.is_by_side())
    return {{"source_vocabulary.json", &tokenizer.side(data::Side::source)},
            {"target_vocabulary.json", &tokenizer.side(data::Side::target)}};
  return {{encoder_decoder ? "shared_vocabulary.json" : "vocabulary.json", &tokenizer}};
}

ModelBin ct2_variables(const model::StoredModel& model, Quantization quantization) {
  return Ct2Model(model, quantization).take();
}

Format ctranslate2() { return {"ct2", "a CTranslate2 folder", ct2_limit, write_ct2}; }

}  // namespace argosy::interchange
