#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "core/error.hpp"
#include "support/faulty_os.hpp"
#include "support/temp_folder.hpp"

/// Every system call of the door failing, cut short or forgotten once, for every n: callers see one clear error or the
/// right result, never half a file under its final name, and no descriptor is lost.
namespace argosy::test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string old_text = "old content", new_text = "the new content, a little longer";

/// A standard stream that is a file for a while.
class Redirected {
 public:
  Redirected(int stream, const Path& path) : stream_(stream), saved_(dup(stream)) {
    std::fflush(stdout);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    dup2(fd, stream_);
    ::close(fd);
  }
  ~Redirected() {
    dup2(saved_, stream_);
    ::close(saved_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int stream_, saved_;
};

/// A representative sequence over the whole door.
void exercise(const Files& files, const Path& folder) {
  files.make_folders(folder / "a/b");
  files.write_atomically(folder / "a/b/text", new_text);
  File file = files.create(folder / "a/data");
  file.reserve(64);
  file.write_at(as_bytes(std::string(64, 'd')), 0);
  file.start_writeback(0, 64);
  file.truncate(32);
  file.sync();
  file.close();
  files.append(folder / "a/data").append(as_bytes("tail"));
  std::string back(36, ' ');
  files.open(folder / "a/data").read_at(as_writable_bytes(std::span<char>{back}), 0);
  EXPECT_EQ(back, std::string(32, 'd') + "tail");
  const Mapping mapping = files.map(folder / "a/data");
  EXPECT_EQ(mapping.bytes().size(), 36U);
  EXPECT_TRUE(files.rename_noreplace(folder / "a/data", folder / "a/moved"));
  files.rename(folder / "a/moved", folder / "a/data");
  files.link_symbolically("data", folder / "a/link");
  EXPECT_GT(files.free_bytes(folder), 0U);
  EXPECT_EQ(files.read_text(folder / "a/b/text"), new_text);
  {
    const Redirected output{STDOUT_FILENO, folder / "a/output"};
    files.print(new_text);
  }
  {
    const Redirected input{STDIN_FILENO, folder / "a/output"};
    File in = files.standard_input();
    std::string text(100, ' ');
    text.resize(in.read(as_writable_bytes(std::span<char>{text})));
    EXPECT_EQ(text, new_text);
  }
  files.remove(folder / "a/link");
  files.remove_tree(folder / "a");
  EXPECT_FALSE(files.exists(folder / "a"));
}

std::size_t calls_of_exercise() {
  const TempFolder folder;
  FaultyOs os;
  exercise(Files{os}, folder.path());
  EXPECT_EQ(os.open_files(), 0U);
  return os.count();
}

TEST(FileFaults, TheExerciseCoversTheWholeDoor) {
  const TempFolder folder;
  FaultyOs os;
  exercise(Files{os}, folder.path());
  for (int call = 0; call <= static_cast<int>(Call::munmap); ++call)
    EXPECT_TRUE(static_cast<Call>(call) == Call::link ||  // only where rename_noreplace is missing, see below
                os.count(static_cast<Call>(call)) > 0)
        << "call " << call << " is not exercised";
}

TEST(FileFaults, AnErrorAtAnyCallIsReportedOnce) {
  const std::size_t calls = calls_of_exercise();
  for (const int error : {EIO, ENOSPC, EDQUOT, ESTALE}) {
    for (std::size_t n = 0; n < calls; ++n) {
      const TempFolder folder;
      FaultyOs os;
      os.fail(n, error);
      try {
        exercise(Files{os}, folder.path());
        EXPECT_THAT(os.records()[n].call, AnyOf(Call::close, Call::munmap))
            << "call " << n << " failed with " << strerrorname_np(error) << " unnoticed";
      } catch (const Error& caught) {
        EXPECT_EQ(caught.fault(), Fault::io) << caught.what();
        EXPECT_THAT(caught.what(), HasSubstr(strerrorname_np(error)));
        EXPECT_THAT(caught.what(), AnyOf(HasSubstr("argosy-test-"), HasSubstr("standard "))) << "the path is named";
      }
      EXPECT_EQ(os.open_files(), 0U) << "descriptor lost after call " << n;
    }
  }
}

TEST(FileFaults, ALinkThatMayNotBeRemovedIsNotFollowed) {
  const TempFolder folder;
  FaultyOs os;
  const Files files{os};
  files.make_folder(folder / "elsewhere");
  files.write_atomically(folder / "elsewhere/kept", new_text);
  files.link_symbolically(folder / "elsewhere", folder / "link");
  os.fail(Call::unlink, 0, EPERM);
  try {
    files.remove_tree(folder / "link");
    ADD_FAILURE() << "removed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be removed: operation not permitted (EPERM)"));
  }
  EXPECT_EQ(files.read_text(folder / "elsewhere/kept"), new_text);
}

