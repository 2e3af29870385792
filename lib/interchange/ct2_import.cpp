#include "interchange/ct2_import.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/table_tokenizer.hpp"

namespace argosy::interchange {
namespace {

constexpr const char* bin_file = "model.bin";
constexpr const char* ct2_config_file = "config.json";

/// What is said of a model from its variables.
class Ct2Description {
 public:
  Ct2Description(const ModelBinFile& file, boost::json::object config, std::string where)
      : file_(file), config_(std::move(config)), where_(std::move(where)) {}

  [[nodiscard]] bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  /// The value of a scalar. Throws Error{data} if there is none.
  [[nodiscard]] float scalar(const std::string& name) const {
    const ModelBinFile::Variable& variable = needed(name);
    if (variable.elements() != 1) wrong(name, "one number", fmt::format("{} numbers", variable.elements()));
    float value = 0;
    file_.read(variable, 0, {&value, 1});
    return value;
  }
  /// A scalar that counts or sizes something.
  [[nodiscard]] std::int64_t size(const std::string& name) const {
    const float value = scalar(name);
    if (!(value >= 1) || value > static_cast<float>(spec::most_size) || value != std::floor(value))
      wrong(name, "a positive whole number", fmt::format("{}", value));
    return static_cast<std::int64_t>(value);
  }
  /// An extent of a matrix or vector.
  [[nodiscard]] std::int64_t extent(const std::string& name, std::size_t dimension) const {
    const ModelBinFile::Variable& variable = needed(name);
    if (variable.shape.size() <= dimension)
      wrong(name, fmt::format("{} dimensions", dimension + 1), fmt::format("{}", variable.shape.size()));
    return variable.shape[dimension];
  }
  [[nodiscard]] std::optional<double> epsilon() const {
    const boost::json::value* const value = config_.if_contains("layer_norm_epsilon");
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return value->to_number<double>();
  }
  [[noreturn]] void wrong(const std::string& name, std::string wanted, std::string got) const {
    throw_error(Fault::data, fmt::format("{}, variable \"{}\"", where_, name), std::move(wanted), std::move(got),
                "give a folder that apps/export --format ct2 has written");
  }

 private:
  [[nodiscard]] const ModelBinFile::Variable& needed(const std::string& name) const {
    const ModelBinFile::Variable* const variable = file_.find(name);
    if (variable == nullptr) wrong(name, "a model with it", "none of that name");
    return *variable;
  }

