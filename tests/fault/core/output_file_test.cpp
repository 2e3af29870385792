#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>

#include "core/staged.hpp"
#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/own_process.hpp"
#include "support/refusal.hpp"
#include "support/small_disk.hpp"

/// A file written piece by piece, with every call failing in turn: under its name is the old content or the whole new
/// one, whatever happens.
namespace argosy::test {
namespace {

using testing::AnyOf, testing::ElementsAre, testing::HasSubstr, testing::MatchesRegex;

void write(const Files& files, const Path& path, std::string_view text) {
  OutputFile file{files, path};
  file.append(text.substr(0, text.size() / 2));
  file.append(text.substr(text.size() / 2));
  file.commit();
}

class OutputFileTest : public testing::Test {
 protected:
  std::string text(const Path& name) { return files.read_text(folder / name); }

  TempFolder folder;
  Files files = Files::system();
  const Path out = folder / "out";
};

TEST_F(OutputFileTest, IsTheOldOrTheWholeNewContentWhateverCallFails) {
  FaultyOs sound;
  write(Files{sound}, out, "new, all of it");
  for (const int code : {ENOSPC, EIO, EDQUOT}) {
    for (std::size_t n = 0; n < sound.count(); ++n) {
      files.write_atomically(out, "old");
      FaultyOs os;
      os.fail(n, code);
      const std::optional<Error> error = caught([&] { write(Files{os}, out, "new, all of it"); });
      if (error) {
        EXPECT_EQ(exit_code(error->fault()), Exit::io) << error->what();
        EXPECT_THAT(error->what(), HasSubstr(strerrorname_np(code)));
      }
      EXPECT_EQ(os.open_files(), 0U) << n;
      EXPECT_THAT(files.list(folder.path()), ElementsAre("out")) << n;
      EXPECT_THAT(text("out"), error ? AnyOf("old", "new, all of it") : AnyOf("new, all of it", "")) << n;
      const Call call = sound.records()[n].call;
      if (call == Call::write || call == Call::rename) {
        EXPECT_TRUE(error && text("out") == "old") << n;
      }
    }
  }
}

TEST_F(OutputFileTest, AKilledProcessLeavesTheOldContent) {
  files.write_atomically(out, "old");
  exit_code_in_child([&] {
    OutputFile file{files, out};
    file.append("new");
    return std::raise(SIGKILL);
  });
  EXPECT_EQ(text("out"), "old");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("out", MatchesRegex("out\\.tmp-[0-9a-f]{16}")));
}

TEST_F(OutputFileTest, OfTwoWritersTheLastToFinishWins) {
  OutputFile first{files, out};
  OutputFile second{files, out};
  first.append("first");
  second.append("second");
  second.commit();
  first.commit();
  EXPECT_EQ(text("out"), "first");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("out"));
}

TEST_F(OutputFileTest, AFullDiskLeavesNothing) {
  if (!may_mount()) return;
  const SmallDisk disk{64 << 10};
  EXPECT_THAT(refusal(Fault::io, [&] { write(files, disk.path() / "out", std::string(1 << 20, 'x')); }),
              HasSubstr("ENOSPC"));
  EXPECT_TRUE(files.list(disk.path()).empty());
}

TEST_F(OutputFileTest, IsAsPlacedAsItsNameSays) {
  EXPECT_THAT(refusal(Fault::io, [&] { OutputFile(files, folder / "missing/out"); }), HasSubstr("ENOENT"));
  EXPECT_THAT(refusal(Fault::usage, [&] { OutputFile(files, folder.path()); }), HasSubstr("got a folder"));
  EXPECT_THAT(refusal(Fault::usage, [&] { OutputFile(files, "/dev/null"); }), HasSubstr("expected a regular file"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(Fault::usage, [&] { OutputFile(files, folder / "fifo"); }), HasSubstr("expected a regular file"));

  files.make_folder(folder / "elsewhere");
  files.write_atomically(folder / "elsewhere/target", "old");
  files.link_symbolically("elsewhere/target", folder / "link");
  write(files, folder / "link", "new");
  EXPECT_EQ(text("elsewhere/target"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

}  // namespace
}  // namespace argosy::test
