// Preprocessing onto a disk that is full at any moment.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "core/lease.hpp"
#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/later_process_os.hpp"
#include "support/on_root.hpp"
#include "support/verses_to_preprocess.hpp"

namespace argosy::data {
namespace {

using test::Call, test::world;

/// Calls for which a full disk may show; a file system that allocates late tells of it in fsync or close.
bool may_lack_space(const test::FaultyOs::Record& record) {
  if (record.call == Call::open) return (record.flags & O_CREAT) != 0;
  const std::set calls{Call::write,     Call::pwrite,    Call::fsync, Call::close,
                       Call::ftruncate, Call::fallocate, Call::mkdir, Call::rename};
  return calls.contains(record.call);
}

class PreprocessOnAFullDisk : public testing::Test {
 protected:
  using Contents = std::map<std::string, std::string>;

  void run(Os& os) { (void)run_preprocess(world(), Files{os}, Log{world().rank(), LogLevel::error}, settings_); }

  /// Back to the texts alone, and to the trained tokenizer in the cache, which takes long.
  void forget() {
    world().barrier("run is over");
    test::on_root([&] {
      const Files files = Files::system();
      files.remove_tree(folder_ / "shards");
      files.remove_tree(folder_ / "model");
      for (const std::string& name : files.list(folder_ / "cache"))
        if (name != "tokenizers") files.remove_tree(folder_ / "cache" / name);
    });
  }

  /// What is in both folders, by name.
  Contents contents() {
    Contents found;
    const Files files = Files::system();
    for (const char* folder : {"shards", "model"}) {
      if (!files.exists(folder_ / folder)) continue;
      for (const std::string& name : files.list(folder_ / folder))
        if (!is_lease_name(name)) found[name] = files.read_text(folder_ / folder / name);
    }
    world().barrier("looked");
    return found;
  }

  test::SharedFolder folder_;
  test::LaterProcessOs sound_{folder_ / ("stat" + std::to_string(world().rank()))};  // follows whichever failed
  PreprocessSettings settings_ = test::verses_to_preprocess(folder_, 100, 200, 40);
};

TEST_F(PreprocessOnAFullDisk, LeavesOnlyWholeFilesAndFinishesWhenThereIsRoom) {
  const bool failing = world().rank() == world().size() - 1;
  run(sound_);
  forget();
  test::FaultyOs watched;
  run(watched);
  world().barrier("undisturbed run is over");
  const Contents finished = contents();
  ASSERT_EQ(finished.size(), 6U) << "three shards and their index, tokenizer and its recipe";

  std::string chosen;  // numbers of the calls of the last rank
  const std::vector<test::FaultyOs::Record> records = watched.records();
  for (std::size_t n = 0; n < records.size(); ++n)
    if (may_lack_space(records[n])) chosen += fmt::format("{} ", n);
  std::istringstream numbers{world().broadcast(chosen, world().size() - 1)};
  int refused = 0;
  for (std::size_t n = 0; numbers >> n;) {
    forget();
    test::FaultyOs os;
    if (failing) os.fail(n, ENOSPC);
    const std::optional<Error> error = test::caught([&] { run(os); });
    if (error) {
      EXPECT_EQ(exit_code(error->fault()), Exit::io) << error->what();
      EXPECT_THAT(error->what(), testing::HasSubstr("ENOSPC"));
    }
    world().barrier("disturbed run is over");
    refused += error ? 1 : 0;
    const std::string where =
        failing ? fmt::format("call {}, kind {} on {}", n, static_cast<int>(records[n].call), records[n].path) : "";
    EXPECT_EQ(os.open_files(), 0U) << where;
    const Contents left = contents();
    for (const auto& [name, bytes] : left)
      EXPECT_TRUE(finished.contains(name) && finished.at(name) == bytes) << where << " left " << name;
    EXPECT_TRUE(error || left == finished) << where;
    run(sound_);
    world().barrier("last run is over");
    EXPECT_TRUE(contents() == finished) << where;
  }
  EXPECT_GT(refused, world().size() == 1 ? 30 : 6);  // the first of two ranks writes most files
}

}  // namespace
}  // namespace argosy::data
