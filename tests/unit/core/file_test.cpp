#include "core/file.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

using test::refusal;
using testing::AllOf, testing::ElementsAre, testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  void put(const Path& name, std::string_view text) { files.write_atomically(folder / name, text); }
  std::string text(const Path& name) { return files.read_text(folder / name); }

  test::TempFolder folder;
  Files files = Files::system();
};

TEST_F(FilesTest, WritesAndReadsAtOffsets) {
  File file = files.create(folder / "a");
  file.write_at(as_bytes("world"), 6);
  file.write_at(as_bytes("hello "), 0);
  file.sync();
  EXPECT_EQ(file.stat().size_bytes, 11U);
  file.close();
  file.close();
  EXPECT_EQ(text("a"), "hello world");
  std::string part(5, ' ');
  files.open(folder / "a").read_at(as_writable_bytes(std::span<char>{part}), 3);
  EXPECT_EQ(part, "lo wo");
}

TEST_F(FilesTest, AFileThatEndsTooEarlyIsCorrupt) {
  put("a", "12345");
  std::string part(5, ' ');
  EXPECT_THAT(
      refusal(Fault::corrupt, [&] { files.open(folder / "a").read_at(as_writable_bytes(std::span<char>{part}), 2); }),
      HasSubstr("/a: expected at least 7 bytes, got 5 bytes; the file was cut short"));
}

TEST_F(FilesTest, WritesWhatIsNotThere) {
  EXPECT_TRUE(files.write_if_absent(folder / "a", "first"));
  EXPECT_FALSE(files.write_if_absent(folder / "a", "second"));
  EXPECT_EQ(text("a"), "first");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("a"));
}

TEST_F(FilesTest, OpensAsAsked) {
  EXPECT_THAT(
      refusal(Fault::data, [&] { (void)files.open(folder / "none"); }),
      AllOf(HasSubstr("no such file"), HasSubstr("/none cannot be opened: "), HasSubstr("(ENOENT); check the path")));
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.update(folder / "none"); }),
              HasSubstr("cannot be opened for writing"));
  EXPECT_THAT(refusal(Fault::io, [&] { (void)files.create(folder / "no/where"); }), HasSubstr("ENOENT"));
  put("a", "old");
  EXPECT_THAT(refusal(Fault::io, [&] { (void)files.create(folder / "a"); }), HasSubstr("EEXIST"));
  files.append(folder / "a").append(as_bytes("+new"));
  EXPECT_EQ(text("a"), "old+new");
  files.update(folder / "a").write_at(as_bytes("O"), 0);
  EXPECT_EQ(text("a"), "Old+new");
  files.replace(folder / "a").append(as_bytes("x"));
  EXPECT_EQ(text("a"), "x");
}

TEST_F(FilesTest, FilesOfOurOwnAreNoLinksAndNothingButFiles) {
  const Files own = files.own();
  put("theirs", "theirs");
  files.link_symbolically("theirs", folder / "link");
  const auto expect_no_link = [](const auto& use) { EXPECT_THAT(refusal(Fault::io, use), HasSubstr("ELOOP")); };
  expect_no_link([&] { (void)own.open(folder / "link"); });
  expect_no_link([&] { (void)own.map(folder / "link"); });
  expect_no_link([&] { (void)own.read_text(folder / "link"); });
  expect_no_link([&] { (void)own.update(folder / "link"); });
  expect_no_link([&] { (void)own.append(folder / "link"); });
  expect_no_link([&] { (void)own.replace(folder / "link"); });
  EXPECT_EQ(files.read_text(folder / "link"), "theirs");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);  // opening it would wait
  EXPECT_THAT(refusal(Fault::io, [&] { (void)own.read_text(folder / "fifo"); }), HasSubstr("expected a regular file"));
  EXPECT_THAT(refusal(Fault::io, [&] { (void)own.update(folder / "fifo"); }), HasSubstr("expected a regular file"));
  EXPECT_THAT(refusal(Fault::io, [&] { (void)own.append(folder / "fifo"); }), HasSubstr("ENXIO"));
  EXPECT_THAT(refusal(Fault::io, [&] { (void)own.read_text("/dev/zero"); }), HasSubstr("expected a regular file"));
  EXPECT_THAT(refusal(Fault::io, [&] { (void)own.open(folder.path()); }), HasSubstr("expected a regular file"));
  EXPECT_THAT(refusal(Fault::data, [&] { (void)own.open(folder / "none"); }), HasSubstr("ENOENT"));
  EXPECT_EQ(own.read_text(folder / "theirs"), "theirs");
}

