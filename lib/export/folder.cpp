#include "export/folder.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "core/error.hpp"

namespace argosy::exports {
namespace {

std::string sha256_of(const Files& files, const Path& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
  const Mapping mapping = files.map(path);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  const bool good = hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1 &&
                    EVP_DigestUpdate(hash.get(), mapping.bytes().data(), mapping.bytes().size()) == 1 &&
                    EVP_DigestFinal_ex(hash.get(), digest.data(), &size) == 1;
  ARGOSY_CHECK(good, "SHA-256 of {}", path.string());
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace

OutputFolder::OutputFolder(comm::Context& context, Path final_path)
    : context_(context), final_path_(std::move(final_path)) {
  if (!final_path_.has_filename()) final_path_ = final_path_.parent_path();  // "out/" → "out"
  path_ = final_path_.parent_path() / (".tmp-" + final_path_.filename().string());
  comm::agree(context_.world, [&] {
    if (!context_.is_root()) return;
    if (context_.files.exists(final_path_)) {
      throw Error{Fault::usage,
                  {.wanted = "a folder that does not exist yet",
                   .got = "one that does",
                   .where = final_path_.string(),
                   .remedy = "choose another --out, or remove it"}};
    }
    context_.files.make_folders(final_path_.has_parent_path() ? final_path_.parent_path() : Path{"."});
    context_.files.remove_tree(path_);
    context_.files.make_folder(path_);
  });
}

OutputFolder::~OutputFolder() {
  if (committed_ || !context_.is_root()) return;
  try {
    context_.files.remove_tree(path_);
  } catch (const Error& error) {
    context_.log.warn("could not remove {}: {}", path_.string(), error.what());
  }
}

void OutputFolder::write(const std::string& name, std::string_view content) {
  comm::agree(context_.world, [&] {
    if (!context_.is_root()) return;
    File file = context_.files.create(path_ / name);
    file.write_at(argosy::as_bytes(content), 0);
    file.sync();
    file.close();
  });
}

void OutputFolder::commit() {
  std::string sums;
  comm::agree(context_.world, [&] {
    if (!context_.is_root()) return;
    for (const std::string& name : context_.files.list(path_)) {
      sums += fmt::format("{}  {}\n", sha256_of(context_.files, path_ / name), name);
    }
  });
  write("SHA256SUMS", sums);
  comm::agree(context_.world, [&] {
    if (!context_.is_root()) return;
    context_.files.sync_folder(path_);
    if (!context_.files.rename_noreplace(path_, final_path_)) {
      throw Error{Fault::usage,
                  {.wanted = "a folder that does not exist yet",
                   .got = "one made meanwhile",
                   .where = final_path_.string(),
                   .remedy = "choose another --out"}};
    }
    context_.files.sync_folder(final_path_.has_parent_path() ? final_path_.parent_path() : Path{"."});
  });
  committed_ = true;
}

}  // namespace argosy::exports
