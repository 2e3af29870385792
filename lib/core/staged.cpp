#include "core/staged.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/random.hpp"

namespace argosy {
namespace {

constexpr std::string_view staged_mark = ".tmp-";
constexpr char separator = '@';

/// Host names and job numbers as they may stand in a file name: no separators, and not so long that the name is.
std::string word_of(std::string_view text, std::size_t limit) {
  std::string word{text.substr(0, limit)};
  std::replace(word.begin(), word.end(), '/', '_');
  std::replace(word.begin(), word.end(), separator, '_');
  return word;
}
std::string host_word(const Owner& owner) { return word_of(owner.host, 64); }
std::string job_word(const Owner& owner) { return word_of(owner.slurm_job, 20); }

/// The owner whom a staged folder's name tells; nullopt when it tells none.
std::optional<Owner> owner_in(std::string_view name) {
  if (!name.starts_with(staged_mark)) return std::nullopt;
  Owner owner;
  const auto take_last = [&]<class T>(T& out) {
    const std::size_t at = name.rfind(separator);
    if (at == std::string_view::npos) return false;
    const std::string_view word = name.substr(at + 1);
    name = name.substr(0, at);
    std::optional<T> value;
    if constexpr (std::is_arithmetic_v<T>) {
      value = number_in<T>(word);
    } else {
      value = word;
    }
    if (value) out = *value;
    return value.has_value();
  };
  constexpr std::size_t nonce_digits = 8;
  const bool whole = take_last(owner.host) && take_last(owner.boot_id) && take_last(owner.slurm_restart) &&
                     take_last(owner.slurm_job) && take_last(owner.pid_namespace) && take_last(owner.start_time) &&
                     take_last(owner.pid);
  if (!whole || owner.pid < 1 || owner.pid > std::numeric_limits<int>::max()) return std::nullopt;
  const std::size_t dash = name.rfind('-');
  return is_hex(name.substr(dash + 1), nonce_digits) ? std::optional{owner} : std::nullopt;
}

}  // namespace

Path folder_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : Path{"."}; }

StagedFolder::StagedFolder(const Files& files, Path target, std::string_view nonce)
    : files_(files), target_(std::move(target)) {
  constexpr std::size_t shown_bytes = 40;  // for people
  path_ = target_.parent_path() /
          fmt::format("{}{}-{}", staged_mark, cut_name(target_.filename().string(), shown_bytes), nonce);
}

void StagedFolder::make() const {
  files_.make_folders(folder_of(target_));
  files_.make_folder(path_);
}

void StagedFolder::add(const std::string& name, std::string_view content) const {
  File file = files_.create(path_ / name);
  file.write_at(as_bytes(content), 0);
  file.sync();
  file.close();
}

bool StagedFolder::commit() const {
  const auto before = files_.stat(path_);
  // NFS may deny a rename that it has done.
  const auto is_done = [&] {
    const auto now = files_.stat(target_);
    return before && now && now->inode == before->inode && !files_.stat(path_);
  };
  bool renamed = false;
  try {
    renamed = files_.rename_noreplace(path_, target_);
  } catch (const Error&) {
    if (!is_done()) throw;
    renamed = true;
  }
  if (!renamed && !is_done()) return false;
  files_.sync_folder(target_.parent_path());
  return true;
}

void StagedFolder::discard() const noexcept {
  try {
    files_.remove_tree(path_);
  } catch (const Error&) {  // the name says what it is: the next owner, or the next tool here, removes it
  }
}

std::string owned_nonce(const Owner& owner) {
  constexpr char at = separator;
  return fmt::format("{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}", random_hex(8), at, owner.pid, at, owner.start_time, at,
                     owner.pid_namespace, at, job_word(owner), at, owner.slurm_restart, at, word_of(owner.boot_id, 40),
                     at, host_word(owner));
}

void sweep_staged_folders(const Files& files, const Log& log, const Path& folder, const Owner& self) {
  const Path here = folder.empty() ? Path{"."} : folder;
  Owner me = self;
  me.host = host_word(self);
  me.slurm_job = job_word(self);
  try {
    if (!files.exists(here)) return;
    for (const std::string& name : files.list(here)) {
      const std::optional<Owner> owner = owner_in(name);
      if (!owner || !owner->is_gone(files, me)) continue;
      files.remove_tree(here / name);
      log.warn("removed {}, left by a job that was killed", (here / name).string());
    }
  } catch (const Error& error) {
    log.warn("{}", error.what());
  }
}

OutputFile::OutputFile(const Files& files, Path path)
    : files_(files),
      path_(files.follow_links(path)),
      partial_(path_.parent_path() / partial_name(path_.filename().string())) {
  const auto facts = files_.stat(path_);
  if (facts && !facts->is_regular)
    throw_error(Fault::usage, path.string(), "a regular file",
                facts->is_directory ? "a folder" : "a pipe, a socket or a device",
                "choose a regular file or a new name");
  file_ = files_.create(partial_);
}

OutputFile::~OutputFile() {
  if (!committed_) files_.os().unlink(partial_.c_str());
}

void OutputFile::commit() {
  file_.sync();
  file_.close();
  files_.rename(partial_, path_);
  committed_ = true;
  files_.sync_folder(path_.parent_path());
}

}  // namespace argosy