TEST_F(FilesTest, TruncatesAndReserves) {
  File file = files.create(folder / "a");
  const bool reserved = file.reserve(1 << 20);
  EXPECT_TRUE(file.reserve(0));
  EXPECT_EQ(file.stat().size_bytes, reserved ? 1U << 20 : 0U);
  file.truncate(3);
  EXPECT_EQ(text("a"), std::string(3, '\0'));
}

TEST_F(FilesTest, ReservesNothingInMemory) {
  const int fd = memfd_create("argosy-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  Os os;
  File file{os, fd, "in memory"};
  EXPECT_FALSE(file.reserve(1 << 20));
  EXPECT_EQ(file.stat().size_bytes, 0U);
}

TEST_F(FilesTest, MapsWholeFiles) {
  put("a", "mapped");
  put("empty", "");
  Mapping mapping = files.map(folder / "a");
  const Mapping moved = std::move(mapping);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()), "mapped");
  EXPECT_TRUE(files.map(folder / "empty").bytes().empty());
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.map(folder.path()); }), HasSubstr("got a folder"));
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.map(folder / "none"); }), HasSubstr("ENOENT"));
}

TEST_F(FilesTest, AMappingGivesItsPagesBackAndReadsThemAgain) {
  constexpr std::size_t size = 16 << 20;
  put("large", std::string(size, 'x'));
  const Mapping mapping = files.map(folder / "large");
  const auto sum = [&] {
    return std::count(mapping.bytes().begin(), mapping.bytes().end(), static_cast<std::byte>('x'));
  };
  const auto resident_pages = [] {
    std::ifstream statm("/proc/self/statm");
    std::int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident;
  };
  EXPECT_EQ(sum(), static_cast<std::ptrdiff_t>(size));
  const std::int64_t before = resident_pages();
  mapping.release_pages();
  EXPECT_LT(resident_pages(), before - static_cast<std::int64_t>(size / 4096 / 2));
  EXPECT_EQ(sum(), static_cast<std::ptrdiff_t>(size));
  const std::int64_t again = resident_pages();
  mapping.release_pages(mapping.bytes().subspan(size / 2, 10));
  const std::int64_t given_back = again - resident_pages(), pages_around = (2 << 20) / 4096;
  EXPECT_GE(given_back, pages_around * 9 / 10);
  EXPECT_LE(given_back, pages_around * 11 / 10);
  mapping.release_pages({});
  EXPECT_EQ(sum(), static_cast<std::ptrdiff_t>(size));
  Mapping{}.release_pages();
}

TEST_F(FilesTest, OpensRegularFilesAloneAndWaitsForNobody) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  files.link_symbolically("pipe", folder / "link");
  for (const Path& path : {folder / "pipe", folder / "link", Path{"/dev/zero"}}) {
    EXPECT_THAT(refusal(Fault::data, [&] { (void)files.open(path); }), HasSubstr("expected a regular file, got a "));
    EXPECT_THAT(refusal(Fault::data, [&] { (void)files.map(path); }), HasSubstr(path.string()));
    EXPECT_THAT(refusal(Fault::data, [&] { (void)files.read_text(path); }), HasSubstr("choose a regular file"));
    EXPECT_THAT(refusal(Fault::io, [&] { (void)files.update(path); }), HasSubstr("expected a regular file, got a "));
    (void)refusal(Fault::io, [&] { (void)files.append(path); });
    (void)refusal(Fault::io, [&] { (void)files.replace(path); });
  }
  put("link", "a file");  // takes the name, whatever has it
  EXPECT_EQ(text("link"), "a file");
}

TEST_F(FilesTest, SeesEverythingThatHasAName) {
  put("file", "");
  files.link_symbolically("nowhere", folder / "link");
  for (const char* name : {"file", "link", "."}) EXPECT_TRUE(files.is_taken(folder / name)) << name;
  for (const char* name : {"none", "file/below", "none/below"}) EXPECT_FALSE(files.is_taken(folder / name)) << name;
}

TEST_F(FilesTest, ReadTextHasALimit) {
  put("a", "12345");
  EXPECT_EQ(files.read_text(folder / "a", 5), "12345");
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.read_text(folder / "a", 4); }),
              HasSubstr("a file of at most 4 bytes, got 5 bytes"));
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.read_text(folder.path()); }), HasSubstr("got a folder"));
}

TEST_F(FilesTest, WriteAtomicallyReplacesAndLeavesNothingBehind) {
  put("a", "one");
  put("a", "two");
  EXPECT_EQ(text("a"), "two");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("a"));
}

