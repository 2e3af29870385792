#include "interchange/hf_import.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <set>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/hf_config.hpp"
#include "interchange/safetensors.hpp"
#include "interchange/table_tokenizer.hpp"

namespace argosy::interchange {
namespace {

constexpr const char* config_file = "config.json";

/// Calls visit(begin, count) for pieces of `elements` that fit a buffer.
template <class F>
void by_pieces(std::int64_t elements, F&& visit) {
  constexpr std::int64_t piece = 1 << 20;
  for (std::int64_t begin = 0; begin < elements; begin += piece) visit(begin, std::min(piece, elements - begin));
}

bool equal_values(const Safetensors& tensors, const std::string& a, const std::string& b) {
  bool equal = true;
  by_pieces(tensors.tensors().find(a)->second.elements(), [&](std::int64_t begin, std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count)), y(x.size());
    tensors.read(a, begin, x);
    tensors.read(b, begin, y);
    equal = equal && x == y;
  });
  return equal;
}

/// Whether a table of positions is the one that is computed.
bool is_sinusoidal(const Safetensors& tensors, const std::string& name, std::int64_t width) {
  const Safetensors::Entry& entry = tensors.tensors().find(name)->second;
  if (entry.shape.size() != 2 || entry.shape[1] != width) return false;
  std::vector<float> got(static_cast<std::size_t>(entry.elements()));
  tensors.read(name, 0, got);
  return equal_as(entry.type == "F32" ? DType::f32 : DType::bf16, got, sinusoids(entry.shape[0], width));
}

/// The weights of a folder by our names.
class HfWeights final : public model::WeightSource {
 public:
  HfWeights(Safetensors tensors, const spec::ModelSpec& spec, Family family, const std::string& where)
      : tensors_(std::move(tensors)) {
    const bool tied = spec.architecture.tie_embeddings;
    std::vector<std::string> problems;
    std::set<std::string> used;
    for (const Mapped& mapped : mapped_tensors(spec, family)) {
      const std::string name = spec.architecture.tie_inputs ? present_name(mapped.name, family, tied) : mapped.name;
      used.insert(name);
      const auto found = tensors_.tensors().find(name);
      if (found == tensors_.tensors().end()) {
        problems.push_back("missing " + name);
      } else if (found->second.shape != mapped.shape()) {
        problems.push_back(fmt::format("{} of shape {} instead of {}", name, spec::text_of(found->second.shape),
                                       spec::text_of(mapped.shape())));
      }
      sources_[mapped.parameter->name].push_back(
          {name, mapped.begin * mapped.columns(), mapped.rows * mapped.columns()});
    }
    for (const auto& [name, entry] : tensors_.tensors()) {
      if (!used.contains(name) && !is_known_copy(name, spec, family, tied, used, problems))
        problems.push_back("unexpected " + name);
    }
    if (problems.empty()) return;
    constexpr std::size_t most = 12;
    const std::size_t all = problems.size();
    if (all > most) problems.resize(most);
    throw_claim(
        Fault::data,
        fmt::format("{}: the tensors are not those of the {} that config.json describes: {}{}", where, class_of(family),
                    fmt::join(problems, "; "), all > most ? fmt::format("; and {} more", all - most) : ""),
        where, "the tensors of config.json's model", problems.front(),
        "get the folder again, or save it again with save_pretrained()");
  }

  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    // Rows that only our padding has: dead ids.
    std::ranges::fill(to, parameter.role == spec::Role::head_bias ? -1e4F : 0.0F);
    read_ranges(tensors_, sources_.at(parameter.name), begin, to);
  }

 private:
  /// Of a tied matrix, the first of its names that the folder has; any other name as it is.
  [[nodiscard]] std::string present_name(const std::string& name, Family family, bool tied) const {
    std::vector<std::string> names = names_of_tied_matrix(family);
    if (!tied) names.pop_back();  // the output has its own
    if (name != names.front()) return name;
    const auto found =
        std::ranges::find_if(names, [&](const std::string& other) { return tensors_.tensors().contains(other); });
    return found == names.end() ? name : *found;
  }

  /// Whether a tensor repeats what others or the configuration say. If it is one that should but does not, this is a
  /// problem.
  bool is_known_copy(const std::string& name, const spec::ModelSpec& spec, Family family, bool tied,
                     const std::set<std::string>& used, std::vector<std::string>& problems) const {
    const spec::Architecture& shape = spec.architecture;
    const Safetensors::Entry& entry = tensors_.tensors().find(name)->second;
    if (name.ends_with(".rotary_emb.inv_freq")) return true;  // of old versions; computed
    std::vector<std::string> copies = names_of_tied_matrix(family);
    if (!shape.tie_inputs)
      std::erase_if(copies, [](const std::string& copy) { return copy == "model.encoder.embed_tokens.weight"; });
    const bool is_input = shape.tie_inputs && name != "lm_head.weight";
    if ((tied || is_input) && std::ranges::count(copies, name) > 0) {
      const auto original =
          std::ranges::find_if(copies, [&](const std::string& other) { return used.contains(other); });
      const Safetensors::Entry& of = tensors_.tensors().find(*original)->second;
      if (of.shape != entry.shape || !equal_values(tensors_, *original, name))
        problems.push_back(
            fmt::format("{} and {} differ, though config.json says that they are tied", *original, name));
      return true;
    }
    if (has_positions(family) && (name == name_of_positions(true) || name == name_of_positions(false)))
      return true;  // sinusoids, else it would be learned
    // An untied Pegasus has it and does not use it.
    return family == Family::pegasus && name == copies.front();
  }

  Safetensors tensors_;
  std::map<std::string, std::vector<ParameterRange>> sources_;  // by parameter
};

