// Preprocessing onto a disk that is full at any moment.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.hpp"
#include "core/lease.hpp"
#include "data/preprocess.hpp"
#include "support/faulty_os.hpp"
#include "support/later_process_os.hpp"
#include "support/shared_folder.hpp"
#include "support/small_text.hpp"

namespace argosy::data {
namespace {

using test::Call;
using test::world;

/// Calls for which a full disk may show; a file system that allocates late tells of it in fsync or close.
bool may_lack_space(const test::FaultyOs::Record& record) {
  switch (record.call) {
    case Call::open:
      return (record.flags & O_CREAT) != 0;
    case Call::write:
    case Call::pwrite:
    case Call::fsync:
    case Call::close:
    case Call::ftruncate:
    case Call::fallocate:
    case Call::mkdir:
    case Call::rename:
      return true;
    default:
      return false;
  }
}

class PreprocessOnAFullDisk : public testing::Test {
 protected:
  using Contents = std::map<std::string, std::string>;

  PreprocessOnAFullDisk() {
    const test::Verses text = test::verses(100);
    CorpusConfig corpus{.name = "verses", .languages = {"en", "es"}};
    corpus.source = folder_.write("verses.en", test::joined(text.english));
    corpus.target = folder_.write("verses.es", test::joined(text.spanish));
    settings_.data.corpora.push_back(corpus);
    settings_.data.tokenizer = folder_ / "model/spm.model";
    settings_.data.shards = folder_ / "shards";
    settings_.data.tokenizer_training = TokenizerTraining{.vocab_size = 200};
    settings_.cache = folder_ / "cache";
    settings_.lines_per_shard = 40;
  }

  void run(Os& os) { (void)run_preprocess(world(), Files{os}, Log{world().rank(), LogLevel::error}, settings_); }

  /// Back to the texts alone, and to the trained tokenizer in the cache, which takes long.
  void forget() {
    world().barrier("run is over");
    if (world().rank() == 0) {
      const Files files = Files::system();
      files.remove_tree(folder_ / "shards");
      files.remove_tree(folder_ / "model");
      for (const std::string& name : files.list(folder_ / "cache")) {
        if (name != "tokenizers") files.remove_tree(folder_ / "cache" / name);
      }
    }
    world().barrier("forgotten");
  }

  /// What is in both folders, by name.
  Contents contents() {
    Contents found;
    const Files files = Files::system();
    for (const char* folder : {"shards", "model"}) {
      if (!files.exists(folder_ / folder)) continue;
      for (const std::string& name : files.list(folder_ / folder)) {
        if (!is_lease_name(name)) found[name] = files.read_text(folder_ / folder / name);
      }
    }
    world().barrier("looked");
    return found;
  }

  test::SharedFolder folder_;
  test::LaterProcessOs sound_{folder_ / ("stat" + std::to_string(world().rank()))};  // follows whichever failed
  PreprocessSettings settings_;
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
  for (std::size_t n = 0; n < records.size(); ++n) {
    if (may_lack_space(records[n])) chosen += fmt::format("{} ", n);
  }
  std::istringstream numbers{world().broadcast(chosen, world().size() - 1)};
  int refused = 0;
  for (std::size_t n = 0; numbers >> n;) {
    forget();
    test::FaultyOs os;
    if (failing) os.fail(n, ENOSPC);
    bool threw = false;
    try {
      run(os);
    } catch (const Error& error) {
      threw = true;
      EXPECT_EQ(exit_code(error.fault()), Exit::io) << error.what();
      EXPECT_NE(std::string_view{error.what()}.find("ENOSPC"), std::string_view::npos) << error.what();
    }
    world().barrier("disturbed run is over");
    refused += threw ? 1 : 0;
    const std::string where =
        failing ? fmt::format("call {}, kind {} on {}", n, static_cast<int>(records[n].call), records[n].path) : "";
    EXPECT_EQ(os.open_files(), 0U) << where;
    const Contents left = contents();
    for (const auto& [name, bytes] : left) {
      EXPECT_TRUE(finished.contains(name) && finished.at(name) == bytes) << where << " left " << name;
    }
    EXPECT_TRUE(threw || left == finished) << where;
    run(sound_);
    world().barrier("last run is over");
    EXPECT_TRUE(contents() == finished) << where;
  }
  EXPECT_GT(refused, world().size() == 1 ? 30 : 6);  // the first of two ranks writes most files
}

}  // namespace
}  // namespace argosy::data