  const ModelBinFile& file_;
  const boost::json::object config_;
  const std::string where_;
};

/// The shortest decimal number that rounds to `value`: what a configuration said before it became 32 bits.
double decimal_of(float value) {
  const std::string text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::int64_t layers_of(const Ct2Description& described, const std::string& side) {
  std::int64_t layers = 0;
  while (described.has(fmt::format("{}/layer_{}/self_attention/linear_0/weight", side, layers))) ++layers;
  return layers;
}

spec::Position position_of(const Ct2Description& described, const ModelBinFile& file, const std::string& side) {
  const std::string attention = side + "/layer_0/self_attention/", name = side + "/position_encodings/encodings";
  if (described.has(attention + "rotary_dim")) return spec::Position::rope;
  if (described.has(attention + "relative_attention_bias")) return spec::Position::t5;
  if (described.has(side + "/alibi")) return spec::Position::alibi;
  const ModelBinFile::Variable* const table = file.find(name);
  if (table == nullptr || table->shape.size() != 2)
    described.wrong(name, "a table of positions", table == nullptr ? "none" : "another shape");
  const std::int64_t rows = std::min<std::int64_t>(table->shape[0], 64), width = table->shape[1];
  std::vector<float> got(static_cast<std::size_t>(rows * width));
  file.read(*table, 0, got);
  if (equal_as(table->dtype, got, sinusoids(rows, width))) return spec::Position::sinusoidal;
  if (equal_as(table->dtype, got, sinusoids(rows, width, true))) return spec::Position::sinusoidal_fairseq;
  if (equal_as(table->dtype, got, std::vector<float>(got.size()))) return spec::Position::none;
  return spec::Position::learned;
}

std::optional<spec::RopeScaling> rope_scaling_of(const Ct2Description& described, const std::string& attention) {
  if (!described.has(attention + "rotary_scaling_type")) return std::nullopt;
  return spec::RopeScaling{.factor = decimal_of(described.scalar(attention + "rotary_scaling_factor")),
                           .low_freq_factor = decimal_of(described.scalar(attention + "rotary_low_freq_factor")),
                           .high_freq_factor = decimal_of(described.scalar(attention + "rotary_high_freq_factor")),
                           .original_max_positions = described.size(attention + "original_max_position_embeddings")};
}

spec::Activation activation_of(const Ct2Description& described, const std::string& side, bool gated) {
  const std::string name = side + "/activation";
  const float code = described.scalar(name);
  if (code == 0 && !gated) return spec::Activation::relu;
  if (code == 1 && gated) return spec::Activation::geglu;
  if (code == 2) return gated ? spec::Activation::swiglu : spec::Activation::swish;
  if (code == 3 && !gated) return spec::Activation::gelu;
  described.wrong(name, gated ? "1 or 2 (geglu, swiglu)" : "0, 2 or 3 (relu, swish, gelu)", fmt::format("{}", code));
}

spec::ModelConfig config_of(const Ct2Description& described, const ModelBinFile& file, const std::string& where) {
  spec::ModelConfig model;
  if (file.spec() != "TransformerSpec" && file.spec() != "TransformerDecoderSpec")
    throw_error(Fault::usage, where, "a TransformerSpec or TransformerDecoderSpec",
                file.spec().empty() ? "no specification" : file.spec(),
                "give a folder that apps/export --format ct2 has written");
  const bool pairs = file.spec() == "TransformerSpec";
  const std::string layer = "decoder/layer_0/", attention = layer + "self_attention/";
  model.type = pairs ? spec::ModelType::encoder_decoder : spec::ModelType::decoder;
  model.width = described.extent("decoder/embeddings/weight", 1);
  model.heads = described.size("decoder/num_heads");
  model.decoder.layers = layers_of(described, "decoder");
  model.decoder.position = position_of(described, file, "decoder");
  if (pairs) {
    model.encoder.layers = layers_of(described, "encoder");
    model.encoder.position = position_of(described, file, "encoder");
  }
  const bool gated = described.has(layer + "ffn/linear_0_noact/weight");
  model.ff = described.extent(layer + "ffn/linear_0/weight", 0);
  model.activation = activation_of(described, "decoder", gated);
  model.norm_position = described.scalar("decoder/pre_norm") != 0 ? spec::NormPosition::pre : spec::NormPosition::post;
  model.norm = described.has(attention + "layer_norm/beta") ? spec::Norm::layer_norm : spec::Norm::rms_norm;
  model.norm_epsilon = described.epsilon();
  model.bias = described.has(attention + "linear_1/bias");
  model.qkv_bias = !*model.bias && described.has(attention + "linear_0/bias");
  if (described.has(attention + "num_heads_kv")) model.kv_heads = described.size(attention + "num_heads_kv");
  if (described.has(attention + "head_dim")) model.head_size = described.size(attention + "head_dim");
  if (described.has("decoder/sliding_window")) model.window = described.size("decoder/sliding_window");
  for (const std::string side : {"decoder", "encoder"}) {
    const std::string base = side + "/layer_0/self_attention/rotary_base",
                      table = side + "/position_encodings/encodings";
    if (described.has(base)) model.rope_theta = decimal_of(described.scalar(base));
    const std::string of_rope = side + "/layer_0/self_attention/";
    if (const auto scaling = rope_scaling_of(described, of_rope)) {
      model.rope_scaling = scaling;
      model.max_positions = described.size(of_rope + "max_position_embeddings");
    }
    if (described.has(table)) model.max_positions = described.extent(table, 0);
  }
  model.tie_embeddings = file.find("decoder/projection/weight") == file.find("decoder/embeddings/weight");
  if (pairs) model.tie_inputs = file.find("encoder/embeddings_0/weight") == file.find("decoder/embeddings/weight");
  model.output_bias = described.has("decoder/projection/bias");
  model.embedding_scale = described.scalar("decoder/scale_embeddings") != 0;
  return model;
}

/// A JSON file of the folder.
boost::json::value json_of(const Files& files, const Path& path) {
  boost::json::error_code error;
  boost::json::value value = boost::json::parse(files.read_text(path, 64 << 20), error);
  if (error) throw_error(Fault::data, path.string(), "JSON", error.message(), "export the model again");
  return value;
}

/// Throws Error{data} unless the folder lists the pieces of its tokenizer, in order.
void check_pieces(const Files& files, const Path& path, const data::Tokenizer& tokenizer) {
  boost::json::array pieces;
  for (std::string& piece : distinct_pieces(tokenizer)) pieces.emplace_back(std::move(piece));
  const boost::json::value listed = json_of(files, path);
  if (listed.is_array() && listed.get_array() == pieces) return;
  throw_error(Fault::data, path.string(), "the pieces of the folder's tokenizer", "others",
              "give a folder that apps/export --format ct2 has written");
}

/// The weights of a folder by our names.
class Ct2Weights final : public model::WeightSource {
 public:
  explicit Ct2Weights(ModelBinFile file) : file_(std::move(file)) {}

  [[nodiscard]] const ModelBinFile& file() const noexcept { return file_; }

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    // Rows that only our padding has: dead ids.
    std::ranges::fill(to, parameter.role == spec::Role::head_bias ? -1e4F : 0.0F);
    const auto end = begin + std::ssize(to);
    std::int64_t first = 0;  // element of the parameter that the variable begins with
    for (const std::string& name : names_of(parameter)) {
      const ModelBinFile::Variable& variable = *file_.find(name);
      const std::int64_t from = std::max(begin, first), until = std::min(end, first + variable.elements());
      if (from < until) {
        read_part(name, variable, from - first,
                  to.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(until - from)));
      }
      first += variable.elements();
    }
  }

