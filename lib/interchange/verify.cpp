#include "interchange/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/ct2_import.hpp"
#include "interchange/hf_import.hpp"
#include "interchange/safetensors.hpp"
#include "interchange/sha256.hpp"

namespace argosy::interchange {
namespace {

constexpr const char* damage_remedy = "nothing was kept; check the disk and export again";

[[noreturn]] void differs(const Path& target, const std::string& what, const std::string& wanted,
                          const std::string& got) {
  throw_claim(Fault::corrupt,
              fmt::format("{}: what was written is not the model: {} is {} and should be {}", target.string(), what,
                          got, wanted),
              target.string(), wanted, got, damage_remedy);
}

/// An element for a message. Integers and floats alike.
std::string element_text(Bytes bytes, std::size_t index, DType dtype) {
  const Bytes element = bytes.subspan(index * size_of(dtype), size_of(dtype));
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, element.data(), sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return fmt::format("{}", as(0.0F));
    case DType::f16:
      return fmt::format("{}", f32_from_f16(as(std::uint16_t{})));
    case DType::bf16:
      return fmt::format("{}", f32_from_bf16(as(std::uint16_t{})));
    case DType::i8:
      return fmt::format("{}", int{as(std::int8_t{})});
    case DType::i16:
      return fmt::format("{}", as(std::int16_t{}));
    default:
      return fmt::format("{}", as(std::int32_t{}));
  }
}

/// Reads a tensor of the folder; where its type or shape is another one, it returns something of another size.
using ReadTensor = std::function<std::vector<std::byte>(const Tensor& wanted)>;

/// Compares this rank's share of the tensors. **Collective.**
void compare_tensors(const comm::Communicator& world, const Path& target, const std::vector<Tensor>& tensors,
                     const ReadTensor& read) {
  comm::agree(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < tensors.size();
         i += static_cast<std::size_t>(world.size())) {
      const Tensor& tensor = tensors[i];
      const std::vector<std::byte> wanted = tensor.bytes(), got = read(tensor);
      if (got.size() != wanted.size())
        differs(target, tensor.name, fmt::format("{} bytes long", wanted.size()), fmt::format("{}", got.size()));
      const auto [at, other] = std::ranges::mismatch(wanted, got);
      if (at == wanted.end()) continue;
      const std::size_t element = static_cast<std::size_t>(at - wanted.begin()) / size_of(tensor.dtype);
      differs(target, fmt::format("element {} of {}", element, tensor.name),
              element_text(wanted, element, tensor.dtype), element_text(got, element, tensor.dtype));
    }
  });
}

