#include "checkpoint/staging.hpp"

#include <random>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace argosy::checkpoint {

Staging::Staging(const Files& files, Path target, const std::string& nonce)
    : files_(files),
      target_(std::move(target)),
      folder_(target_.parent_path() / fmt::format(".tmp-{}-{}", target_.filename().string(), nonce)) {}

void Staging::open(std::uint64_t needed_bytes, int world) const {
  const Path parent = target_.parent_path().empty() ? Path{"."} : target_.parent_path();
  files_.make_folders(parent);
  const std::uint64_t wanted = needed_bytes + needed_bytes / 20, free = files_.free_bytes(parent);
  if (free < wanted) {
    throw Error{Fault::io,
                {.wanted = fmt::format("{} bytes of free space", wanted),
                 .got = fmt::format("{}", free),
                 .where = parent.string(),
                 .remedy = "free some space, keep fewer checkpoints, or choose another folder"}};
  }
  files_.make_folder(folder_);
  std::set<Path> folders;
  for (int rank = 0; rank < world; ++rank) folders.insert((folder_ / shard_name(rank, world)).parent_path());
  folders.erase(folder_);
  for (const Path& folder : folders) files_.make_folder(folder);
}

void Staging::commit(Manifest manifest, std::span<const Attachment> attachments,
                     const std::function<void()>& last_check) const {
  for (const Attachment& attachment : attachments) {
    File file = files_.create(folder_ / attachment.name);
    file.write_at(as_bytes(attachment.content), 0);
    file.sync();
    file.close();
    manifest.files.push_back(
        {attachment.name, attachment.content.size(), digest_of(std::string_view{attachment.content})});
  }
  std::set<Path> folders;
  for (const Manifest::Shard& shard : manifest.shards) folders.insert((folder_ / shard.file).parent_path());
  folders.erase(folder_);
  for (const Path& folder : folders) files_.sync_folder(folder);
  const std::string text = text_of(manifest);
  files_.write_atomically(folder_ / manifest_name, text);  // syncs the folder as well
  last_check();
  bool renamed = false;
  try {
    renamed = files_.rename_noreplace(folder_, target_);
  } catch (const Error&) {
    if (!is_committed(text)) throw;  // NFS may deny a rename that it has done
    renamed = true;
  }
  if (!renamed && !is_committed(text)) {
    throw Error{Fault::io,
                {.wanted = "to commit a new checkpoint",
                 .got = "one of that name is there already",
                 .where = target_.string(),
                 .remedy = "move it away or choose another folder"}};
  }
  files_.sync_folder(target_.parent_path());
}

bool Staging::is_committed(const std::string& manifest_text) const {
  try {
    return files_.read_text(target_ / manifest_name, manifest_limit_bytes) == manifest_text;
  } catch (const Error&) {
    return false;
  }
}

void Staging::discard() const noexcept {
  try {
    files_.remove_tree(folder_);
  } catch (const Error&) {  // the folder's name says what it is: the next owner of the run removes it
  }
}

void sweep(const Files& files, const Path& folder) {
  if (!files.exists(folder)) return;
  for (const std::string& name : files.list(folder)) {
    if (name.starts_with(".tmp-") || name.starts_with(".del-")) files.remove_tree(folder / name);
  }
}

std::string random_hex(int digits) {
  std::random_device random;
  std::string text;
  while (static_cast<int>(text.size()) < digits) text += fmt::format("{:08x}", random());
  text.resize(static_cast<std::size_t>(digits));
  return text;
}

}  // namespace argosy::checkpoint
