#include <gtest/gtest.h>

#include "core/file_name.hpp"
#include "core/staged.hpp"
#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/own_process.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

class StagedFolderTest : public testing::Test {
 protected:
  [[nodiscard]] static Owner self() { return Owner::of_this_process(Files::system(), Clock{}); }
  [[nodiscard]] std::vector<std::string> names() const { return files.list(folder.path()); }
  void sweep() const { sweep_staged_folders(files, Log{0, LogLevel::off}, folder.path(), self()); }

  Files files = Files::system();
  test::TempFolder folder;
};

TEST_F(StagedFolderTest, ExistsUnderItsNameOnlyOnceCommitted) {
  const StagedFolder staged{files, folder / "a/out", owned_nonce(self())};
  EXPECT_TRUE(names().empty()) << "touches nothing";
  staged.make();
  files.write_atomically(staged.path() / "x", std::string_view{"whole"});
  EXPECT_FALSE(files.exists(folder / "a/out"));
  EXPECT_TRUE(staged.commit());
  EXPECT_EQ(files.list(folder / "a"), std::vector<std::string>{"out"});
  EXPECT_EQ(files.read_text(folder / "a/out/x"), "whole");
}

TEST_F(StagedFolderTest, ReplacesNothingThatHasTheName) {
  class Old : public Os {  // a file system without a rename that replaces nothing
   public:
    int rename_noreplace(const char*, const char*) override { return errno = EINVAL, -1; }
  } old;
  Os usual;
  for (Os* const os : {&usual, static_cast<Os*>(&old)}) {
    const Files here{*os};
    files.make_folder(folder / "empty");
    files.write_atomically(folder / "file", std::string_view{"mine"});
    files.link_symbolically("nowhere", folder / "link");
    for (const char* name : {"empty", "file", "link"}) {
      const StagedFolder staged{here, folder / name, owned_nonce(self())};
      staged.make();
      EXPECT_FALSE(staged.commit()) << name;
      staged.discard();
      EXPECT_TRUE(files.is_taken(folder / name));
    }
    EXPECT_EQ(names(), (std::vector<std::string>{"empty", "file", "link"}));
    for (const char* name : {"empty", "file", "link"}) files.remove_tree(folder / name);
  }
}

TEST_F(StagedFolderTest, SeesARenameThatWasDoneAndDenied) {
  class Nfs : public Os {
   public:
    int rename_noreplace(const char* from, const char* to) override {
      Os::rename_noreplace(from, to);
      return errno = ENOENT, -1;
    }
  } os;
  const StagedFolder staged{Files{os}, folder / "out", owned_nonce(self())};
  staged.make();
  EXPECT_TRUE(staged.commit());
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(StagedFolderTest, SweepsThoseOfTheDeadAndNothingElse) {
  Owner dead = self();
  const auto leave = [&](const std::string& name) {
    files.make_folders(folder / name / "deep");
    return name;
  };
  const auto staged_name = [&](const Owner& owner) {
    return StagedFolder{files, folder / "out", owned_nonce(owner)}.path().filename().string();
  };
  const std::string alive = leave(staged_name(dead));
  dead.pid = test::dead_pid();
  leave(staged_name(dead));
  Owner unseen = dead;
  ++unseen.pid_namespace;
  const std::string container = leave(staged_name(unseen));
  unseen = dead;
  unseen.host += "x";
  const std::string elsewhere = leave(staged_name(unseen));
  const std::string users = leave(".tmp-out-" + std::string(8, 'a')), also = leave(staged_name(dead).substr(5));
  sweep();
  std::vector<std::string> left{alive, container, elsewhere, users, also};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(names(), left);
}

TEST_F(StagedFolderTest, LongNamesOfHostsAndResultsFit) {
  Owner owner = self();
  owner.host = std::string(64, 'h');
  owner.slurm_job = std::string(64, '9');
  owner.pid = 4194304;
  const StagedFolder sample{files, folder / std::string(255, 'n'), owned_nonce(owner)};
  const StagedFolder staged{files, sample.path(), owned_nonce(owner)};  // as a soup that is judged is made
  for (const StagedFolder* const made : {&sample, &staged}) {
    EXPECT_LE(made->path().filename().native().size(), longest_name_bytes);
    made->make();
  }
  EXPECT_TRUE(sample.commit());
}

TEST_F(StagedFolderTest, AFailureAnywhereLeavesAllOrNothing) {
  std::size_t calls = 1;
  for (std::size_t n = 0; n < calls; ++n) {
    const Path target = folder / fmt::format("{}/out", n);
    test::FaultyOs os;
    os.fail(n, EIO);
    const StagedFolder staged{Files{os}, target, owned_nonce(self())};
    bool committed = false;
    const auto error = test::caught([&] {
      staged.make();
      committed = staged.commit();
    });
    EXPECT_TRUE(!error || error->fault() == Fault::io);
    if (!committed) staged.discard();
    calls = os.count();
    EXPECT_EQ(os.open_files(), 0U);
    EXPECT_TRUE(!committed || files.exists(target)) << n;
  }
  EXPECT_GT(calls, 5U);
}

}  // namespace
}  // namespace argosy