/// The weights of a model as a type keeps them.
class Rounded final : public model::WeightSource {
 public:
  Rounded(const model::StoredModel& model, Quantization quantization) : model_(model), quantization_(quantization) {}

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    if (is_int8(parameter)) return read_int8(parameter, begin, to);
    model_.weights->read(parameter, begin, to);
    if (quantization_ == Quantization::int16 && is_matrix(parameter)) return round_to_int16(parameter, begin, to);
    if (quantization_ == Quantization::bfloat16 || quantization_ == Quantization::int8_bfloat16) {
      for (float& value : to) value = f32_from_bf16(bf16_from_f32(value));
    } else if (quantization_ == Quantization::float16 || quantization_ == Quantization::int8_float16) {
      for (float& value : to) value = f32_from_f16(f16_from_f32(value));
    }
  }
  [[nodiscard]] bool is_int8(const spec::Parameter& parameter) const {
    constexpr std::array types{Quantization::int8, Quantization::int8_float32, Quantization::int8_float16,
                               Quantization::int8_bfloat16};
    return std::ranges::count(types, quantization_) > 0 && is_matrix(parameter);
  }

 private:
  static bool is_matrix(const spec::Parameter& parameter) {
    return parameter.shape.size() == 2 && parameter.role != spec::Role::position_table &&
           parameter.role != spec::Role::relative_bias;
  }

  void read_int8(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const {
    const std::int64_t columns = parameter.shape[1], first = begin / columns;
    const std::int64_t end = (begin + std::ssize(to) + columns - 1) / columns;
    std::vector<float> values(static_cast<std::size_t>((end - first) * columns));
    model_.weights->read(parameter, first * columns, values);
    const Int8Rows rows = as_int8_rows(values, static_cast<std::size_t>(end - first));
    for (std::size_t i = 0; i < to.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(begin - first * columns) + i;
      float scale = 0;
      std::memcpy(&scale, rows.scales.data() + at / static_cast<std::size_t>(columns) * sizeof scale, sizeof scale);
      to[i] = static_cast<float>(std::bit_cast<std::int8_t>(rows.codes[at])) / scale;
    }
  }

  /// int16 has one scale for each variable of the file: gate and up are two.
  void round_to_int16(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const {
    const bool is_gated = !parameter.parts.empty() && parameter.parts.back().name == "up";
    const std::int64_t columns = parameter.shape[1];
    const std::int64_t rows = parameter.is_by_id() ? model_.tokenizer.vocabulary().pieces : parameter.shape[0];
    const std::int64_t border = is_gated ? parameter.parts.front().rows : rows;
    auto found = int16_scales_.find(parameter.name);
    if (found == int16_scales_.end())
      found = int16_scales_
                  .emplace(parameter.name, std::array{int16_scale(parameter, 0, border * columns),
                                                      int16_scale(parameter, border * columns, rows * columns)})
                  .first;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const float scale = found->second[begin + static_cast<std::int64_t>(i) < border * columns ? 0 : 1];
      to[i] = (std::nearbyint(to[i] * scale) + 0.0F) / scale;  // integers have no -0
    }
  }
  [[nodiscard]] float int16_scale(const spec::Parameter& parameter, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t piece = 1 << 20;
    float largest = 0;
    for (; begin < end; begin += piece) {
      std::vector<float> values(static_cast<std::size_t>(std::min(piece, end - begin)));
      model_.weights->read(parameter, begin, values);
      for (const float value : values) largest = std::max(largest, std::abs(value));
    }
    return largest == 0 ? 1 : 1024 / largest;
  }

  const model::StoredModel& model_;
  const Quantization quantization_;
  mutable std::map<std::string, std::array<float, 2>> int16_scales_;
};

/// In steps of a row: a code is at most half a step from what it stands for, and fp32 rounds the product with the scale
/// and the quotient, which have up to 127 steps.
constexpr float half_a_step = 0.5F + 2 * 127 * 0x1p-24F;

/// The model of a folder next to the one that it was written from.
class Comparison {
 public:
  /// `read` is what a reader makes of the folder.
  Comparison(const Path& target, const model::StoredModel& wanted, model::StoredModel read, Quantization quantization)
      : target_(target), wanted_(wanted), read_(std::move(read)), rounded_(wanted, quantization) {
    if (read_.tokenizer.digest() != wanted_.tokenizer.digest())
      differs(target_, "the tokenizer", wanted_.tokenizer.digest().hex(), read_.tokenizer.digest().hex());
    // Other programs do not have our padding.
    read_.config.vocab_multiple = wanted_.config.vocab_multiple;
    read_.config.token_ids = wanted_.config.token_ids;  // CTranslate2 has no pad
    read_.config.vocab_size = wanted_.config.vocab_size;
    read_.spec = spec::resolve(read_.config, wanted_.tokenizer.vocabulary().pieces);
  }

  /// The parameters of one of `parts` callers. Returns the number of all.
  std::int64_t compare_parameters(int part, int parts) const {
    std::int64_t number = 0;
    std::set<std::string> names;
    for (std::size_t u = 0; u < wanted_.spec.units.size(); ++u) {
      for (const spec::Parameter& parameter : wanted_.spec.units[u].parameters) {
        if (u >= read_.spec.units.size() || !has(read_.spec.units[u], parameter))
          differs(target_, parameter.name, "a parameter of that shape", "none");
        if (number++ % parts == part) compare(parameter);
      }
    }
    std::int64_t others = 0;
    for (const spec::Unit& unit : read_.spec.units) others += std::ssize(unit.parameters);
    if (others != number)
      differs(target_, "the number of parameters", fmt::format("{}", number), fmt::format("{}", others));
    return number;
  }

  void compare_passes(const model::Forward& forward) const {
    const std::vector<model::Example> examples = fixed_examples(wanted_.spec.architecture);
    const auto wanted = forward(wanted_.spec, rounded_, examples);
    const auto got = forward(read_.spec, *read_.weights, examples);
    for (std::size_t i = 0; i < examples.size(); ++i) {
      if (wanted[i] == got[i]) continue;
      differs(target_,
              fmt::format("the loss of a forward pass on fixed ids (text {}, all of whose values count)", i + 1),
              fmt::format("{:.17g}", wanted[i].nll), fmt::format("{:.17g}", got[i].nll));
    }
  }