  /// The variables whose rows follow one another in a parameter.
  static std::vector<std::string> names_of(const spec::Parameter& parameter) {
    if (parameter.parts.empty() || parameter.parts.back().name != "up") return {parameter.name};
    std::string up = parameter.name;
    return {parameter.name, up.insert(up.rfind('/'), "_noact")};
  }

 private:
  /// Divides integers by the scale of their row or matrix.
  void read_part(const std::string& name, const ModelBinFile::Variable& variable, std::int64_t begin,
                 std::span<float> to) const {
    file_.read(variable, begin, to);
    const ModelBinFile::Variable* const scale = file_.find(name + "_scale");
    if (scale == nullptr) return;
    std::vector<float> scales(static_cast<std::size_t>(scale->elements()));
    file_.read(*scale, 0, scales);
    const std::int64_t columns = variable.elements() / scale->elements();
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] /= scales[static_cast<std::size_t>((begin + static_cast<std::int64_t>(i)) / columns)];
  }

  const ModelBinFile file_;
};

/// Whether CTranslate2's converters write a variable that follows from others, or that only alignments need.
bool is_optional(std::string_view name) {
  return name.ends_with("/embeddings_merge") || name.ends_with("/alignment_heads") ||
         name.ends_with("/alignment_layer");
}

/// What is wrong with the variables of a file, of which `wanted` are those of the model that it describes.
std::vector<std::string> problems_of(const ModelBinFile& file, const ModelBin& wanted) {
  std::vector<std::string> problems;
  std::set<std::string, std::less<>> known;
  for (const Tensor& tensor : wanted.variables) {
    known.insert(tensor.name);
    const ModelBinFile::Variable* const found = file.find(tensor.name);
    if (found == nullptr) {
      problems.push_back("missing " + tensor.name);
      continue;
    }
    if (found->shape != tensor.shape) {
      problems.push_back(fmt::format("{} of shape {} instead of {}", tensor.name, spec::text_of(found->shape),
                                     spec::text_of(tensor.shape)));
      continue;
    }
    if ((found->dtype == DType::i8 || found->dtype == DType::i16) && tensor.dtype == DType::f32) {
      const ModelBinFile::Variable* const scale = file.find(tensor.name + "_scale");
      known.insert(tensor.name + "_scale");
      const std::vector<std::int64_t> rows =
          found->dtype == DType::i8 ? std::vector{tensor.shape.front()} : std::vector<std::int64_t>{};
      if (scale == nullptr || scale->dtype != DType::f32 || scale->shape != rows)
        problems.push_back(tensor.name + " without its scales");
    }
    if (tensor.shape.empty() && (found->dtype != tensor.dtype || file.bytes(*found) != tensor.bytes()))
      problems.push_back(tensor.name + " of another type or value");
  }
  for (const auto& [alias, target] : wanted.aliases) {
    known.insert(alias);
    if (file.find(alias) == nullptr || file.find(alias) != file.find(target))
      problems.push_back(fmt::format("{} that is not {}", alias, target));
  }
  for (const auto& [name, variable] : file.variables()) {
    if (!known.contains(name) && !is_optional(name)) problems.push_back("unexpected " + name);
  }
  for (const auto& [name, target] : file.aliases()) {
    if (!known.contains(name) && !is_optional(name)) problems.push_back("unexpected " + name);
  }
  return problems;
}

