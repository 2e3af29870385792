#include "checkpoint/staging.hpp"

#include <charconv>
#include <random>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace argosy::checkpoint {

namespace {

constexpr char owner_separator = '@';

/// The owner whom a staging folder's name tells; nullopt when it tells none.
std::optional<LockOwner> owner_in(std::string_view name) {
  LockOwner owner;
  std::string pid;
  for (std::string* field : {&owner.host, &owner.boot_id, &owner.start_time, &pid}) {
    const std::size_t at = name.rfind(owner_separator);
    if (at == std::string_view::npos) return std::nullopt;
    *field = name.substr(at + 1);
    name = name.substr(0, at);
  }
  const auto [end, error] = std::from_chars(pid.data(), pid.data() + pid.size(), owner.pid);
  const bool whole = error == std::errc{} && end == pid.data() + pid.size();
  return whole && name.starts_with(".tmp-") ? std::optional{owner} : std::nullopt;
}

}  // namespace

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

void Staging::add(const std::string& name, std::string_view content) const {
  File file = files_.create(folder_ / name);
  file.write_at(as_bytes(content), 0);
  file.sync();
  file.close();
}

void Staging::commit(Manifest manifest, std::span<const Attachment> attachments,
                     const std::function<void()>& last_check) const {
  for (const Attachment& attachment : attachments) {
    add(attachment.name, attachment.content);
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

std::string nonce_of(const LockOwner& owner) {
  constexpr char at = owner_separator;
  return fmt::format("{}{}{}{}{}{}{}{}{}", random_hex(8), at, owner.pid, at, owner.start_time, at, owner.boot_id, at,
                     owner.host);
}

std::vector<Path> sweep_dead(const Files& files, const Path& folder, const LockOwner& self) {
  std::vector<Path> removed;
  const Path here = folder.empty() ? Path{"."} : folder;
  if (!files.exists(here)) return removed;
  for (const std::string& name : files.list(here)) {
    const std::optional<LockOwner> owner = owner_in(name);
    if (!owner || !owner->is_gone(files, self)) continue;
    files.remove_tree(here / name);
    removed.push_back(here / name);
  }
  return removed;
}

std::string random_hex(int digits) {
  std::random_device random;
  std::string text;
  while (static_cast<int>(text.size()) < digits) text += fmt::format("{:08x}", random());
  text.resize(static_cast<std::size_t>(digits));
  return text;
}

}  // namespace argosy::checkpoint
