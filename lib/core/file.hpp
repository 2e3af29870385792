#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"

/// All access to the operating system's files. `Os` has one method per system call, so that a test can record, fail,
/// shorten or drop the n-th one. `Files` and `File` add the rules that every caller needs: they repeat calls after
/// EINTR, continue short transfers, check every result, and throw Error{io} naming path, operation, errno and remedy.
/// Thread-compatible: distinct objects may be used from distinct threads; Os implementations are thread-safe.
namespace argosy {

using Path = std::filesystem::path;

/// One method per system call, with its return value and errno. The base class makes the real calls.
class Os {
 public:
  virtual ~Os() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual int close(int fd);
  /// A copy of the descriptor, above standard error and close-on-exec.
  virtual int dup(int fd);
  virtual std::int64_t read(int fd, void* to, std::size_t size_bytes);
  /// poll(POLLIN): 1 if a read would not wait, 0 after the time.
  virtual int poll_in(int fd, int timeout_ms);
  virtual std::int64_t pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset);
  virtual std::int64_t pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset);
  virtual std::int64_t write(int fd, const void* from, std::size_t size_bytes);
  virtual int fsync(int fd);
  /// sync_file_range(SYNC_FILE_RANGE_WRITE): starts to write dirty pages back and does not wait.
  virtual int sync_file_range(int fd, std::int64_t offset, std::int64_t size_bytes);
  virtual int ftruncate(int fd, std::int64_t size_bytes);
  /// Fails with EOPNOTSUPP in memory (tmpfs) too, where it would write every page twice.
  virtual int fallocate(int fd, std::int64_t offset, std::int64_t size_bytes);
  virtual int fstat(int fd, struct stat* out);
  virtual int stat(const char* path, struct stat* out);
  virtual int statvfs(const char* path, struct statvfs* out);
  virtual int mkdir(const char* path, unsigned mode);
  virtual int rmdir(const char* path);
  virtual int unlink(const char* path);
  virtual int rename(const char* from, const char* to);
  /// renameat2(RENAME_NOREPLACE).
  virtual int rename_noreplace(const char* from, const char* to);
  virtual int link(const char* target, const char* link);
  virtual int symlink(const char* target, const char* link);
  virtual void* mmap(std::size_t size_bytes, int fd);  // PROT_READ, MAP_SHARED
  virtual int munmap(void* at, std::size_t size_bytes);
  virtual int release_pages(void* at, std::size_t size_bytes);  // madvise(MADV_DONTNEED)
};

struct FileStat {
  std::uint64_t size_bytes = 0;
  std::uint64_t device = 0, inode = 0;  // together they identify the file
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  bool is_directory = false, is_regular = false;
  bool operator==(const FileStat&) const = default;
};

/// The reader of standard output has closed it (`| head`).
class ReaderLeft : public Error {
  using Error::Error;
};

/// An open file. Move-only. The destructor ignores errors of closing, so writers call close().
class File {
 public:
  File() = default;
  File(Os& os, int fd, Path path) : os_(&os), fd_(fd), path_(std::move(path)) {}
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Fills `to` with the bytes from `offset` on. Throws Error{corrupt} if the file is too short, else Error{io}.
  void read_at(MutableBytes to, std::uint64_t offset) const;
  /// Fills `to` with the next bytes and returns their number, which is smaller than `to` only at the end of the file.
  [[nodiscard]] std::size_t read(MutableBytes to);
  /// Puts into `to` the next bytes that a pipe or terminal has, at least one, and returns their number; 0 at the end.
  [[nodiscard]] std::size_t read_some(MutableBytes to);
  /// Whether read_some() finds bytes or the end within this time.
  [[nodiscard]] bool is_ready(int timeout_ms) const;
  /// Writes all of `from` at `offset`.
  void write_at(Bytes from, std::uint64_t offset);
  /// Appends all of `from` (file opened with append()). On failure, cuts off what it has appended.
  void append(Bytes from);
  /// Reserves disk blocks, so that a full disk is noticed before any payload is written. Returns false, and leaves the
  /// file as it is, if the file system cannot reserve (EOPNOTSUPP: NFSv3, memory).
  bool reserve(std::uint64_t size_bytes);
  void truncate(std::uint64_t size_bytes);
  /// A hint that these bytes will not change again: the system starts to write them while the program continues. Gives
  /// no guarantee; file systems without this call are accepted.
  void start_writeback(std::uint64_t offset, std::uint64_t size_bytes);
  void sync();
  void close();
  [[nodiscard]] FileStat stat() const;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] const Path& path() const noexcept { return path_; }

 private:
  Os* os_ = nullptr;
  int fd_ = -1;
  Path path_;
};