void check_variables(const ModelBinFile& file, const model::StoredModel& model, const std::string& where) {
  std::vector<std::string> problems = problems_of(file, ct2_variables(model, Quantization::float32));
  for (const char* const side : {"encoder", "decoder"}) {
    const ModelBinFile::Variable* const table = file.find(fmt::format("{}/position_encodings/encodings", side));
    const spec::Position position = model.spec.architecture.position(side[0] == 'e');
    const bool fairseq = position == spec::Position::sinusoidal_fairseq;
    if (table == nullptr || !(fairseq || position == spec::Position::sinusoidal)) continue;
    const std::vector<float> numbers = sinusoids(table->shape[0], table->shape[1], fairseq);
    std::vector<float> got(numbers.size());
    file.read(*table, 0, got);
    if (as_floats(numbers, table->dtype, "positions") != as_floats(got, table->dtype, "positions"))
      problems.push_back(fmt::format("{}/position_encodings/encodings that are no sinusoids", side));
  }
  if (problems.empty()) return;
  constexpr std::size_t most = 12;
  const std::size_t all = problems.size();
  const std::string first = problems.front();
  if (all > most) problems.resize(most);
  throw_claim(Fault::data,
              fmt::format("{}: the variables are not those of a model that apps/export writes: {}{}", where,
                          fmt::join(problems, "; "), all > most ? fmt::format("; and {} more", all - most) : ""),
              where, "the variables of such a model", first,
              "give a folder that apps/export --format ct2 has written, or the checkpoint it was written from");
}

void refuse_integers(const ModelBinFile& file, const Path& folder) {
  for (const auto& [name, variable] : file.variables()) {
    const bool is_integer = variable.dtype == DType::i8 || variable.dtype == DType::i16;
    if (!is_integer || variable.shape.size() < 2) continue;
    const char* const type = variable.dtype == DType::i8 ? "int8" : "int16";
    throw_claim(Fault::usage,
                fmt::format("{} holds weights that are rounded to {}, which are not the weights of the model that was "
                            "exported",
                            folder.string(), type),
                folder.string(), "weights of float32, float16 or bfloat16", fmt::format("{} of {}", name, type),
                "use the checkpoint, or a folder that was exported with another --quantization");
  }
}

