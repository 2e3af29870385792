#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/file.hpp"

/// A door to the OS that records every call and lets a test fail, shorten or forget the n-th one, or stop the world
/// there as a crash would. Calls are counted from 0, over all kinds or over one kind. Everything else goes to the real
/// system. Thread-safe.
namespace argosy::test {

enum class Call {
  open,
  close,
  dup,
  read,
  pread,
  pwrite,
  write,
  fsync,
  sync_file_range,
  ftruncate,
  fallocate,
  fstat,
  stat,
  statvfs,
  mkdir,
  rmdir,
  unlink,
  rename,
  rename_noreplace,
  link,
  symlink,
  mmap,
  munmap
};

class FaultyOs : public Os {
 public:
  struct Record {
    Call call;
    std::string path, to;      // `to`: new name of a rename, link of a symlink
    std::int64_t offset = -1;  // of pread and pwrite
    std::size_t size_bytes = 0;
    std::string content{};  // of pwrite and write, when keep_content
    int flags = 0;          // of open
  };

  /// The n-th call (of any kind, or of `only`) does nothing and fails with `error`; `for_ever`: all later ones as well.
  void fail(std::size_t n, int error) { add({std::nullopt, n, Fault::fail, error, false}); }
  void fail(Call only, std::size_t n, int error, bool for_ever = false) {
    add({only, n, Fault::fail, error, for_ever});
  }
  /// The n-th call moves only half of its bytes (at least one), if it is a transfer.
  void shorten(std::size_t n) { add({std::nullopt, n, Fault::shorten, 0, false}); }
  /// The n-th call of this kind does nothing and reports success.
  void forget(Call only, std::size_t n) { add({only, n, Fault::forget, 0, false}); }
  /// From the n-th call on nothing reaches the system any more, as if power had gone; every call fails with EIO.
  void crash(std::size_t n) {
    const std::lock_guard lock(mutex_);
    crash_at_ = n;
  }
  /// Drops plans, records and counts; keeps what it knows of open files.
  void forget_all() {
    heal();
    const std::lock_guard lock(mutex_);
    records_ = {};
    counts_.clear();
  }
  void keep_content() { keep_content_ = true; }
  /// Nothing fails any more.
  void heal() {
    const std::lock_guard lock(mutex_);
    plan_.clear();
    crash_at_.reset();
  }

  [[nodiscard]] std::vector<Record> records() const { return records_from(0); }
  /// The calls from the n-th on.
  [[nodiscard]] std::vector<Record> records_from(std::size_t n) const {
    const std::lock_guard lock(mutex_);
    return {records_.begin() + static_cast<std::ptrdiff_t>(std::min(n, records_.size())), records_.end()};
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return records_.size();
  }
  [[nodiscard]] std::size_t count(Call call) const {
    const std::lock_guard lock(mutex_);
    return counts_.contains(call) ? counts_.at(call) : 0;
  }
  /// Descriptors opened and not closed.
  [[nodiscard]] std::size_t open_files() const {
    const std::lock_guard lock(mutex_);
    return paths_.size();
  }

