#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

/// Every system call of the door failing, cut short or forgotten once, for every n: callers see one clear error or the
/// right result, never half a file under its final name, and no descriptor is lost.
namespace argosy::test {
namespace {

using testing::AnyOf, testing::ElementsAre, testing::HasSubstr;

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

/// Exercises the door once for each of its calls: `plan(door, n)` says what goes wrong with the n-th, and
/// `check(door, n, error)` looks at what became of it.
template <class Plan, class Check>
void exercise_every_call(const Plan& plan, const Check& check) {
  FaultyOs sound;
  exercise(Files{sound}, TempFolder{}.path());
  for (std::size_t n = 0; n < sound.count(); ++n) {
    const TempFolder folder;
    FaultyOs os;
    plan(os, n);
    const std::optional<Error> error = caught([&] { exercise(Files{os}, folder.path()); });
    EXPECT_EQ(os.open_files(), 0U) << "descriptor lost after call " << n;
    check(os, n, error);
  }
}

class FileFaults : public testing::Test {
 protected:
  const TempFolder folder;
  FaultyOs os;
  const Files files{os};
};

TEST_F(FileFaults, TheExerciseCoversTheWholeDoor) {
  exercise(files, folder.path());
  EXPECT_EQ(os.open_files(), 0U);
  for (int call = 0; call <= static_cast<int>(Call::munmap); ++call)
    EXPECT_TRUE(static_cast<Call>(call) == Call::link ||  // only where rename_noreplace is missing, see below
                os.count(static_cast<Call>(call)) > 0)
        << "call " << call << " is not exercised";
}

TEST_F(FileFaults, AnErrorAtAnyCallIsReportedOnce) {
  for (const int code : {EIO, ENOSPC, EDQUOT, ESTALE}) {
    SCOPED_TRACE(strerrorname_np(code));
    const auto check = [&](const FaultyOs& door, std::size_t n, const std::optional<Error>& error) {
      if (!error) {
        EXPECT_THAT(door.records()[n].call, AnyOf(Call::close, Call::munmap)) << "call " << n << " failed unnoticed";
        return;
      }
      EXPECT_EQ(error->fault(), Fault::io) << error->what();
      EXPECT_THAT(error->what(), HasSubstr(strerrorname_np(code)));
      EXPECT_THAT(error->what(), AnyOf(HasSubstr("argosy-test-"), HasSubstr("standard "))) << "the path is named";
    };
    exercise_every_call([&](FaultyOs& door, std::size_t n) { door.fail(n, code); }, check);
  }
}

TEST_F(FileFaults, ALinkThatMayNotBeRemovedIsNotFollowed) {
  files.make_folder(folder / "elsewhere");
  files.write_atomically(folder / "elsewhere/kept", new_text);
  files.link_symbolically(folder / "elsewhere", folder / "link");
  os.fail(Call::unlink, 0, EPERM);
  EXPECT_THAT(error_of([&] { files.remove_tree(folder / "link"); }).what(),
              HasSubstr("cannot be removed: operation not permitted (EPERM)"));
  EXPECT_EQ(files.read_text(folder / "elsewhere/kept"), new_text);
}

TEST_F(FileFaults, InterruptedCallsAreRepeated) {
  const auto check = [](const FaultyOs& door, std::size_t n, const std::optional<Error>& error) {
    EXPECT_TRUE(!error || door.records()[n].call == Call::mmap) << error->what();  // which no signal interrupts
  };
  exercise_every_call([](FaultyOs& door, std::size_t n) { door.fail(n, EINTR); }, check);
}

TEST_F(FileFaults, ShortTransfersAreContinued) {
  const auto check = [](const FaultyOs&, std::size_t n, const std::optional<Error>& error) {
    EXPECT_FALSE(error) << "call " << n << ": " << error->what();
  };
  exercise_every_call([](FaultyOs& door, std::size_t n) { door.shorten(n); }, check);
}

TEST_F(FileFaults, ACloseThatFailsIsReported) {
  os.fail(Call::close, 0, EIO);
  File file = files.create(folder / "a");
  EXPECT_THROW(file.close(), Error);
  EXPECT_NO_THROW(file.close()) << "the descriptor is gone: nothing is left to close";
  EXPECT_EQ(os.count(Call::close), 1U);
}

TEST_F(FileFaults, ReadersSeeTheOldOrTheNewContentWhereverItStops) {
  for (std::size_t n = 0; n < 8; ++n) {  // open write fsync close rename open fsync close
    for (const bool crash : {false, true}) {
      const TempFolder place;
      Files::system().write_atomically(place / "a", old_text);
      FaultyOs failing;
      crash ? failing.crash(n) : failing.fail(n, EIO);
      const bool failed = caught([&] { Files{failing}.write_atomically(place / "a", new_text); }).has_value();
      const std::string now = Files::system().read_text(place / "a");
      EXPECT_THAT(now, AnyOf(old_text, new_text)) << "call " << n;
      EXPECT_TRUE(failed || now == new_text) << "success was reported at call " << n;
      if (crash) continue;
      EXPECT_THAT(Files::system().list(place.path()), ElementsAre("a")) << "left behind at call " << n;
    }
  }
}

TEST_F(FileFaults, AtomicWritesReachTheDiskBeforeTheRename) {
  files.write_atomically(folder / "a", new_text);
  std::vector<Call> order;
  for (const auto& record : os.records()) order.push_back(record.call);
  EXPECT_THAT(order, ElementsAre(Call::open, Call::write, Call::fsync, Call::close, Call::rename, Call::open,
                                 Call::fsync, Call::close));
  EXPECT_EQ(os.records()[6].path, folder.path().string()) << "the folder is synced last";
}

TEST_F(FileFaults, AFileSystemWithoutReservationIsAccepted) {
  os.fail(Call::fallocate, 0, EOPNOTSUPP);
  EXPECT_FALSE(files.create(folder / "a").reserve(1 << 20));
}

TEST_F(FileFaults, AFileSystemThatTakesNoHintsIsAccepted) {
  File file = files.create(folder / "a");
  file.write_at(as_bytes(new_text), 0);
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    os.fail(Call::sync_file_range, os.count(Call::sync_file_range), error);
    EXPECT_NO_THROW(file.start_writeback(0, new_text.size())) << error;
  }
  file.start_writeback(0, 0);
  EXPECT_EQ(os.count(Call::sync_file_range), 3U) << "a length of 0 would mean the whole file";
}

TEST_F(FileFaults, AFileSystemThatCannotSyncFoldersIsAccepted) {
  os.fail(Call::fsync, 0, EINVAL);
  os.fail(Call::fsync, 1, EINVAL);
  EXPECT_NO_THROW(files.sync_folder(folder.path()));
  EXPECT_THROW(files.create(folder / "a").sync(), Error) << "of a file EINVAL is an error";
}

TEST_F(FileFaults, RenameWithoutReplacingWorksWhereTheCallIsMissing) {
  for (const int error : {EINVAL, ENOSYS}) {
    const TempFolder place;
    os.forget_all();
    os.fail(Call::rename_noreplace, 0, error, true);
    files.write_atomically(place / "a", old_text);
    files.write_atomically(place / "b", new_text);
    EXPECT_FALSE(files.rename_noreplace(place / "a", place / "b"));
    EXPECT_EQ(files.read_text(place / "b"), new_text);
    EXPECT_TRUE(files.rename_noreplace(place / "a", place / "c"));
    EXPECT_EQ(files.read_text(place / "c"), old_text);
    EXPECT_EQ(files.list(place.path()), (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(os.count(Call::rename), 2U) << "a second name cannot replace what another has made meanwhile";
    files.make_folder(place / "d");
    EXPECT_FALSE(files.rename_noreplace(place / "d", place / "c"));
    EXPECT_TRUE(files.rename_noreplace(place / "d", place / "e"));
  }
}

TEST_F(FileFaults, AWriteThatMovesNothingIsAnError) {
  class StuckOs : public Os {
   public:
    std::int64_t pwrite(int, const void*, std::size_t, std::int64_t) override { return 0; }
    std::int64_t write(int, const void*, std::size_t) override { return 0; }
  } stuck;
  EXPECT_THROW(Files{stuck}.create(folder / "a").write_at(as_bytes("x"), 0), Error);
  EXPECT_THROW(Files{stuck}.append(folder / "a").append(as_bytes("x")), Error);
}

// A real full disk: the file size limit answers EFBIG as a full device answers ENOSPC.
TEST_F(FileFaults, ARealLimitIsReported) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const Error error = error_of([&] { Files::system().write_atomically(folder / "a", std::string(10000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(error.what(), HasSubstr("file too large (EFBIG)"));
  EXPECT_THAT(Files::system().list(folder.path()), ElementsAre());
}

}  // namespace
}  // namespace argosy::test