/// A read-only mapping of a whole file; an empty file maps to an empty span. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Os& os, void* at, std::size_t size_bytes) : at_(at, Unmap{&os, size_bytes}) {}
  [[nodiscard]] Bytes bytes() const noexcept {
    return {static_cast<const std::byte*>(at_.get()), at_ ? at_.get_deleter().size_bytes : 0};
  }
  /// Takes its pages out of this process's memory. They come back when they are read. Any thread, also while others
  /// read.
  void release_pages() const { release_pages(bytes()); }
  /// The same for those that reading `part` may have mapped: the system maps others around a page that is read, up to
  /// 2 MiB.
  void release_pages(Bytes part) const;

 private:
  struct Unmap {
    Os* os;
    std::size_t size_bytes;
    void operator()(void* at) const { os->munmap(at, size_bytes); }
  };
  std::unique_ptr<void, Unmap> at_;
};

/// All file operations of the library. Cheap to copy. Borrows the Os.
class Files {
 public:
  explicit Files(Os& os) : os_(&os) {}
  /// Files over the real operating system.
  static Files system();
  /// For files that the program makes itself, in folders where others may write: throws Error{io} if the last part of a
  /// path is anything but a regular file, such as a symbolic link. Never waits for a FIFO.
  [[nodiscard]] Files own() const;

  /// Opens /dev/null in place of closed standard streams, so that no later file gets their descriptors. Reading such an
  /// input and printing to such an output still fail; log lines are lost. Call it before anything is opened.
  static void hold_standard_streams() noexcept;
  [[nodiscard]] File standard_input() const;
  /// Opens what is read once, from its beginning, which may be a pipe or a device. Waits for the writer of a pipe.
  [[nodiscard]] File stream(const Path& path) const;
  /// Writes all of `text` to standard output and flushes it to disk. Throws Error{io}; ReaderLeft.
  void print(std::string_view text) const;

  // These open regular files alone: a pipe, a device or a folder is Error{data} when reading, Error{io} when writing.
  [[nodiscard]] File open(const Path& path) const;     // read only; if it is missing: Error{data}
  [[nodiscard]] File create(const Path& path) const;   // write, O_CREAT|O_EXCL
  [[nodiscard]] File replace(const Path& path) const;  // write, O_CREAT|O_TRUNC
  [[nodiscard]] File update(const Path& path) const;   // read and write an existing file
  [[nodiscard]] File append(const Path& path) const;   // O_CREAT|O_APPEND
  [[nodiscard]] Mapping map(const Path& path) const;
  [[nodiscard]] std::string read_text(const Path& path, std::uint64_t limit_bytes = 256ULL << 20) const;
  /// Readers see the old or the new content, never a part of it: temporary name, fsync, rename, fsync of the folder.
  void write_atomically(const Path& path, Bytes content) const;
  void write_atomically(const Path& path, std::string_view text) const { write_atomically(path, as_bytes(text)); }

  /// The same without fsync, for files that are rewritten often: the content may not be on disk when this returns.
  void publish(const Path& path, std::string_view text) const;
  /// As write_atomically, unless the file exists: returns false then. Of several writers exactly one gets true.
  [[nodiscard]] bool write_if_absent(const Path& path, std::string_view text) const;

  [[nodiscard]] std::optional<FileStat> stat(const Path& path) const;  // nullopt if it does not exist
  [[nodiscard]] bool exists(const Path& path) const { return stat(path).has_value(); }
  /// Whether the name is in use, be it by a dangling link.
  [[nodiscard]] bool is_taken(const Path& path) const;
  /// Names (not paths) in a folder, sorted bytewise.
  [[nodiscard]] std::vector<std::string> list(const Path& folder) const;
  /// The target of `path` if its last part is a symbolic link, or a chain of them; else `path` without a trailing
  /// slash.
  [[nodiscard]] Path follow_links(const Path& path) const;
  [[nodiscard]] std::uint64_t free_bytes(const Path& folder) const;
  void make_folder(const Path& folder) const;   // this one alone; must not exist
  void make_folders(const Path& folder) const;  // and its missing parents, each synced; may exist
  void sync_folder(const Path& folder) const;
  void rename(const Path& from, const Path& to) const;
  /// Returns false, and changes nothing, if `to` exists.
  [[nodiscard]] bool rename_noreplace(const Path& from, const Path& to) const;
  void remove(const Path& path) const;       // a file; no error if it is absent
  void remove_tree(const Path& path) const;  // a folder and its content; links are not followed; no error if absent
  void link_symbolically(const Path& target, const Path& link) const;
  [[nodiscard]] Os& os() const noexcept { return *os_; }

 private:
  [[nodiscard]] File open_or_fail(const Path& path, int flags, const char* done) const;
  [[nodiscard]] File open_regular(const Path& path, int flags, const char* done) const;
  /// Writes under a temporary name, then renames to `path`. Returns false if that exists and is not to be replaced.
  bool write_whole(const Path& path, Bytes content, bool sync, bool replaces = true) const;

  Os* os_;
  bool own_ = false;
};

}  // namespace argosy
