#pragma once

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/describe.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/file.hpp"

/// What a run has asked of its disk: a door to the OS that writes down every change below one folder, with its time and
/// what was written, so that a model of the disk can say what a crash would have left after each of them. HDF5's own
/// writes do not pass the door: a file that the door meets for the first time is written down as made and written then.
namespace argosy::test {

struct Change {
  enum class Kind { mkdir, create, write, extend, truncate, fsync, rename, unlink, rmdir, symlink, acknowledge };
  BOOST_DESCRIBE_NESTED_ENUM(Kind, mkdir, create, write, extend, truncate, fsync, rename, unlink, rmdir, symlink,
                             acknowledge)
  Kind kind{};
  std::int64_t time_ns = 0;     // of its end, on the clock that the ranks of a machine share
  std::int64_t handle = -1;     // of an opened file, unique over ranks; create opens one
  std::int64_t number = 0;      // offset, size, or the step acknowledged
  std::string path{}, to{};     // below the folder; `to`: new name of a rename, target of a link
  std::string content{};        // of a write
  bool only_if_absent = false;  // a file that another rank may have told of already

  [[nodiscard]] std::string text() const {
    return fmt::format("{} {}{}{} {} ({} bytes)", boost::describe::enum_to_string(kind, ""), path,
                       to.empty() ? "" : " -> ", to, number, content.size());
  }
};
BOOST_DESCRIBE_STRUCT(Change, (), (kind, time_ns, handle, number, path, to, content, only_if_absent))

class JournalOs : public Os {
 public:
  JournalOs(Path folder, int rank) : folder_(folder.string() + "/"), rank_(rank) {}

  [[nodiscard]] std::vector<Change> changes() const {
    const std::lock_guard lock(mutex_);
    return changes_;
  }
  /// A save of `step` was reported as committed.
  void acknowledge(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    add({.kind = Change::Kind::acknowledge, .number = step});
  }

  int open(const char* path, int flags, unsigned mode) override {
    const int fd = Os::open(path, flags, mode);
    const std::lock_guard lock(mutex_);
    if (fd < 0 || !below(path)) return fd;
    if ((flags & O_CREAT) == 0) meet(path);
    known_.insert(path);
    handles_[fd] = {.number = next_handle(), .path = relative(path)};
    if ((flags & (O_CREAT | O_TRUNC)) != 0) tell(handles_[fd], flags & O_TRUNC);
    return fd;
  }
  int close(int fd) override {
    {
      const std::lock_guard lock(mutex_);
      handles_.erase(fd);
    }
    return Os::close(fd);
  }
  std::int64_t pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset) override {
    return written(fd, from, Os::pwrite(fd, from, size_bytes, offset), offset);
  }
  std::int64_t write(int fd, const void* from, std::size_t size_bytes) override {
    return written(fd, from, Os::write(fd, from, size_bytes), -1);
  }
  int fsync(int fd) override { return on(fd, Change::Kind::fsync, 0, Os::fsync(fd)); }
  int ftruncate(int fd, std::int64_t size_bytes) override {
    return on(fd, Change::Kind::truncate, size_bytes, Os::ftruncate(fd, size_bytes));
  }
  int fallocate(int fd, std::int64_t offset, std::int64_t size_bytes) override {
    return on(fd, Change::Kind::extend, offset + size_bytes, Os::fallocate(fd, offset, size_bytes));
  }
  int stat(const char* path, struct stat* out) override {
    const int result = Os::stat(path, out);
    const std::lock_guard lock(mutex_);
    if (result == 0 && below(path)) meet(path);
    return result;
  }
  int mkdir(const char* path, unsigned mode) override {
    return named(Change::Kind::mkdir, path, "", Os::mkdir(path, mode));
  }
  int rmdir(const char* path) override { return named(Change::Kind::rmdir, path, "", Os::rmdir(path)); }
  int unlink(const char* path) override { return named(Change::Kind::unlink, path, "", Os::unlink(path)); }
  int rename(const char* from, const char* to) override {
    return named(Change::Kind::rename, from, relative(to), Os::rename(from, to));
  }
  int rename_noreplace(const char* from, const char* to) override {
    return named(Change::Kind::rename, from, relative(to), Os::rename_noreplace(from, to));
  }
  int symlink(const char* target, const char* link) override {
    return named(Change::Kind::symlink, link, target, Os::symlink(target, link));
  }

 private:
  struct Handle {
    std::int64_t number = 0;
    std::string path{};
    bool told = false;  // opening a file changes nothing unless something is done with it
  };

  [[nodiscard]] bool below(const std::string& path) const { return (path + "/").starts_with(folder_); }
  [[nodiscard]] std::string relative(const std::string& path) const {
    return below(path) ? path.substr(std::min(path.size(), folder_.size())) : path;
  }
  [[nodiscard]] std::int64_t next_handle() { return (++handle_ << 8) + rank_; }
  void add(Change change) {
    change.time_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    changes_.push_back(std::move(change));
  }
  void tell(Handle& handle, int truncated) {
    if (!std::exchange(handle.told, true))
      add({.kind = Change::Kind::create, .handle = handle.number, .number = truncated, .path = handle.path});
  }
  /// A file that this rank has not made: HDF5 has, or another rank.
  void meet(const std::string& path) {
    if (known_.contains(path) || !std::filesystem::is_regular_file(std::filesystem::symlink_status(path))) return;
    known_.insert(path);
    const std::int64_t handle = next_handle();
    add({.kind = Change::Kind::create, .handle = handle, .path = relative(path), .only_if_absent = true});
    add({.kind = Change::Kind::write,
         .handle = handle,
         .path = relative(path),
         .content = Files::system().read_text(path)});
  }
  void changed(int fd, Change::Kind kind, std::int64_t number, std::string content = {}) {
    const std::lock_guard lock(mutex_);
    const auto found = handles_.find(fd);
    if (found == handles_.end()) return;
    Handle& handle = found->second;
    tell(handle, 0);
    add({.kind = kind, .handle = handle.number, .number = number, .path = handle.path, .content = std::move(content)});
  }
  std::int64_t written(int fd, const void* from, std::int64_t result, std::int64_t offset) {
    if (result > 0)
      changed(fd, Change::Kind::write, offset, {static_cast<const char*>(from), static_cast<std::size_t>(result)});
    return result;
  }
  int on(int fd, Change::Kind kind, std::int64_t number, int result) {
    if (result == 0) changed(fd, kind, number);
    return result;
  }
  int named(Change::Kind kind, const std::string& path, const std::string& to, int result) {
    const std::lock_guard lock(mutex_);
    if (result != 0 || !below(path)) return result;
    if (kind == Change::Kind::rename) known_.insert(folder_ + to);
    add({.kind = kind, .path = relative(path), .to = to});
    return result;
  }

  std::string folder_;
  int rank_;
  mutable std::mutex mutex_;
  std::vector<Change> changes_;
  std::int64_t handle_ = 0;
  std::map<int, Handle> handles_;
  std::set<std::string> known_;
};

}  // namespace argosy::test