 private:
  static bool has(const spec::Unit& unit, const spec::Parameter& parameter) {
    return std::ranges::any_of(unit.parameters, [&](const spec::Parameter& other) {
      return other.name == parameter.name && other.shape == parameter.shape;
    });
  }

  void compare(const spec::Parameter& parameter) const {
    // Rows of dead ids are not kept.
    const std::int64_t rows = parameter.is_by_id()      ? wanted_.tokenizer.vocabulary().pieces
                              : parameter.shape.empty() ? 1
                                                        : parameter.shape[0];
    const std::int64_t columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
    const std::int64_t together = std::max<std::int64_t>(1, (1 << 20) / columns);
    for (std::int64_t row = 0; row < rows; row += together) {
      const auto count = static_cast<std::size_t>(std::min(together, rows - row) * columns);
      std::vector<float> wanted(count), got(count);
      rounded_.read(parameter, row * columns, wanted);
      read_.weights->read(parameter, row * columns, got);
      for (std::size_t i = 0; i < count; ++i) {
        if (std::bit_cast<std::uint32_t>(wanted[i]) != std::bit_cast<std::uint32_t>(got[i]))
          other(parameter, row, i, wanted[i], got[i]);
      }
      if (rounded_.is_int8(parameter)) compare_steps(parameter, row, got);
    }
  }

  void compare_steps(const spec::Parameter& parameter, std::int64_t row, const std::vector<float>& got) const {
    const auto columns = static_cast<std::size_t>(parameter.shape[1]);
    std::vector<float> exact(got.size());
    wanted_.weights->read(parameter, row * parameter.shape[1], exact);
    for (std::size_t begin = 0; begin < got.size(); begin += columns) {
      float largest = 0;
      for (std::size_t c = 0; c < columns; ++c) largest = std::max(largest, std::abs(exact[begin + c]));
      for (std::size_t i = begin; i < begin + columns; ++i) {
        if (!(std::abs(exact[i] - got[i]) <= half_a_step * largest / 127)) other(parameter, row, i, exact[i], got[i]);
      }
    }
  }

  [[noreturn]] void other(const spec::Parameter& parameter, std::int64_t row, std::size_t i, float wanted,
                          float got) const {
    const std::int64_t columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
    differs(target_, fmt::format("element {} of {}", row * columns + static_cast<std::int64_t>(i), parameter.name),
            fmt::format("{}", wanted), fmt::format("{}", got));
  }

  const Path target_;
  const model::StoredModel& wanted_;
  model::StoredModel read_;
  Rounded rounded_;
};

/// Every file is in SHA256SUMS and has its digest. Rank 0.
void check_sums(const Files& files, const OutputFolder& output) {
  std::istringstream lines{files.read_text(output.path() / "SHA256SUMS")};
  std::set<std::string> unlisted;
  for (std::string& name : files.list(output.path())) unlisted.insert(std::move(name));
  unlisted.erase("SHA256SUMS");
  for (std::string sum, name; lines >> sum >> name;) {
    if (unlisted.erase(name) == 0) differs(output.target(), "SHA256SUMS", "a list of the files", "one with " + name);
    const std::string got = sha256_of(files, output.path() / name);
    if (got != sum) differs(output.target(), "the SHA-256 of " + name, sum, got);
  }
  if (!unlisted.empty()) differs(output.target(), *unlisted.begin(), "in SHA256SUMS", "not");
}

/// Reads what was just written. That a reader refuses it is damage, whatever it says.
template <class Read>
auto read_back(const OutputFolder& output, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.fault() != Fault::data && error.fault() != Fault::usage && error.fault() != Fault::config) throw;
    std::string problem = error.problem();
    const std::string temporary = output.path().string(), name = output.target().string();
    for (std::size_t at = 0; (at = problem.find(temporary, at)) != std::string::npos; at += name.size())
      problem.replace(at, temporary.size(), name);
    throw_claim(Fault::corrupt, "what was written cannot be read back: " + problem, name, "a folder that can be read",
                problem, damage_remedy);
  }
}