  int open(const char* path, int flags, unsigned mode) override {
    const Verdict verdict = enter({.call = Call::open, .path = path, .to = {}, .flags = flags});
    if (verdict.stop) return answer(verdict);
    const int fd = Os::open(path, flags, mode);
    const std::lock_guard lock(mutex_);
    if (fd >= 0) paths_[fd] = path;
    return fd;
  }
  int close(int fd) override {
    const Verdict verdict = enter(at(Call::close, fd));
    {
      const std::lock_guard lock(mutex_);
      paths_.erase(fd);
    }
    const int result = Os::close(fd);  // always: a failed close() releases the descriptor too
    return verdict.stop ? answer(verdict) : result;
  }
  int dup(int fd) override {
    const Verdict verdict = enter({.call = Call::dup, .path = {}, .to = {}});
    if (verdict.stop) return answer(verdict);
    const int copy = Os::dup(fd);
    const std::lock_guard lock(mutex_);
    if (copy >= 0) paths_[copy] = fmt::format("copy of {}", fd);
    return copy;
  }
  std::int64_t read(int fd, void* to, std::size_t size_bytes) override {
    const Verdict verdict = enter(at(Call::read, fd, size_bytes));
    return verdict.stop ? answer(verdict) : Os::read(fd, to, verdict.cut(size_bytes));
  }
  std::int64_t pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset) override {
    const Verdict verdict = enter(at(Call::pread, fd, size_bytes, offset));
    return verdict.stop ? answer(verdict) : Os::pread(fd, to, verdict.cut(size_bytes), offset);
  }
  std::int64_t pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset) override {
    const Verdict verdict = enter(at(Call::pwrite, fd, size_bytes, offset, from));
    if (verdict.stop) return verdict.error == 0 ? static_cast<std::int64_t>(size_bytes) : answer(verdict);
    return Os::pwrite(fd, from, verdict.cut(size_bytes), offset);
  }
  std::int64_t write(int fd, const void* from, std::size_t size_bytes) override {
    const Verdict verdict = enter(at(Call::write, fd, size_bytes, -1, from));
    if (verdict.stop) return verdict.error == 0 ? static_cast<std::int64_t>(size_bytes) : answer(verdict);
    return Os::write(fd, from, verdict.cut(size_bytes));
  }
  int fsync(int fd) override { return pass(at(Call::fsync, fd), &Os::fsync, fd); }
  int sync_file_range(int fd, std::int64_t offset, std::int64_t size_bytes) override {
    const Record record = at(Call::sync_file_range, fd, static_cast<std::size_t>(size_bytes), offset);
    return pass(record, &Os::sync_file_range, fd, offset, size_bytes);
  }
  int ftruncate(int fd, std::int64_t size_bytes) override {
    return pass(at(Call::ftruncate, fd, static_cast<std::size_t>(size_bytes)), &Os::ftruncate, fd, size_bytes);
  }
  int fallocate(int fd, std::int64_t offset, std::int64_t size_bytes) override {
    const Record record = at(Call::fallocate, fd, static_cast<std::size_t>(size_bytes), offset);
    return pass(record, &Os::fallocate, fd, offset, size_bytes);
  }
  int fstat(int fd, struct stat* out) override { return pass(at(Call::fstat, fd), &Os::fstat, fd, out); }
  int stat(const char* path, struct stat* out) override { return pass(named(Call::stat, path), &Os::stat, path, out); }
  int statvfs(const char* path, struct statvfs* out) override {
    return pass(named(Call::statvfs, path), &Os::statvfs, path, out);
  }
  int mkdir(const char* path, unsigned mode) override { return pass(named(Call::mkdir, path), &Os::mkdir, path, mode); }
  int rmdir(const char* path) override { return pass(named(Call::rmdir, path), &Os::rmdir, path); }
  int unlink(const char* path) override { return pass(named(Call::unlink, path), &Os::unlink, path); }
  int rename(const char* from, const char* to) override {
    return pass(named(Call::rename, from, to), &Os::rename, from, to);
  }
  int rename_noreplace(const char* from, const char* to) override {
    return pass(named(Call::rename_noreplace, from, to), &Os::rename_noreplace, from, to);
  }
  int link(const char* target, const char* link) override {
    return pass(named(Call::link, target, link), &Os::link, target, link);
  }
  int symlink(const char* target, const char* link) override {
    return pass(named(Call::symlink, target, link), &Os::symlink, target, link);
  }
  void* mmap(std::size_t size_bytes, int fd) override {
    const Verdict verdict = enter(at(Call::mmap, fd, size_bytes));
    if (!verdict.stop) return Os::mmap(size_bytes, fd);
    errno = verdict.error;
    return reinterpret_cast<void*>(-1);
  }
  int munmap(void* at_address, std::size_t size_bytes) override {
    enter({.call = Call::munmap, .path = {}, .to = {}, .size_bytes = size_bytes});
    return Os::munmap(at_address, size_bytes);  // always, or the test itself would leak
  }

 private:
  enum class Fault { fail, shorten, forget };
  struct Planned {
    std::optional<Call> only;
    std::size_t n;
    Fault fault;
    int error;
    bool for_ever;
  };
  struct Verdict {
    bool stop = false, shortened = false;
    int error = 0;  // 0 with stop: forgotten
    [[nodiscard]] std::size_t cut(std::size_t size_bytes) const {
      return shortened && size_bytes > 1 ? size_bytes / 2 : size_bytes;
    }
  };

  void add(const Planned& planned) {
    const std::lock_guard lock(mutex_);
    plan_.push_back(planned);
  }
  /// What the system answers to a call, unless the call is to fail.
  template <class... Of>
  int pass(Record record, int (Os::*real)(Of...), std::type_identity_t<Of>... of) {
    const Verdict verdict = enter(std::move(record));
    return verdict.stop ? answer(verdict) : (system_.*real)(of...);
  }
  static int answer(const Verdict& verdict) {
    if (verdict.error == 0) return 0;
    errno = verdict.error;
    return -1;
  }
  static Record named(Call call, const char* path, const char* to = "") {
    return {.call = call, .path = path, .to = to};
  }
  Record at(Call call, int fd, std::size_t size_bytes = 0, std::int64_t offset = -1, const void* from = nullptr) {
    const std::lock_guard lock(mutex_);
    Record record{.call = call, .path = paths_[fd], .to = {}, .offset = offset, .size_bytes = size_bytes};
    if (keep_content_ && from != nullptr) record.content.assign(static_cast<const char*>(from), size_bytes);
    return record;
  }
  Verdict enter(Record record) {
    const std::lock_guard lock(mutex_);
    const std::size_t of_all = records_.size(), of_kind = counts_[record.call]++;
    Verdict verdict;
    for (const Planned& p : plan_) {
      const std::size_t n = p.only ? of_kind : of_all;
      if (p.only.value_or(record.call) != record.call || (p.for_ever ? n < p.n : n != p.n)) continue;
      verdict = {.stop = p.fault != Fault::shorten, .shortened = p.fault == Fault::shorten, .error = p.error};
    }
    if (crash_at_ && of_all >= *crash_at_) verdict = {.stop = true, .error = EIO};
    records_.push_back(std::move(record));
    return verdict;
  }

  Os system_;
  mutable std::mutex mutex_;
  std::vector<Planned> plan_;
  std::optional<std::size_t> crash_at_;
  bool keep_content_ = false;
  std::vector<Record> records_;
  std::map<Call, std::size_t> counts_;
  std::map<int, std::string> paths_;
};

}  // namespace argosy::test