TEST(FileFaults, InterruptedCallsAreRepeated) {
  const std::size_t calls = calls_of_exercise();
  for (std::size_t n = 0; n < calls; ++n) {
    const TempFolder folder;
    FaultyOs os;
    os.fail(n, EINTR);
    try {
      exercise(Files{os}, folder.path());
    } catch (const Error& error) {
      EXPECT_EQ(os.records()[n].call, Call::mmap) << error.what();  // which no signal interrupts
    }
  }
}

TEST(FileFaults, ShortTransfersAreContinued) {
  const std::size_t calls = calls_of_exercise();
  for (std::size_t n = 0; n < calls; ++n) {
    const TempFolder folder;
    FaultyOs os;
    os.shorten(n);
    EXPECT_NO_THROW(exercise(Files{os}, folder.path())) << "call " << n;
  }
}

TEST(FileFaults, ACloseThatFailsIsReported) {
  const TempFolder folder;
  FaultyOs os;
  os.fail(Call::close, 0, EIO);
  File file = Files{os}.create(folder / "a");
  EXPECT_THROW(file.close(), Error);
  EXPECT_NO_THROW(file.close()) << "the descriptor is gone: nothing is left to close";
  EXPECT_EQ(os.count(Call::close), 1U);
}

TEST(FileFaults, ReadersSeeTheOldOrTheNewContentWhereverItStops) {
  std::size_t calls = 0;
  {
    const TempFolder folder;
    FaultyOs os;
    Files{os}.write_atomically(folder / "a", new_text);
    calls = os.count();
  }
  ASSERT_GE(calls, 8U);  // open write fsync close rename open fsync close
  for (std::size_t n = 0; n < calls; ++n) {
    for (const bool crash : {false, true}) {
      const TempFolder folder;
      Files::system().write_atomically(folder / "a", old_text);
      FaultyOs os;
      crash ? os.crash(n) : os.fail(n, EIO);
      bool failed = false;
      try {
        Files{os}.write_atomically(folder / "a", new_text);
      } catch (const Error&) {
        failed = true;
      }
      const std::string now = Files::system().read_text(folder / "a");
      EXPECT_THAT(now, AnyOf(old_text, new_text)) << "call " << n;
      EXPECT_TRUE(failed || now == new_text) << "success was reported at call " << n;
      if (crash) continue;
      EXPECT_THAT(Files::system().list(folder.path()), ElementsAre("a")) << "left behind at call " << n;
    }
  }
}

TEST(FileFaults, AtomicWritesReachTheDiskBeforeTheRename) {
  const TempFolder folder;
  FaultyOs os;
  Files{os}.write_atomically(folder / "a", new_text);
  std::vector<Call> order;
  for (const auto& record : os.records()) order.push_back(record.call);
  EXPECT_THAT(order, ElementsAre(Call::open, Call::write, Call::fsync, Call::close, Call::rename, Call::open,
                                 Call::fsync, Call::close));
  EXPECT_EQ(os.records()[6].path, folder.path().string()) << "the folder is synced last";
}