TEST_F(FilesTest, StatTellsWhatIsThere) {
  put("a", "123");
  const auto facts = files.stat(folder / "a");
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->size_bytes, 3U);
  EXPECT_FALSE(facts->is_directory);
  EXPECT_GT(facts->inode, 0U);
  EXPECT_GT(facts->mtime_ns, 1'700'000'000'000'000'000);
  EXPECT_GE(facts->ctime_ns, facts->mtime_ns);
  EXPECT_TRUE(files.stat(folder.path())->is_directory);
  EXPECT_FALSE(files.exists(folder / "none"));
  EXPECT_FALSE(files.exists(folder / "a/below-a-file"));
}

TEST_F(FilesTest, ListsSortedNames) {
  for (const char* name : {"b", "a", "C", "a.b"}) put(name, "");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("C", "a", "a.b", "b"));
  EXPECT_THAT(refusal(Fault::data, [&] { (void)files.list(folder / "none"); }), HasSubstr("cannot be listed"));
}

TEST_F(FilesTest, MakesFolders) {
  files.make_folders(folder / "x/y/z/");
  files.make_folders(folder / "x/y/z");
  EXPECT_TRUE(files.stat(folder / "x/y/z")->is_directory);
  EXPECT_THAT(refusal(Fault::io, [&] { files.make_folder(folder / "x"); }), HasSubstr("EEXIST"));
  put("file", "");
  EXPECT_THAT(refusal(Fault::io, [&] { files.make_folders(folder / "file"); }), HasSubstr("; remove it"));
  EXPECT_THAT(refusal(Fault::io, [&] { files.make_folders(folder / "file/below"); }),
              HasSubstr("a folder in the path is a file"));
  EXPECT_GT(files.free_bytes(folder.path()), 0U);
}

TEST_F(FilesTest, Renames) {
  put("a", "1");
  put("b", "2");
  EXPECT_FALSE(files.rename_noreplace(folder / "a", folder / "b"));
  EXPECT_EQ(text("b"), "2");
  EXPECT_TRUE(files.rename_noreplace(folder / "a", folder / "c"));
  files.rename(folder / "c", folder / "b");
  EXPECT_EQ(text("b"), "1");
  EXPECT_THAT(refusal(Fault::io, [&] { files.rename(folder / "none", folder / "b"); }),
              HasSubstr("cannot be renamed to "));
  files.make_folder(folder / "d");
  files.make_folder(folder / "e");
  put("e/f", "");
  EXPECT_FALSE(files.rename_noreplace(folder / "d", folder / "e"));
}

TEST_F(FilesTest, ALinkThatAServerMadeBeforeItWasAskedAgainIsOurs) {
  class AskedTwice : public Os {
   public:
    int rename_noreplace(const char*, const char*) override {
      errno = EINVAL;
      return -1;
    }
    int link(const char* from, const char* to) override {
      Os::link(from, to);
      errno = EEXIST;
      return -1;
    }
  } os;
  put("a", "1");
  put("b", "2");
  const Files twice{os};
  EXPECT_TRUE(twice.rename_noreplace(folder / "a", folder / "c"));
  EXPECT_EQ(text("c"), "1");
  EXPECT_FALSE(files.exists(folder / "a"));
  EXPECT_FALSE(twice.rename_noreplace(folder / "c", folder / "b"));
  EXPECT_EQ(text("b"), "2");
  EXPECT_EQ(text("c"), "1");
}

TEST_F(FilesTest, RemovesTreesButNotWhatLinksPointAt) {
  files.make_folders(folder / "keep");
  put("keep/a", "1");
  files.make_folders(folder / "t/u/v");
  put("t/u/f", "1");
  files.link_symbolically(folder / "keep", folder / "t/link");
  files.link_symbolically("nowhere", folder / "t/u/broken");
  files.remove_tree(folder / "t");
  files.remove_tree(folder / "t");
  files.remove(folder / "keep/none");
  EXPECT_THAT(files.list(folder.path()), ElementsAre("keep"));
  EXPECT_EQ(text("keep/a"), "1");
  files.remove(folder / "keep/a");
  EXPECT_FALSE(files.exists(folder / "keep/a"));
}

TEST_F(FilesTest, MovedFilesKeepTheirDescriptor) {
  File a = files.create(folder / "a");
  const int fd = a.fd();
  File b = std::move(a);
  EXPECT_EQ(b.fd(), fd);
  EXPECT_EQ(b.path(), folder / "a");
  File c;
  c = std::move(b);
  EXPECT_EQ(c.fd(), fd);
  c.append(as_bytes("x"));
  c = File{};
  EXPECT_EQ(text("a"), "x");
}

}  // namespace
}  // namespace argosy