/// Sets model.token_ids if the special ids are not those of the model's layout.
void set_ids(spec::ModelConfig& model, const Ct2Description& described, const boost::json::object& config,
             const data::Tokenizer& tokenizer) {
  const auto id_of = [&](const char* key) -> std::optional<std::int64_t> {
    const boost::json::value* const piece = config.if_contains(key);
    if (piece == nullptr || !piece->is_string()) return std::nullopt;
    return tokenizer.id_of(std::string_view{piece->get_string()});
  };
  const std::int64_t pieces = tokenizer.vocabulary().pieces, rows = described.extent("decoder/embeddings/weight", 0);
  const bool is_table = tokenizer.kind() == data::TokenizerKind::table;
  if (is_table) model.vocab_multiple = 1;  // Marian's pad is the table's last piece
  const spec::Vocabulary usual =
      spec::vocabulary_of({spec::vocabulary_rule(model).layout, model.vocab_multiple}, pieces);
  const std::optional<std::int64_t> eos = id_of("eos_token"), unk = tokenizer.unknown(), bos = id_of("bos_token"),
                                    start = id_of("decoder_start_token");
  const bool zero_start = described.scalar("decoder/start_from_zero_embedding") != 0;
  const bool has_usual_start =
      usual.zero_row() ? zero_start : !zero_start && (start ? start == usual.start : bos == usual.bos);
  if (rows == pieces && eos == usual.eos && unk == usual.unk && has_usual_start) return;
  model.token_ids = spec::TokenIds{.eos = eos.value_or(0), .unk = unk, .start = start};
  if (bos != eos) model.token_ids->bos = bos;
  if (is_table) model.token_ids->pad = tokenizer.id_of("<pad>");
  if (rows > pieces) model.vocab_size = rows;
}

}  // namespace

bool is_ctranslate2(const Files& files, const Path& folder) {
  return files.exists(folder / bin_file) && files.exists(folder / ct2_config_file) &&
         !files.exists(folder / "MANIFEST.json");
}

model::StoredModel ctranslate2_model(const Files& files, const Path& folder, Integers integers) {
  ModelBinFile file{files, folder / bin_file};
  const std::string where = file.path().string();
  if (integers == Integers::refuse) refuse_integers(file, folder);
  const boost::json::value config = json_of(files, folder / ct2_config_file);
  if (!config.is_object())
    throw_error(Fault::data, (folder / ct2_config_file).string(), "a JSON object", "another value",
                "export the model again");
  const Ct2Description described{file, config.get_object(), where};
  spec::ModelConfig model = config_of(described, file, where);
  const bool pairs = model.type == spec::ModelType::encoder_decoder;
  data::Tokenizer tokenizer = read_folder_tokenizer(files, folder);
  set_ids(model, described, config.get_object(), tokenizer.side(data::Side::target));
  tokenizer.apply(spec::vocabulary_rule(model), folder.string());
  for (const auto& [name, own] : ct2_vocabularies(tokenizer, pairs)) check_pieces(files, folder / name, *own);
  spec::ModelSpec spec = spec::resolve(model, tokenizer.vocabulary().pieces);
  model::require_embeddings(Fault::data, tokenizer, spec.architecture, folder.string());
  const std::string id = Hasher{}.update(boost::json::serialize(config)).update(file.digest().hex()).digest().hex();
  model::StoredModel stored{model, std::move(spec), std::move(tokenizer), nullptr, folder.string(), id};
  if (const DType type = file.find("decoder/embeddings/weight")->dtype; type == DType::bf16 || type == DType::f16)
    stored.trained_in = type;
  check_variables(file, stored, where);
  stored.weights = std::make_unique<Ct2Weights>(std::move(file));
  return stored;
}

}  // namespace argosy::interchange
