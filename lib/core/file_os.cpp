#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "core/file.hpp"

namespace argosy {

int Os::open(const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); }
int Os::close(int fd) { return ::close(fd); }
int Os::dup(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }
std::int64_t Os::read(int fd, void* to, std::size_t size_bytes) { return ::read(fd, to, size_bytes); }
int Os::poll_in(int fd, int timeout_ms) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, timeout_ms);
}
std::int64_t Os::pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset) {
  return ::pread(fd, to, size_bytes, offset);
}
std::int64_t Os::pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset) {
  return ::pwrite(fd, from, size_bytes, offset);
}
std::int64_t Os::write(int fd, const void* from, std::size_t size_bytes) { return ::write(fd, from, size_bytes); }
int Os::fsync(int fd) { return ::fsync(fd); }
int Os::sync_file_range(int fd, std::int64_t offset, std::int64_t size_bytes) {
  return ::sync_file_range(fd, offset, size_bytes, SYNC_FILE_RANGE_WRITE);
}
int Os::ftruncate(int fd, std::int64_t size_bytes) { return ::ftruncate(fd, size_bytes); }
int Os::fallocate(int fd, std::int64_t offset, std::int64_t size_bytes) {
  struct statfs place {};
  if (::fstatfs(fd, &place) == 0 && place.f_type == TMPFS_MAGIC) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return ::fallocate(fd, 0, offset, size_bytes);
}
int Os::fstat(int fd, struct stat* out) { return ::fstat(fd, out); }
int Os::stat(const char* path, struct stat* out) { return ::stat(path, out); }
int Os::statvfs(const char* path, struct statvfs* out) { return ::statvfs(path, out); }
int Os::mkdir(const char* path, unsigned mode) { return ::mkdir(path, mode); }
int Os::rmdir(const char* path) { return ::rmdir(path); }
int Os::unlink(const char* path) { return ::unlink(path); }
int Os::rename(const char* from, const char* to) { return ::rename(from, to); }
int Os::rename_noreplace(const char* from, const char* to) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}
int Os::link(const char* target, const char* link) { return ::link(target, link); }
int Os::symlink(const char* target, const char* link) { return ::symlink(target, link); }
void* Os::mmap(std::size_t size_bytes, int fd) { return ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0); }
int Os::munmap(void* at, std::size_t size_bytes) { return ::munmap(at, size_bytes); }
int Os::release_pages(void* at, std::size_t size_bytes) { return ::madvise(at, size_bytes, MADV_DONTNEED); }

void Files::hold_standard_streams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free descriptor is this one. Input that cannot be read and output that cannot be written fail.
    if (::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) != fd) return;
  }
}

}  // namespace argosy
