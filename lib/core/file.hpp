#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"

/// The only door to the operating system's files. `Os` has one method a system call, so that a test can record, fail,
/// shorten or forget the n-th one; `Files` and `File` add the rules every caller needs (EINTR repeated, short transfers
/// continued, every result checked) and throw Error{io} naming call, path, errno and remedy. Thread-compatible:
/// distinct objects may be used from distinct threads; Os implementations are thread-safe.
namespace argosy {

using Path = std::filesystem::path;

/// One method a system call, with its return value and errno. The base class is the real one.
class Os {
 public:
  virtual ~Os() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual int close(int fd);
  /// A copy above standard error, closed in programs that this one becomes.
  virtual int dup(int fd);
  virtual std::int64_t read(int fd, void* to, std::size_t size_bytes);
  virtual std::int64_t pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset);
  virtual std::int64_t pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset);
  virtual std::int64_t write(int fd, const void* from, std::size_t size_bytes);
  virtual int fsync(int fd);
  /// sync_file_range(SYNC_FILE_RANGE_WRITE): begins to write dirty pages back, waits for nothing.
  virtual int sync_file_range(int fd, std::int64_t offset, std::int64_t size_bytes);
  virtual int ftruncate(int fd, std::int64_t size_bytes);
  /// EOPNOTSUPP in memory (tmpfs) too, where it would write every page once more.
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
};

struct FileStat {
  std::uint64_t size_bytes = 0;
  std::uint64_t device = 0, inode = 0;  // together they name the file
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  bool is_directory = false, is_regular = false;
};

/// Nobody reads standard output any more (`| head`).
class ReaderLeft : public Error {
  using Error::Error;
};

/// An open file. Move-only; closing in the destructor ignores errors, so writers call close().
class File {
 public:
  File() = default;
  File(Os& os, int fd, Path path) : os_(&os), fd_(fd), path_(std::move(path)) {}
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Fills `to` from `offset`. Throws Error{corrupt} when the file ends before, Error{io} otherwise.
  void read_at(MutableBytes to, std::uint64_t offset) const;
  /// Fills `to` with what comes next; returns how much there was, less only at the end of the file.
  [[nodiscard]] std::size_t read(MutableBytes to);
  /// Writes all of `from` at `offset`.
  void write_at(Bytes from, std::uint64_t offset);
  /// Appends all of `from` (file opened with append()); where that fails, takes back what it has appended.
  void append(Bytes from);
  /// Reserves blocks so that a full disk shows before any payload. False where that cannot be done (EOPNOTSUPP: NFSv3,
  /// memory); the file is as before then.
  bool reserve(std::uint64_t size_bytes);
  void truncate(std::uint64_t size_bytes);
  /// A hint that these bytes will not change again: the disk begins with them while the program goes on. Promises
  /// nothing; file systems that do not know it are accepted.
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

/// A read-only mapping of a whole file; an empty file maps to an empty span.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Os& os, void* at, std::size_t size_bytes) : os_(&os), at_(at), size_bytes_(size_bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  [[nodiscard]] Bytes bytes() const noexcept { return {static_cast<const std::byte*>(at_), size_bytes_}; }

 private:
  Os* os_ = nullptr;
  void* at_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// All file operations of the library. Cheap to copy; borrows the Os.
class Files {
 public:
  explicit Files(Os& os) : os_(&os) {}
  /// Files over the real operating system.
  static Files system();
  /// For files that the program makes itself, in folders where others may write: Error{io} where a path's last part is
  /// a symbolic link or anything else than a regular file. A FIFO is not waited for.
  [[nodiscard]] Files own() const;

  /// Opens /dev/null where standard input, output or error are closed, so that no file of ours takes their place. What
  /// is read from or printed to such a one still fails; messages are lost. Before anything is opened.
  static void hold_standard_streams() noexcept;
  [[nodiscard]] File standard_input() const;
  /// What is read once, from its beginning: a pipe or a device, too. A pipe is waited for until somebody writes.
  [[nodiscard]] File stream(const Path& path) const;
  /// Writes all of `text` to standard output, down to the disk. Throws Error{io}; ReaderLeft.
  void print(std::string_view text) const;

  // Regular files alone: a pipe, a device or a folder is Error{data} for those who read and Error{io} for those who
  // write.
  [[nodiscard]] File open(const Path& path) const;     // read only; a missing file is Error{data}
  [[nodiscard]] File create(const Path& path) const;   // write, O_CREAT|O_EXCL
  [[nodiscard]] File replace(const Path& path) const;  // write, O_CREAT|O_TRUNC
  [[nodiscard]] File update(const Path& path) const;   // read and write an existing file
  [[nodiscard]] File append(const Path& path) const;   // O_CREAT|O_APPEND
  [[nodiscard]] Mapping map(const Path& path) const;
  [[nodiscard]] std::string read_text(const Path& path, std::uint64_t limit_bytes = 256ULL << 20) const;
  /// Readers see the old or the new content, never a part: temporary name, fsync, rename, fsync of the folder.
  void write_atomically(const Path& path, Bytes content) const;
  void write_atomically(const Path& path, std::string_view text) const { write_atomically(path, as_bytes(text)); }

  /// The same for what is written again soon: not on the disk yet when this returns.
  void publish(const Path& path, std::string_view text) const;
  /// As write_atomically, for a file that must not be there: false when it is, and of several writers exactly one gets
  /// true.
  [[nodiscard]] bool write_if_absent(const Path& path, std::string_view text) const;

  [[nodiscard]] std::optional<FileStat> stat(const Path& path) const;  // nullopt when it does not exist
  [[nodiscard]] bool exists(const Path& path) const { return stat(path).has_value(); }
  /// Whether anything has this name: a link that leads nowhere, too.
  [[nodiscard]] bool is_taken(const Path& path) const;
  /// Names (not paths) in a folder, sorted bytewise.
  [[nodiscard]] std::vector<std::string> list(const Path& folder) const;
  /// What `path` leads to when its last part is a symbolic link, or a chain of them; else `path`, without a slash at
  /// its end.
  [[nodiscard]] Path follow_links(const Path& path) const;
  [[nodiscard]] std::uint64_t free_bytes(const Path& folder) const;
  void make_folder(const Path& folder) const;   // exactly this one; must not exist
  void make_folders(const Path& folder) const;  // with parents, each synced into its own; may exist
  void sync_folder(const Path& folder) const;
  void rename(const Path& from, const Path& to) const;
  /// Returns false when `to` exists (then nothing has changed).
  [[nodiscard]] bool rename_noreplace(const Path& from, const Path& to) const;
  void remove(const Path& path) const;       // a file; absence is fine
  void remove_tree(const Path& path) const;  // a folder with its content, links not followed; absence is fine
  void link_symbolically(const Path& target, const Path& link) const;
  [[nodiscard]] Os& os() const noexcept { return *os_; }

 private:
  [[nodiscard]] File open_or_fail(const Path& path, int flags, const char* wanted) const;
  [[nodiscard]] File open_regular(const Path& path, int flags, const char* wanted) const;
  /// Writes under a temporary name and gives it the right one by `rename`, which may say no.
  template <class Rename>
  bool write_and(Rename rename, const Path& path, Bytes content, bool sync) const;
  void replace_with(const Path& path, Bytes content, bool sync) const;

  Os* os_;
  bool own_ = false;
};

}  // namespace argosy