/// Both comparisons of a folder of another program. **Collective.**
std::int64_t verify_folder(comm::Context& context, const OutputFolder& output, const std::vector<Tensor>& tensors,
                           const ReadTensor& read, const model::StoredModel& model, const ExportOptions& options,
                           const std::function<model::StoredModel()>& import) {
  const comm::Communicator& world = context.world;
  comm::at_root(world, [&] { check_sums(context.files, output); });
  compare_tensors(world, output.target(), tensors, read);
  std::optional<Comparison> comparison;
  comm::agree(world, [&] {
    comparison.emplace(output.target(), model, read_back(output, import), options.quantization);
    comparison->compare_parameters(world.rank(), world.size());
  });
  comm::at_root(world, [&] { comparison->compare_passes(options.verify_with); });
  return std::ssize(tensors);
}

}  // namespace

std::optional<std::int64_t> verify_hugging_face(comm::Context& context, const OutputFolder& output,
                                                const std::vector<Tensor>& tensors, const model::StoredModel& model,
                                                const ExportOptions& options) {
  if (!options.verify_with) return std::nullopt;
  std::optional<Safetensors> file;
  comm::agree(context.world, [&] {
    file.emplace(read_back(output, [&] { return Safetensors{context.files, output.path()}; }));
  });
  const ReadTensor read = [&](const Tensor& wanted) -> std::vector<std::byte> {
    const auto found = file->tensors().find(wanted.name);
    const std::string_view type = wanted.dtype == DType::f32 ? "F32" : wanted.dtype == DType::f16 ? "F16" : "BF16";
    if (found == file->tensors().end() || found->second.shape != wanted.shape || found->second.type != type) return {};
    std::vector<float> values(static_cast<std::size_t>(found->second.elements()));
    file->read(wanted.name, 0, values);
    return as_floats(values, wanted.dtype, wanted.name);
  };
  return verify_folder(context, output, tensors, read, model, options,
                       [&] { return hugging_face_model(context.files, output.path()); });
}

std::optional<std::int64_t> verify_ctranslate2(comm::Context& context, const OutputFolder& output, const ModelBin& bin,
                                               const model::StoredModel& model, const ExportOptions& options) {
  if (!options.verify_with) return std::nullopt;
  std::optional<ModelBinFile> file;
  comm::agree(context.world, [&] {
    file.emplace(read_back(output, [&] { return ModelBinFile{context.files, output.path() / "model.bin"}; }));
  });
  const ReadTensor read = [&](const Tensor& wanted) -> std::vector<std::byte> {
    const ModelBinFile::Variable* const found = file->find(wanted.name);
    if (found == nullptr || found->shape != wanted.shape || found->dtype != wanted.dtype) return {};
    return file->bytes(*found);
  };
  return verify_folder(context, output, bin.variables, read, model, options,
                       [&] { return ctranslate2_model(context.files, output.path(), Integers::read); });
}

std::optional<std::int64_t> verify_checkpoint(comm::Context& context, const Path& made, const Path& target,
                                              const model::StoredModel& model, const ExportOptions& options) {
  if (!options.verify_with) return std::nullopt;
  auto reader = std::make_unique<checkpoint::Reader>(context.files, made);
  (void)reader->verify();
  const Comparison comparison{target, model, model::stored_model(std::move(reader)), Quantization::float32};
  const std::int64_t tensors = comparison.compare_parameters(0, 1);
  comparison.compare_passes(options.verify_with);
  return tensors;
}

std::vector<model::Example> fixed_examples(const spec::Architecture& shape) {
  constexpr std::int64_t step = 7919;  // a prime, which few vocabularies divide
  const spec::Vocabulary& vocabulary = shape.vocabulary;
  std::vector<model::Example> examples;
  std::int64_t id = 0;
  const auto ids = [&](std::int64_t count) {
    std::vector<std::int32_t> drawn;
    for (; std::ssize(drawn) < count; id += step) drawn.push_back(narrow<std::int32_t>(id % vocabulary.pieces));
    return drawn;
  };
  for (const std::int64_t length : {24, 5, 11}) {
    model::Example example;
    const std::int64_t fits = std::min(length, shape.max_positions);
    if (shape.type == spec::ModelType::encoder_decoder) {
      example.source = ids(fits - 1);
      example.source.push_back(narrow<std::int32_t>(vocabulary.eos));
    }
    example.target = ids(fits);
    examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace argosy::interchange
