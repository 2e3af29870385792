#include "interchange/formats.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "config/config.hpp"
#include "interchange/convert.hpp"
#include "interchange/sha256.hpp"

namespace argosy::interchange {

Format argosy_checkpoint();
Format ctranslate2();
Format hugging_face();
Format peft();

namespace {

[[noreturn]] void refuse_folder(const Path& folder, const char* claim) {
  throw_claim(Fault::usage, fmt::format("{} {}", folder.string(), claim), folder.string(),
              "a folder that does not exist yet", claim, "remove it, or give another folder with --out");
}

}  // namespace

std::span<const Format> formats() {
  static const Format table[] = {ctranslate2(), hugging_face(), peft(), argosy_checkpoint()};
  return table;
}

const Format& format_named(std::string_view name) {
  const auto found = std::ranges::find(formats(), name, &Format::name);
  if (found != formats().end()) return *found;
  std::vector<std::string_view> names;
  for (const Format& format : formats()) names.push_back(format.name);
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  throw_claim(Fault::usage, fmt::format("--format {} is unknown", name), "--format",
              fmt::format("a known format ({})", known), std::string(name), "the formats are " + known);
}

std::vector<std::string> formats_for(const spec::Architecture& architecture) {
  std::vector<std::string> names;
  for (const Format& format : formats())
    if (!format.is_unlisted && !format.limit(architecture)) names.emplace_back(format.name);
  return names;
}

Quantization default_quantization(const Format& format, const model::StoredModel& model) {
  if (format.is_unlisted || model.trained_in == DType::f32) return Quantization::float32;
  return model.trained_in == DType::bf16 ? Quantization::bfloat16 : Quantization::float16;
}

void read_finite(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin,
                 std::span<float> to) {
  model.weights->read(parameter, begin, to);
  if (std::isfinite(largest_magnitude(to))) return;  // NaN has the largest bits
  const float value = *std::ranges::find_if_not(to, [](float v) { return std::isfinite(v); });
  throw_error(Fault::numeric, parameter.name, "finite weights", fmt::format("{}", value), "export another checkpoint");
}

void fill_floats(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin, DType dtype,
                 std::string_view name, MutableBytes to) {
  const std::size_t count = to.size() / size_of(dtype);
  if (dtype == DType::f32) return read_finite(model, parameter, begin, {reinterpret_cast<float*>(to.data()), count});
  const auto values = std::make_unique_for_overwrite<float[]>(count);
  const std::span<float> all{values.get(), count};
  read_finite(model, parameter, begin, all);
  to_floats(all, dtype, name, to);
}

std::vector<std::string> distinct_pieces(const data::Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  std::set<std::string> seen;
  for (std::int64_t id = 0; id < tokenizer.vocabulary().pieces; ++id) {
    std::string piece = tokenizer.piece(id);
    if (!seen.insert(piece).second) {
      throw_claim(Fault::data, fmt::format("tokenizer.model has the piece \"{}\" twice", piece), "tokenizer.model",
                  "a vocabulary in which each piece occurs once", fmt::format("\"{}\" twice", piece),
                  "train the tokenizer again");
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void refuse_sides(const data::Tokenizer& tokenizer, std::string_view format) {
  for (const auto& [side, own] : tokenizer.parts())
    if (own.kind() != data::TokenizerKind::sentence_piece)
      throw_claim(
          Fault::data,
          fmt::format("--format {} writes a tokenizer for each side where both are SentencePiece models", format),
          "the tokenizer of the " + side, "a SentencePiece model", "another", "use --format argosy");
}

std::string pretty(const boost::json::value& value) { return config::text_of(value) + "\n"; }

Path unused_folder(comm::Context& context, Path folder) {
  folder = folder.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/" → "out"
  comm::at_root(context.world, [&] {
    if (context.files.is_taken(folder)) refuse_folder(folder, "exists already");
  });
  return folder;
}

OutputFolder::OutputFolder(comm::Context& context, Path final_path) : context_(context) {
  final_path = unused_folder(context, std::move(final_path));
  std::string nonce;
  comm::at_root(context_.world, [&] {
    const Owner self = Owner::of_this_process(context_.files, context_.clock);
    sweep_staged_folders(context_.files, context_.log, final_path.parent_path(), self);
    nonce = owned_nonce(self);
  });
  staged_.emplace(context_.files, final_path, context_.world.broadcast(std::move(nonce)));
  comm::at_root(context_.world, [&] { staged_->make(); });
}

OutputFolder::~OutputFolder() {
  if (!committed_ && context_.is_root()) staged_->discard();
}

void OutputFolder::write(const std::string& name, std::string_view content) {
  comm::at_root(context_.world, [&] {
    staged_->add(name, content);
    sums_[name] = sha256_of(as_bytes(content));
  });
}

void OutputFolder::commit(const std::function<void()>& check) {
  std::string sums;
  comm::at_root(context_.world, [&] {
    for (const std::string& name : context_.files.list(path())) {
      const auto written = sums_.find(name);
      const std::string sum = written != sums_.end() ? written->second : sha256_of(context_.files, path() / name);
      sums += fmt::format("{}  {}\n", sum, name);
    }
  });
  write("SHA256SUMS", sums);
  check();
  comm::at_root(context_.world, [&] {
    context_.files.sync_folder(path());
    if (!staged_->commit()) refuse_folder(staged_->target(), "was created by another process during the export");
  });
  committed_ = true;
}

}  // namespace argosy::interchange