TEST(FileFaults, AFileSystemWithoutReservationIsAccepted) {
  const TempFolder folder;
  FaultyOs os;
  os.fail(Call::fallocate, 0, EOPNOTSUPP);
  EXPECT_FALSE(Files{os}.create(folder / "a").reserve(1 << 20));
}

TEST(FileFaults, AFileSystemThatTakesNoHintsIsAccepted) {
  const TempFolder folder;
  FaultyOs os;
  File file = Files{os}.create(folder / "a");
  file.write_at(as_bytes(new_text), 0);
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    os.fail(Call::sync_file_range, os.count(Call::sync_file_range), error);
    EXPECT_NO_THROW(file.start_writeback(0, new_text.size())) << error;
  }
  file.start_writeback(0, 0);
  EXPECT_EQ(os.count(Call::sync_file_range), 3U) << "a length of 0 would mean the whole file";
}

TEST(FileFaults, AFileSystemThatCannotSyncFoldersIsAccepted) {
  const TempFolder folder;
  FaultyOs os;
  os.fail(Call::fsync, 0, EINVAL);
  os.fail(Call::fsync, 1, EINVAL);
  EXPECT_NO_THROW(Files{os}.sync_folder(folder.path()));
  EXPECT_THROW(Files{os}.create(folder / "a").sync(), Error) << "of a file EINVAL is an error";
}

TEST(FileFaults, RenameWithoutReplacingWorksWhereTheCallIsMissing) {
  for (const int error : {EINVAL, ENOSYS}) {
    const TempFolder folder;
    FaultyOs os;
    os.fail(Call::rename_noreplace, 0, error, true);
    const Files files{os};
    files.write_atomically(folder / "a", old_text);
    files.write_atomically(folder / "b", new_text);
    EXPECT_FALSE(files.rename_noreplace(folder / "a", folder / "b"));
    EXPECT_EQ(files.read_text(folder / "b"), new_text);
    EXPECT_TRUE(files.rename_noreplace(folder / "a", folder / "c"));
    EXPECT_EQ(files.read_text(folder / "c"), old_text);
    EXPECT_EQ(files.list(folder.path()), (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(os.count(Call::rename), 2U) << "a second name cannot replace what another has made meanwhile";
    files.make_folder(folder / "d");
    EXPECT_FALSE(files.rename_noreplace(folder / "d", folder / "c"));
    EXPECT_TRUE(files.rename_noreplace(folder / "d", folder / "e"));
  }
}

TEST(FileFaults, AWriteThatMovesNothingIsAnError) {
  const TempFolder folder;
  class StuckOs : public Os {
   public:
    std::int64_t pwrite(int, const void*, std::size_t, std::int64_t) override { return 0; }
    std::int64_t write(int, const void*, std::size_t) override { return 0; }
  } os;
  EXPECT_THROW(Files{os}.create(folder / "a").write_at(as_bytes("x"), 0), Error);
  EXPECT_THROW(Files{os}.append(folder / "a").append(as_bytes("x")), Error);
}

// A real full disk: the file size limit answers EFBIG as a full device answers ENOSPC.
TEST(FileFaults, ARealLimitIsReported) {
  const TempFolder folder;
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    Files::system().write_atomically(folder / "a", std::string(10000, 'x'));
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(message, HasSubstr("file too large (EFBIG)"));
  EXPECT_THAT(Files::system().list(folder.path()), ElementsAre());
}

TEST(FaultyOs, ForgetsAndRecords) {
  const TempFolder folder;
  FaultyOs os;
  os.keep_content();
  os.forget(Call::pwrite, 1);
  File file = Files{os}.create(folder / "a");
  file.write_at(as_bytes("one"), 0);
  file.write_at(as_bytes("two"), 3);
  EXPECT_EQ(file.stat().size_bytes, 3U) << "the second write was forgotten";
  ASSERT_EQ(os.records().size(), 4U);
  EXPECT_EQ(os.records()[2].content, "two");
  EXPECT_EQ(os.records()[2].offset, 3);
  EXPECT_EQ(os.records()[2].path, (folder / "a").string());
}

}  // namespace
}  // namespace argosy::test
