#include <filesystem>

#include "chain.hpp"
#include "support/fault_options.hpp"
#include "support/small_disk.hpp"

/// Every tool on a disk that fills at one page after another. It ends with 4 and leaves nothing under the name of its
/// result, or does its work; with room, the same command then does it.
namespace argosy::test {
namespace {

struct Case {
  std::string tool;
  std::vector<std::string> folders;  // of the chain, that are copied next to the disk
  std::string command;               // writes below disk/
  std::string result;
};

const std::vector<Case>& cases() {
  const std::vector<std::string> texts{"config.json", "train.en", "train.es", "valid.en", "valid.es"};
  static const std::vector<Case> all{
      {"count", texts, "$A/count config.json --set data.cache=disk/cache >table.$$ && sed s:/.*/:: <table.$$ >out",
       "out"},
      {"preprocess", texts,
       "$A/preprocess config.json --set data.shards=disk/shards --set data.tokenizer=disk/t.model --set "
       "data.cache=disk/cache",
       "disk/shards"},
      {"train",
       {"config.json", "valid.en", "valid.es", "t.model", "shards"},
       "$A/train config.json --set run_dir=disk/run",
       "disk/run/export/000000008"},
      {"soup", {"run"}, "$A/soup run/checkpoints/* --out disk/soup", "disk/soup"},
      {"export", {"soup"}, "$A/export soup --out disk/ct2", "disk/ct2"},
      {"translate",
       {"soup", "train.en"},
       "$A/translate soup --input train.en --max-length 40 --output disk/out",
       "disk/out"}};
  return all;
}

std::uint64_t bytes_below(const Path& folder) {
  std::uint64_t bytes = 0;
  for (const std::string& name : files_below(folder)) bytes += std::filesystem::file_size(folder / name);
  return bytes;
}

class FullDisk : public testing::TestWithParam<std::size_t> {};

TEST_P(FullDisk, EndsWithFourOrTheWholeResult) {
  if (!may_mount()) return;
  const Case& tried = cases()[GetParam()];
  const Chain& chain = Chain::whole();
  constexpr std::uint64_t page = 4096;
  std::string whole;
  std::uint64_t needed = 0;
  {
    const auto folder = chain.copy(tried.folders);
    std::filesystem::create_directory(*folder / "disk");
    const Ended ended = run(folder->path(), tried.command);
    ASSERT_TRUE(ended.good()) << ended.output;
    whole = result_at(*folder / tried.result);
    needed = bytes_below(*folder / "disk") / page + 4;
  }
  const auto steps = static_cast<std::uint64_t>(scaled(4));
  int full = 0;
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::uint64_t pages = 1 + needed * i / steps;
    const auto folder = chain.copy(tried.folders);
    SmallDisk disk{pages * page};
    ASSERT_TRUE(disk.mounted());
    std::filesystem::create_directory_symlink(disk.path(), *folder / "disk");
    const Ended ended = run(folder->path(), tried.command);
    const std::string trace = fmt::format("{} of {} pages: code {}: {}", pages, needed, ended.code, ended.output);
    if (ended.good()) {
      EXPECT_EQ(result_at(*folder / tried.result), whole) << trace;
      continue;
    }
    ++full;
    EXPECT_EQ(ended.code, 4) << trace;
    if (tried.tool != "preprocess") {  // whose folder is whole when its index is there
      EXPECT_EQ(result_at(*folder / tried.result), "") << trace;
    }
    ASSERT_TRUE(disk.resize(64ULL << 20));
    const Ended again = run(folder->path(), tried.command);
    EXPECT_TRUE(again.good()) << trace << "\nwith room: " << again.output;
    EXPECT_EQ(result_at(*folder / tried.result), whole) << trace << "\nwith room: " << again.output;
  }
  if (tried.tool != "count") {  // whose cache only saves time
    EXPECT_GT(full, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, FullDisk, testing::Range<std::size_t>(0, 6),
                         [](const auto& parameter) { return cases()[parameter.param].tool; });

}  // namespace
}  // namespace argosy::test
