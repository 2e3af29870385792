#include "core/file.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/file_name.hpp"

namespace argosy {
namespace {

constexpr unsigned file_mode = 0666, folder_mode = 0777;  // the umask decides
constexpr std::size_t largest_transfer_bytes = std::size_t{1} << 30;

struct Remedy {
  std::array<int, 3> errors;
  const char* text;
};
constexpr Remedy remedies[] = {
    {{ENOSPC, EDQUOT}, "free some space or choose another folder"},
    {{EACCES, EPERM, EROFS}, "check the permissions or choose another place"},
    {{ENOENT}, "check the path"},
    {{ENOTDIR}, "a folder in the path is a file; correct the path"},
    {{ENAMETOOLONG}, "choose a shorter name"},
    {{ENXIO}, "it is a pipe or a socket; choose a regular file"},
    {{EEXIST, ENOTEMPTY}, "remove it or choose another name"},
    {{ELOOP}, "replace the symbolic link with the file itself"},
    {{EBADF}, "it is closed; redirect it to a file or a pipe"},
    {{EMFILE, ENFILE}, "raise the limit on open files (ulimit -n)"},
    {{EIO, ESTALE}, "check the disk and its mount, then rerun"},
};

std::string remedy_of(int error) {
  for (const Remedy& remedy : remedies)
    if (error != 0 && std::ranges::count(remedy.errors, error) > 0) return remedy.text;
  return "";
}

/// done: what was tried, as in "renamed to b".
[[noreturn]] void fail(Fault fault, std::string_view done, int error, const Path& path) {
  const char* name = strerrorname_np(error);
  const char* description = strerrordesc_np(error);
  std::string text = description != nullptr ? description : "unknown error";
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0)
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  text += fmt::format(" ({})", name != nullptr ? name : std::to_string(error));
  throw_claim(fault, fmt::format("{} cannot be {}: {}", path.string(), done, text), path.string(),
              fmt::format("it to be {}", done), text, remedy_of(error));
}

[[noreturn]] void fail_io(std::string_view done, const Path& path) { fail(Fault::io, done, errno, path); }

/// Repeats a system call that a signal has interrupted.
template <class Call>
auto repeat(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Calls `transfer(at, rest)` until `size_bytes` are through; returns how many were (fewer: a call returned 0).
template <class Transfer>
std::size_t transfer_all(std::size_t size_bytes, std::string_view done, const Path& path, Transfer&& transfer) {
  std::size_t at = 0;
  while (at < size_bytes) {
    const auto moved = repeat([&] { return transfer(at, std::min(size_bytes - at, largest_transfer_bytes)); });
    if (moved < 0) fail_io(done, path);
    if (moved == 0) break;
    at += static_cast<std::size_t>(moved);
  }
  return at;
}

FileStat facts_of(const struct stat& s) {
  constexpr std::int64_t giga = 1'000'000'000;
  return {.size_bytes = static_cast<std::uint64_t>(s.st_size),
          .device = s.st_dev,
          .inode = s.st_ino,
          .mtime_ns = s.st_mtim.tv_sec * giga + s.st_mtim.tv_nsec,
          .ctime_ns = s.st_ctim.tv_sec * giga + s.st_ctim.tv_nsec,
          .is_directory = S_ISDIR(s.st_mode),
          .is_regular = S_ISREG(s.st_mode)};
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

File::File(File&& other) noexcept : os_(other.os_), fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(os_, other.os_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) os_->close(fd_);
}

void File::read_at(MutableBytes to, std::uint64_t offset) const {
  const std::string done = fmt::format("read ({} bytes at offset {})", to.size(), offset);
  const std::size_t read = transfer_all(to.size(), done, path_, [&](std::size_t at, std::size_t size_bytes) {
    return os_->pread(fd_, to.data() + at, size_bytes, static_cast<std::int64_t>(offset + at));
  });
  if (read < to.size())
    throw_error(Fault::corrupt, path_.string(), fmt::format("at least {} bytes", offset + to.size()),
                fmt::format("{} bytes", offset + read), "the file was cut short; create it again");
}

std::size_t File::read(MutableBytes to) {
  return transfer_all(to.size(), "read", path_, [&](std::size_t at, std::size_t size_bytes) {
    return os_->read(fd_, to.data() + at, size_bytes);
  });
}

std::size_t File::read_some(MutableBytes to) {
  const std::int64_t got =
      repeat([&] { return os_->read(fd_, to.data(), std::min(to.size(), largest_transfer_bytes)); });
  if (got < 0) fail_io("read", path_);
  return static_cast<std::size_t>(got);
}

bool File::is_ready(int timeout_ms) const { return os_->poll_in(fd_, timeout_ms) != 0; }

void File::write_at(Bytes from, std::uint64_t offset) {
  const std::string done = fmt::format("written ({} bytes at offset {})", from.size(), offset);
  const std::size_t written = transfer_all(from.size(), done, path_, [&](std::size_t at, std::size_t size_bytes) {
    return os_->pwrite(fd_, from.data() + at, size_bytes, static_cast<std::int64_t>(offset + at));
  });
  if (written < from.size()) fail(Fault::io, done, EIO, path_);
}

void File::append(Bytes from) {
  const std::string done = fmt::format("written ({} bytes at its end)", from.size());
  std::size_t written = 0;
  try {
    const std::size_t all = transfer_all(from.size(), done, path_, [&](std::size_t at, std::size_t size_bytes) {
      written = at;
      return os_->write(fd_, from.data() + at, size_bytes);
    });
    if (all < from.size()) fail(Fault::io, done, EIO, path_);
  } catch (const Error&) {
    struct stat s {};
    if (written > 0 && os_->fstat(fd_, &s) == 0) os_->ftruncate(fd_, s.st_size - static_cast<std::int64_t>(written));
    throw;
  }
}

bool File::reserve(std::uint64_t size_bytes) {
  if (size_bytes == 0) return true;
  const int result = repeat([&] { return os_->fallocate(fd_, 0, static_cast<std::int64_t>(size_bytes)); });
  if (result != 0 && errno != EOPNOTSUPP) fail_io(fmt::format("extended to {} bytes", size_bytes), path_);
  return result == 0;
}

void File::truncate(std::uint64_t size_bytes) {
  if (repeat([&] { return os_->ftruncate(fd_, static_cast<std::int64_t>(size_bytes)); }) != 0)
    fail_io(fmt::format("resized to {} bytes", size_bytes), path_);
}

void File::start_writeback(std::uint64_t offset, std::uint64_t size_bytes) {
  if (size_bytes == 0) return;  // would mean: to the end of the file
  const int result = repeat([&] {
    return os_->sync_file_range(fd_, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(size_bytes));
  });
  if (result != 0 && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != ESPIPE)
    fail_io(fmt::format("flushed to disk ({} bytes at offset {})", size_bytes, offset), path_);
}

void File::sync() {
  if (repeat([&] { return os_->fsync(fd_); }) != 0) fail_io("flushed to disk", path_);
}

void File::close() {
  if (fd_ < 0) return;
  // Linux releases the descriptor even when close() is interrupted: it must not be repeated.
  if (os_->close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_io("closed", path_);
}

FileStat File::stat() const {
  struct stat s {};
  if (repeat([&] { return os_->fstat(fd_, &s); }) != 0) fail_io("examined", path_);
  return facts_of(s);
}

Files Files::system() {
  static Os os;
  return Files{os};
}

Files Files::own() const {
  Files files = *this;
  files.own_ = true;
  return files;
}

File Files::standard_input() const {
  const Path name{"standard input"};
  const int fd = repeat([&] { return os_->dup(STDIN_FILENO); });
  if (fd < 0) fail_io("opened", name);
  return {*os_, fd, name};
}

File Files::stream(const Path& path) const { return open_or_fail(path, O_RDONLY, "opened"); }

void Files::print(std::string_view text) const {
  const Path name{"standard output"};
  const std::string done = fmt::format("written ({} bytes)", text.size());
  const int fd = repeat([&] { return os_->dup(STDOUT_FILENO); });
  if (fd < 0) fail_io(done, name);
  File out{*os_, fd, name};  // closing a copy is what some file systems need to tell of a full disk
  const std::size_t all = transfer_all(text.size(), done, name, [&](std::size_t at, std::size_t size_bytes) {
    const std::int64_t written = os_->write(fd, text.data() + at, size_bytes);
    if (written < 0 && errno == EPIPE) {
      throw ReaderLeft{
          Fault::io,
          {.sentence = fmt::format("{} cannot be {}: its reader has closed it (EPIPE)", name.string(), done),
           .wanted = "it to be " + done,
           .got = "a pipe that its reader has closed (EPIPE)",
           .where = name}};
    }
    return written;
  });
  if (all < text.size()) fail(Fault::io, done, EIO, name);
  // Pipes and terminals have nothing to sync.
  if (repeat([&] { return os_->fsync(fd); }) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    fail_io(done, name);
  out.close();
}

File Files::open_or_fail(const Path& path, int flags, const char* done) const {
  const int fd = repeat([&] { return os_->open(path.c_str(), flags | O_CLOEXEC, file_mode); });
  if (fd >= 0) return {*os_, fd, path};
  const bool missing = (flags & O_CREAT) == 0 && (errno == ENOENT || errno == ENOTDIR);
  fail(missing ? Fault::data : Fault::io, done, errno, path);
}

/// Opening or reading a pipe or a device may block forever.
File Files::open_regular(const Path& path, int flags, const char* done) const {
  File file = open_or_fail(path, flags | O_NONBLOCK | (own_ ? O_NOFOLLOW : 0), done);
  struct stat s {};
  if (repeat([&] { return os_->fstat(file.fd(), &s); }) != 0) fail_io("examined", path);
  if (S_ISREG(s.st_mode)) return file;
  const bool is_input = S_ISDIR(s.st_mode) || (flags & O_ACCMODE) == O_RDONLY;
  throw_error(is_input && !own_ ? Fault::data : Fault::io, path.string(), "a regular file", kind_of(s.st_mode),
              own_ ? "choose another file" : "choose a regular file");
}

File Files::open(const Path& path) const { return open_regular(path, O_RDONLY, "opened"); }
File Files::create(const Path& path) const { return open_or_fail(path, O_WRONLY | O_CREAT | O_EXCL, "created"); }
File Files::replace(const Path& path) const {
  return open_regular(path, O_WRONLY | O_CREAT | O_TRUNC, "opened for writing");
}
File Files::update(const Path& path) const { return open_regular(path, O_RDWR, "opened for writing"); }
File Files::append(const Path& path) const {
  return open_regular(path, O_WRONLY | O_CREAT | O_APPEND, "opened for writing");
}

void Mapping::release_pages(Bytes part) const {
  if (!at_ || part.empty()) return;
  constexpr std::uintptr_t around = 2 << 20;
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const Bytes all = bytes();
  const std::uintptr_t begin = std::max(address(all.data()), address(part.data()) / around * around);
  const std::uintptr_t last = (address(part.data()) + part.size() - 1) / around * around + around;
  const std::uintptr_t end = std::min(address(all.data()) + all.size(), last);
  at_.get_deleter().os->release_pages(static_cast<std::byte*>(at_.get()) + (begin - address(all.data())), end - begin);
}

Mapping Files::map(const Path& path) const {
  const File file = open(path);
  const FileStat facts = file.stat();
  if (facts.size_bytes == 0) return {};
  void* at = os_->mmap(facts.size_bytes, file.fd());
  if (at == MAP_FAILED) fail_io(fmt::format("mapped into memory ({} bytes)", facts.size_bytes), path);
  return {*os_, at, facts.size_bytes};
}

std::string Files::read_text(const Path& path, std::uint64_t limit_bytes) const {
  const File file = open(path);
  const FileStat facts = file.stat();
  if (facts.size_bytes > limit_bytes)
    throw_error(Fault::data, path.string(), fmt::format("a file of at most {} bytes", limit_bytes),
                fmt::format("{} bytes", facts.size_bytes), "check that this is the right file");
  std::string text(facts.size_bytes, '\0');
  file.read_at(as_writable_bytes(std::span<char>{text}), 0);
  return text;
}

bool Files::write_whole(const Path& path, Bytes content, bool sync, bool replaces) const {
  const Path partial = path.parent_path() / partial_name(path.filename().string());
  bool renamed = false;
  try {
    File file = create(partial);
    file.append(content);
    if (sync) file.sync();
    file.close();
    if (replaces) rename(partial, path);
    renamed = replaces || rename_noreplace(partial, path);
  } catch (const Error&) {
    os_->unlink(partial.c_str());
    throw;
  }
  if (!renamed) remove(partial);
  if (renamed && sync) sync_folder(path.parent_path());
  return renamed;
}

void Files::write_atomically(const Path& path, Bytes content) const { write_whole(path, content, true); }
void Files::publish(const Path& path, std::string_view text) const { write_whole(path, as_bytes(text), false); }
bool Files::write_if_absent(const Path& path, std::string_view text) const {
  return write_whole(path, as_bytes(text), true, false);
}

std::optional<FileStat> Files::stat(const Path& path) const {
  struct stat s {};
  if (repeat([&] { return os_->stat(path.c_str(), &s); }) == 0) return facts_of(s);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  fail_io("examined", path);
}

bool Files::is_taken(const Path& path) const {
  const int fd = repeat([&] { return os_->open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC, 0); });
  if (fd >= 0) {
    os_->close(fd);
    return true;
  }
  if (errno == ENOENT || errno == ENOTDIR) return false;
  fail_io("examined", path);
}

std::vector<std::string> Files::list(const Path& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) {
    const bool missing = error.value() == ENOENT || error.value() == ENOTDIR;
    fail(missing ? Fault::data : Fault::io, "listed", error.value(), folder);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Path Files::follow_links(const Path& path) const {
  constexpr int most_links = 40;  // as the kernel has it
  Path at = path.has_filename() ? path : path.parent_path();
  std::error_code none;
  for (int links = 0; links < most_links; ++links) {
    const Path next = std::filesystem::read_symlink(at, none);
    if (none) break;
    at = at.parent_path() / next;
  }
  return at;
}

std::uint64_t Files::free_bytes(const Path& folder) const {
  struct statvfs s {};
  if (repeat([&] { return os_->statvfs(folder.c_str(), &s); }) != 0) fail_io("checked for free space", folder);
  return static_cast<std::uint64_t>(s.f_bavail) * s.f_frsize;
}

void Files::make_folder(const Path& folder) const {
  if (repeat([&] { return os_->mkdir(folder.c_str(), folder_mode); }) != 0) fail_io("created as a folder", folder);
}

void Files::make_folders(const Path& folder) const {
  const auto make = [&] { return repeat([&] { return os_->mkdir(folder.c_str(), folder_mode); }); };
  if (make() == 0) return sync_folder(folder.parent_path());
  const int error = errno;
  if (error == EEXIST || error == EISDIR) {
    const auto facts = stat(folder);
    if (facts && facts->is_directory) return;
  }
  const Path parent = folder.parent_path();
  if (error != ENOENT || parent.empty() || parent == folder) fail(Fault::io, "created as a folder", error, folder);
  make_folders(parent);
  if (!folder.has_filename()) return;  // "a/b/": the parent was the folder itself
  if (make() != 0 && errno != EEXIST) fail_io("created as a folder", folder);
  sync_folder(parent);
}

void Files::sync_folder(const Path& folder) const {
  const Path here = folder.empty() ? Path{"."} : folder;
  File file = open_or_fail(here, O_RDONLY | O_DIRECTORY, "flushed to disk");
  // File systems without a notion of syncing folders answer EINVAL.
  if (repeat([&] { return os_->fsync(file.fd()); }) != 0 && errno != EINVAL) fail_io("flushed to disk", here);
  file.close();
}

void Files::rename(const Path& from, const Path& to) const {
  if (repeat([&] { return os_->rename(from.c_str(), to.c_str()); }) != 0)
    fail_io(fmt::format("renamed to {}", to.string()), from);
}

bool Files::rename_noreplace(const Path& from, const Path& to) const {
  if (repeat([&] { return os_->rename_noreplace(from.c_str(), to.c_str()); }) == 0) return true;
  if (errno == EEXIST || errno == ENOTEMPTY) return false;
  if (errno != EINVAL && errno != ENOSYS) fail_io(fmt::format("renamed to {}", to.string()), from);
  // The file system has no such call. A file can get a second name instead; of a folder the check and the rename are
  // two steps.
  if (repeat([&] { return os_->link(from.c_str(), to.c_str()); }) == 0) {
    remove(from);
    return true;
  }
  if (errno == EEXIST || is_taken(to)) {
    // A server that was asked twice has made the link the first time.
    const auto old_name = stat(from), new_name = stat(to);
    if (!old_name || !new_name || old_name->inode != new_name->inode || old_name->device != new_name->device)
      return false;
    remove(from);
    return true;
  }
  try {
    rename(from, to);
  } catch (const Error&) {
    if (!is_taken(to) || !is_taken(from)) throw;
    return false;  // it has appeared between the two
  }
  return true;
}

void Files::remove(const Path& path) const {
  if (repeat([&] { return os_->unlink(path.c_str()); }) != 0 && errno != ENOENT) fail_io("removed", path);
}

void Files::remove_tree(const Path& path) const {
  if (repeat([&] { return os_->unlink(path.c_str()); }) == 0 || errno == ENOENT) return;
  if (errno != EISDIR) fail_io("removed", path);
  try {
    for (const std::string& name : list(path)) remove_tree(path / name);
  } catch (const Error&) {
    if (!is_taken(path)) return;  // another process removes it, too
    throw;
  }
  if (repeat([&] { return os_->rmdir(path.c_str()); }) != 0 && errno != ENOENT) fail_io("removed", path);
}

void Files::link_symbolically(const Path& target, const Path& link) const {
  if (repeat([&] { return os_->symlink(target.c_str(), link.c_str()); }) != 0)
    fail_io(fmt::format("created as a link to {}", target.string()), link);
}

}  // namespace argosy
