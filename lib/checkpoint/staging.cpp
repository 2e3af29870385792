#include "checkpoint/staging.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/file_name.hpp"

namespace argosy::checkpoint {
namespace {

/// Whether a name is `.tmp-<step>-<nonce>` of a save or `.del-<step>-<nonce>` of a removal.
bool is_left_over(std::string_view name) {
  constexpr std::size_t mark_bytes = 5, step_digits = 9;
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash < mark_bytes) return false;
  const std::string_view mark = name.substr(0, mark_bytes), nonce = name.substr(dash + 1);
  return is_decimal(name.substr(mark_bytes, dash - mark_bytes), step_digits) &&
         ((mark == ".tmp-" && is_hex(nonce, save_nonce_digits)) || (mark == ".del-" && is_hex(nonce, removal_digits)));
}

}  // namespace

Staging::Staging(const Files& files, Path target, const std::string& nonce)
    : files_(files), staged_(files, std::move(target), nonce) {}

void Staging::open(std::uint64_t needed_bytes, int world) const {
  const Path parent = folder_of(staged_.target());
  files_.make_folders(parent);
  const std::uint64_t wanted = needed_bytes + needed_bytes / 20, free = files_.free_bytes(parent);
  if (free < wanted)
    throw_error(Fault::io, parent.string(), fmt::format("at least {} bytes of free space", wanted),
                fmt::format("{}", free), "free some space, keep fewer checkpoints, or choose another folder");
  staged_.make();
  for (const Path& folder : shard_folders(world)) files_.make_folder(folder);
}

std::set<Path> Staging::shard_folders(int world) const {
  std::set<Path> folders;
  for (int rank = 0; rank < world; ++rank) folders.insert((folder() / shard_name(rank, world)).parent_path());
  folders.erase(folder());
  return folders;
}

void Staging::commit(Manifest manifest, std::span<const Attachment> attachments,
                     const std::function<void()>& last_check, Fault taken) const {
  for (const Attachment& attachment : attachments) {
    staged_.add(attachment.name, attachment.content);
    manifest.files.push_back(
        {attachment.name, attachment.content.size(), digest_of(std::string_view{attachment.content})});
  }
  for (const Path& folder : shard_folders(manifest.world())) files_.sync_folder(folder);
  files_.write_atomically(folder() / manifest_name, text_of(manifest));  // syncs the folder as well
  last_check();
  if (!staged_.commit())
    throw_claim(taken, staged_.target().string() + " was created by another process during the save",
                staged_.target().string(), "a name that is free", "one that was taken during the save",
                "move it away, or choose another folder");
}

void sweep(const Files& files, const Path& folder) {
  if (!files.exists(folder)) return;
  for (const std::string& name : files.list(folder)) {
    if (is_left_over(name)) files.remove_tree(folder / name);
  }
}

}  // namespace argosy::checkpoint