/// The type of all tensors, or else fp32.
DType type_of_all(const Safetensors& tensors) {
  for (const auto& [name, type] : {std::pair{"BF16", DType::bf16}, {"F16", DType::f16}})
    if (std::ranges::all_of(tensors.tensors(), [&](const auto& each) { return each.second.type == name; })) return type;
  return DType::f32;
}

/// The multiple by which a vocabulary of `pieces` has `rows` rows: one of the usual ones, if possible.
std::int64_t multiple_for(spec::TokenLayout layout, std::int64_t pieces, std::int64_t rows) {
  for (const std::int64_t multiple : {64, 8, 128, 256, 1}) {
    if (spec::vocabulary_of({layout, multiple}, pieces).rows == rows) return multiple;
  }
  return rows;
}

/// Sets the keys of the model that depend on its tokenizer: its ids are those of the layout, or its own.
void set_vocabulary(HfDescription& description, const data::Tokenizer& tokenizer, const std::string& where) {
  spec::ModelConfig& model = description.model;
  const std::int64_t pieces = tokenizer.vocabulary().pieces, rows = description.rows;
  if (pieces > rows)
    throw_claim(Fault::data, fmt::format("{}: vocab_size is {}, and the tokenizer has {} pieces", where, rows, pieces),
                where, fmt::format("at least {} rows", pieces), std::to_string(rows),
                "use the tokenizer of this model");
  spec::TokenIds ids = description.ids;
  if (tokenizer.kind() == data::TokenizerKind::table && tokenizer.id_of("</s>") != ids.eos)
    throw_claim(Fault::data,
                fmt::format("{}: eos_token_id is {}, and </s> has the id {} in vocab.json", where, ids.eos,
                            *tokenizer.id_of("</s>")),
                where, "the id of </s>", std::to_string(ids.eos), "use the tokenizer of this model");
  ids.unk = tokenizer.unknown();
  // Qwen2's configuration names an id for beginnings that its tokenizer does not put there.
  if (!translates(description.family) && ids.bos && !tokenizer.puts_before(*ids.bos).value_or(true)) ids.bos.reset();
  const spec::TokenLayout layout = spec::vocabulary_rule(model).layout;
  const bool pad_is_last = has_output_bias(description.family), translation = translates(description.family);
  const std::int64_t multiple = pad_is_last ? multiple_for(layout, pieces, rows) : model.vocab_multiple;
  const spec::Vocabulary usual = spec::vocabulary_of({layout, multiple}, pieces);
  const bool has_usual_rows = pad_is_last ? usual.rows == rows && pieces < rows : pieces == rows;
  const bool has_usual_ids = usual.eos == ids.eos && usual.unk == ids.unk &&
                             (translation ? usual.pad == ids.pad && usual.start == ids.start : usual.bos == ids.bos);
  if (has_usual_rows && has_usual_ids) {
    model.vocab_multiple = multiple;
    return;
  }
  model.token_ids = ids;
  if (rows > pieces) model.vocab_size = rows;
}

}  // namespace

bool is_hugging_face(const Files& files, const Path& folder) {
  return files.exists(folder / config_file) && !files.exists(folder / "MANIFEST.json");
}

model::StoredModel hugging_face_model(const Files& files, const Path& folder) {
  const std::string where = (folder / config_file).string();
  const std::string text = files.read_text(folder / config_file, 16 << 20);
  boost::json::error_code error;
  const boost::json::value config = boost::json::parse(text, error);
  if (error || !config.is_object())
    throw_error(Fault::data, where, "a JSON object", error ? error.message() : "another value",
                "give a folder that save_pretrained() has written");
  HfDescription description = description_of(config.get_object(), where);
  spec::ModelConfig& model = description.model;
  data::Tokenizer tokenizer = read_folder_tokenizer(files, folder, description.family == Family::t5);
  set_vocabulary(description, tokenizer.side(data::Side::target), where);
  tokenizer.apply(spec::vocabulary_rule(model), folder.string());
  Safetensors tensors{files, folder};
  for (const bool encoder : {true, false}) {
    const std::string name = name_of_positions(encoder);
    if (has_positions(description.family) && tensors.tensors().contains(name) &&
        !is_sinusoidal(tensors, name, *model.width))
      (encoder ? model.encoder : model.decoder).position = spec::Position::learned;
  }
  spec::ModelSpec spec = spec::resolve(model, tokenizer.vocabulary().pieces);
  model::require_embeddings(Fault::data, tokenizer, spec.architecture, folder.string());
  const std::string id = Hasher{}.update(text).update(tensors.digest().hex()).digest().hex();
  const DType type = type_of_all(tensors);
  auto weights = std::make_unique<HfWeights>(std::move(tensors), spec, description.family, folder.string());
  model::StoredModel stored{model, std::move(spec), std::move(tokenizer), std::move(weights), folder.string(), id};
  stored.trained_in = type;
  return stored;
}

}  // namespace argosy::interchange
