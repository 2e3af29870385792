/// The format hf: a Hugging Face folder with safetensors, config.json, generation_config.json and tokenizer files.
/// hf_family.hpp has the classes.
#include <boost/json.hpp>
#include <optional>
#include <set>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/formats.hpp"
#include "interchange/hf_config.hpp"
#include "interchange/hf_tokenizer.hpp"
#include "interchange/safetensors.hpp"
#include "interchange/table_tokenizer.hpp"
#include "interchange/verify.hpp"

namespace argosy::interchange {
namespace {

using boost::json::object;
using spec::Activation;
using spec::Architecture;

/// What a family's class needs of a model.
struct Need {
  bool met;
  const char *key, *wanted;
};

std::vector<Need> needs_of(const Architecture& shape, Family family) {
  using spec::Position;
  const bool whole_heads = shape.head_size * shape.heads == shape.width;
  const auto both = [&](auto&& is) { return is(shape.encoder_position) && is(shape.decoder_position); };
  const char* const positions = "model.encoder.position and model.decoder.position";
  const Need heads{shape.kv_heads == shape.heads, "model.kv_heads", "as many as model.heads"};
  if (!translates(family)) {
    return {
        {!shape.prefix_lm, "model.prefix_lm", "false"},
        {shape.norm == spec::Norm::rms_norm, "model.norm", "rms_norm"},
        {shape.norm_position == spec::NormPosition::pre, "model.norm_position", "pre"},
        {shape.activation == Activation::swiglu, "model.activation", "swiglu"},
        {shape.decoder_position == Position::rope, "model.decoder.position", "rope"},
        {!shape.scales_embeddings, "model.embedding_scale", "false"},
        {!shape.bias, "model.bias", "false"},
        {!shape.output_bias, "model.output_bias", "false"},
        {!shape.qkv_bias || !shape.window, "model.window", "absent, since model.qkv_bias is true"},
        {!shape.qkv_bias || whole_heads, "model.head_size", "model.width/model.heads, since model.qkv_bias is true"}};
  }
  if (family == Family::t5) {
    return {heads,
            {shape.tie_inputs, "model.tie_inputs", "true"},
            {!shape.scales_embeddings, "model.embedding_scale", "false"}};
  }
  std::vector<Need> needs{{shape.norm == spec::Norm::layer_norm, "model.norm", "layer_norm"},
                          {shape.bias, "model.bias", "true"},
                          {!spec::is_gated(shape.activation), "model.activation", "relu, swish or gelu"},
                          {shape.norm_epsilon == 1e-5, "model.norm_epsilon", "1e-5"},
                          {shape.scales_embeddings, "model.embedding_scale", "true"},
                          heads,
                          {whole_heads, "model.head_size", "model.width/model.heads"}};
  if (family == Family::m2m_100) {
    const bool fairseq = both([](Position position) { return position == Position::sinusoidal_fairseq; });
    needs.push_back({fairseq, positions, "sinusoidal_fairseq"});
    needs.push_back({!shape.output_bias, "model.output_bias", "false"});
    needs.push_back({shape.tie_embeddings, "model.tie_embeddings", "true"});
    // Its positions count from there.
    needs.push_back({shape.vocabulary.has_own_ids && shape.vocabulary.pad == 1, "model.token_ids.pad", "1"});
    return needs;
  }
  const auto is_table = [](Position position) {
    return position == Position::sinusoidal || position == Position::learned;
  };
  needs.push_back({both(is_table), positions, "sinusoidal or learned"});
  needs.push_back({shape.output_bias, "model.output_bias", "true"});
  needs.push_back({!shape.tie_inputs || shape.tie_embeddings, "model.tie_inputs", "absent"});
  needs.push_back({shape.vocabulary.pad.has_value(), "model.token_ids.pad", "an id"});
  return needs;
}

std::optional<Facts> hf_limit(const Architecture& shape) {
  const Family family = family_of(shape);
  const std::vector<Need> needs = needs_of(shape, family);
  for (const Need& need : needs) {
    if (need.met) continue;
    const std::string remedy = shape.prefix_lm ? "use --format argosy, or translate with Argosy" : "use --format ct2";
    return Facts{.sentence = fmt::format("--format hf writes {}, which needs {} to be {}; {}", class_of(family),
                                         need.key, need.wanted, remedy),
                 .wanted = need.wanted,
                 .got = "another value",
                 .where = need.key,
                 .remedy = remedy};
  }
  return std::nullopt;
}

DType type_of(Quantization quantization) {
  switch (quantization) {
    case Quantization::float32:
      return DType::f32;
    case Quantization::float16:
      return DType::f16;
    case Quantization::bfloat16:
      return DType::bf16;
    default:
      break;
  }
  throw_claim(Fault::usage, "--format hf has no integer weights", "--quantization", "float32, float16 or bfloat16",
              boost::describe::enum_to_string(quantization, ""), "choose one of these, or use --format ct2");
}

std::vector<Tensor> tensors_of(const model::StoredModel& model, Family family, DType dtype, std::int64_t& parameters) {
  const Architecture& shape = model.spec.architecture;
  std::vector<Tensor> tensors;
  std::set<std::pair<const spec::Parameter*, std::int64_t>> counted;
  for (const Mapped& mapped : mapped_tensors(model.spec, family)) {
    const std::int64_t begin = mapped.begin * mapped.columns();
    tensors.push_back(
        {mapped.name, dtype, mapped.shape(), [&model, mapped, begin, dtype](std::int64_t first, MutableBytes to) {
           fill_floats(model, *mapped.parameter, begin + first, dtype, mapped.name, to);
         }});
    if (counted.emplace(mapped.parameter, mapped.begin).second) parameters += mapped.rows * mapped.columns();
  }
  if (family == Family::pegasus) {  // which computes them as well, but reports them as missing
    for (const bool encoder : {true, false}) {
      if (shape.position(encoder) != spec::Position::sinusoidal) continue;
      const std::string name = name_of_positions(encoder);
      tensors.push_back({name,
                         dtype,
                         {shape.max_positions, shape.width},
                         [width = shape.width, dtype, name](std::int64_t first, MutableBytes to) {
                           const std::int64_t rows = std::ssize(to) / static_cast<std::int64_t>(size_of(dtype)) / width;
                           to_floats(sinusoids(rows, width, /*fairseq=*/false, first / width), dtype, name, to);
                         }});
    }
  }
  return tensors;
}

/// A tokenizer.json or a piece table is written as it is: what only the model has cannot be added to it.
void refuse_other_tokenizer(const data::Tokenizer& tokenizer, Family family) {
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  if (tokenizer.is_by_side()) {
    refuse_sides(tokenizer, "hf");
    if (family == Family::marian) return;
    throw_claim(Fault::data,
                fmt::format("--format hf writes {}, whose sides have one tokenizer, and this model has one for each",
                            class_of(family)),
                "the tokenizer", "one for both sides", "one for each", "use --format ct2");
  }
  const bool adds_pad = vocabulary.pad && vocabulary.is_dead(*vocabulary.pad);
  if (tokenizer.kind() == data::TokenizerKind::json && adds_pad)
    throw_claim(Fault::data,
                "--format hf needs a tokenizer with the piece <pad>, which this model's tokenizer.json has not",
                "tokenizer.json", "a piece for padding", "none",
                "train with a tokenizer.json that has one and name it in model.token_ids, or use --format ct2");
  if (tokenizer.kind() != data::TokenizerKind::table) return;
  const bool has_languages = !data::unpack(tokenizer.model_bytes(), "tokenizer.model").languages.empty();
  if (family != (has_languages ? Family::m2m_100 : Family::marian))
    throw_claim(Fault::data,
                fmt::format("--format hf writes {}, whose tokenizers have no table of ids, as this model's has",
                            class_of(family)),
                "the tokenizer", "a SentencePiece model or a tokenizer.json", "a table", "use --format ct2");
  if (adds_pad && *vocabulary.pad != vocabulary.pieces)
    throw_claim(
        Fault::data,
        fmt::format("the id of <pad> is {}, and {} in the tokenizer's table", *vocabulary.pad, vocabulary.pieces),
        "model.vocab_multiple", "1", "another multiple", "set model.vocab_multiple to 1, or use --format ct2");
}

/// The files of the tokenizer, and what its configuration says besides special pieces.
void write_tokenizer_files(OutputFolder& output, const data::Tokenizer& tokenizer, Family family, object& config) {
  const auto table_of = [](const data::Tokenizer& own) {
    object ids;
    for (std::int64_t id = 0; id < own.vocabulary().rows; ++id) ids[own.piece(id)] = id;
    return pretty(ids);
  };
  if (tokenizer.is_by_side()) {
    const data::Tokenizer &source = tokenizer.side(data::Side::source), &target = tokenizer.side(data::Side::target);
    config["tokenizer_class"] = "MarianTokenizer";
    config["source_lang"] = "source";
    config["target_lang"] = "target";
    config["separate_vocabs"] = true;
    write_table_tokenizer(
        output,
        {.source = source.model_bytes(), .target = target.model_bytes(), .table = table_of(source), .languages = {}});
    return output.write("target_vocab.json", table_of(target));
  }
  std::optional<data::TableParts> table;
  if (tokenizer.kind() == data::TokenizerKind::table) table = data::unpack(tokenizer.model_bytes(), "tokenizer.model");
  if (table && !table->languages.empty()) {
    config["tokenizer_class"] = "M2M100Tokenizer";
    config["language_codes"] = table->languages;
    return write_table_tokenizer(output, *table);
  }
  if (family == Family::marian && tokenizer.kind() != data::TokenizerKind::json) {
    config["tokenizer_class"] = "MarianTokenizer";
    config["source_lang"] = "source";
    config["target_lang"] = "target";
    config["separate_vocabs"] = false;
    if (table) return write_table_tokenizer(output, *table);
    return write_table_tokenizer(
        output, {.source = tokenizer.model_bytes(), .target = {}, .table = table_of(tokenizer), .languages = {}});
  }
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  // For this type transformers 5 takes Qwen2's own splitting of words, whatever tokenizer.json says, unless there is
  // an entry here.
  if (family == Family::qwen2) config["auto_map"] = object{{"AutoTokenizer", boost::json::array{nullptr, nullptr}}};
  config["clean_up_tokenization_spaces"] = false;
  if (tokenizer.kind() == data::TokenizerKind::json) return output.write("tokenizer.json", tokenizer.model_bytes());
  output.write("tokenizer.json",
               pretty(tokenizer_json(tokenizer, translates(family) ? Wrapping::eos_after : Wrapping::bos_before)));
  output.write("tokenizer.model", tokenizer.model_bytes());
}

void write_tokenizer(OutputFolder& output, const data::Tokenizer& tokenizer, const Architecture& shape, Family family) {
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const data::Tokenizer& target = tokenizer.side(data::Side::target);
  object special{{"eos_token", target.piece(vocabulary.eos)}};
  if (vocabulary.unk) special["unk_token"] = target.piece(*vocabulary.unk);
  if (vocabulary.pad) special["pad_token"] = target.piece(*vocabulary.pad);
  if (vocabulary.bos) special["bos_token"] = target.piece(*vocabulary.bos);
  object config = special;
  config["model_max_length"] = shape.max_positions;
  write_tokenizer_files(output, tokenizer, family, config);
  output.write("tokenizer_config.json", pretty(config));
  output.write("special_tokens_map.json", pretty(special));
}

ExportReport write_hf(comm::Context& context, const model::StoredModel& model, const Path& folder,
                      const ExportOptions& options) {
  const double begin_s = context.clock.monotonic_s();
  const Architecture& shape = model.spec.architecture;
  std::vector<Tensor> tensors;
  Family family{};
  DType dtype{};
  ExportReport report{.folder = folder};
  comm::agree(context.world, [&] {
    dtype = type_of(options.quantization);
    if (auto facts = hf_limit(shape)) throw Error{Fault::usage, std::move(*facts)};
    family = family_of(shape);
    for (const data::Side side : {data::Side::source, data::Side::target})
      (void)distinct_pieces(model.tokenizer.side(side));
    refuse_other_tokenizer(model.tokenizer, family);
    tensors = tensors_of(model, family, dtype, report.parameters);
  });
  OutputFolder output{context, folder};
  const Written written =
      write_safetensors(context.world, context.files, output.path(), tensors, options.max_shard_bytes);
  report.bytes = written.bytes;
  output.add_sums(written.sums);
  // Compact: pretty() writes 1.0 as 1, which transformers refuses where it wants a float.
  output.write("config.json", boost::json::serialize(hf_config(shape, family, dtype)) + "\n");
  output.write("generation_config.json", pretty(hf_generation_config(shape, family)));
  write_tokenizer(output, model.tokenizer, shape, family);
  for (const checkpoint::Attachment& file : model.attachments) output.write(file.name, file.content);
  output.commit([&] { report.verified = verify_hugging_face(context, output, tensors, model, options); });
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

}  // namespace

Format hugging_face() {
  return {"hf", "a Hugging Face folder (Llama, Mistral, Qwen2, Marian, Pegasus, M2M-100, T5) with safetensors",
          hf_limit, write_hf};
}

}  // namespace argosy::interchange
