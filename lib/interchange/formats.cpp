#include "interchange/formats.hpp"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "config/config.hpp"

namespace argosy::interchange {

Format argosy_checkpoint();
Format ctranslate2();
Format hugging_face();

namespace {

[[noreturn]] void refuse_folder(const Path& folder, const char* claim) {
  throw_claim(Fault::usage, fmt::format("{} {}", folder.string(), claim), folder.string(),
              "a folder that does not exist yet", claim, "remove it, or give another folder with --out");
}

}  // namespace

std::span<const Format> formats() {
  static const Format table[] = {ctranslate2(), hugging_face(), argosy_checkpoint()};
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
    if (!format.is_own && !format.limit(architecture)) names.emplace_back(format.name);
  return names;
}

void read_finite(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin,
                 std::span<float> to) {
  model.weights->read(parameter, begin, to);
  for (const float value : to) {
    if (!std::isfinite(value))
      throw_error(Fault::numeric, parameter.name, "finite weights", fmt::format("{}", value),
                  "export another checkpoint");
  }
}

std::vector<float> finite_rows(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin,
                               std::int64_t end) {
  const std::int64_t columns = parameter.numel() / parameter.shape.front();
  std::vector<float> rows(static_cast<std::size_t>((end - begin) * columns));
  read_finite(model, parameter, begin * columns, rows);
  return rows;
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

namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    ARGOSY_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256");
  }
  void update(Bytes bytes) {
    ARGOSY_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
  }
  [[nodiscard]] std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    ARGOSY_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1, "SHA-256");
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_of(Bytes bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of(const Files& files, const Path& path) {
  constexpr std::size_t piece_bytes = 4 << 20;  // a mapping would count as memory of the process
  std::vector<std::byte> buffer(piece_bytes);
  File file = files.open(path);
  Sha256 hash;
  while (const std::size_t size = file.read(buffer)) hash.update(Bytes{buffer}.first(size));
  return hash.hex();
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
