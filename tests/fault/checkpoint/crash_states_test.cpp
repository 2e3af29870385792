#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>

#include "core/error.hpp"
#include "core/random.hpp"
#include "crash_restart.hpp"
#include "support/fault_options.hpp"
#include "support/shared_folder.hpp"

/// Every crash that the model of the disk allows, at every point of real saves. Ranks share the trees; each tree is
/// loaded once, whichever states lead to it. ARGOSY_FAULT_SCALE multiplies the states, ARGOSY_FAULT_SEED chooses other
/// ones.
namespace argosy::test {
namespace {

using Journal = std::vector<Change>;

/// What happened just before the crash, newest last.
std::string trace(const Journal& journal, std::size_t done) {
  constexpr std::size_t shown = 40;
  std::string text;
  for (std::size_t i = done > shown ? done - shown : 0; i < done; ++i)
    text += fmt::format("\n  {:4} {}", i, journal[i].text());
  return text;
}

/// Tries crashes of one journal.
class Campaign {
 public:
  /// `found`: a file by which the first rank that finds a violation ends all; none: they go on.
  Campaign(const Journal& journal, Restart& restart, std::size_t limit, std::optional<Path> found)
      : journal_(journal), restart_(restart), limit_(limit), found_(std::move(found)) {}

  /// All crashes at points with few of them and, at the others, those of each kind; then random ones up to the limit.
  /// Where one violation is enough, some points come first: most are followed by others of their kind.
  void run() {
    constexpr std::size_t stride = 7;
    if (found_) {
      walk([&](std::size_t point) {
        if (point % stride == 0) all_of_a_point();
      });
    }
    walk([&](std::size_t) { all_of_a_point(); });
    systematic = states;
    if (states >= limit_ || done()) return;
    const std::size_t rest = limit_ - states;
    RandomStream random{fault_seed(13), 1};
    std::vector<std::size_t> draws(journal_.size() + 1, 0);
    for (std::size_t i = 0; i < rest; ++i) ++draws[random.below(draws.size())];
    walk([&](std::size_t point) {
      for (std::size_t i = 0; i < draws[point] && !done(); ++i) random_one(random);
    });
  }

  std::size_t states = 0, systematic = 0, loaded = 0, violations = 0;
  std::string first_wrong, first;  // violation: in a few words, with its trace

 private:
  [[nodiscard]] bool done() const { return states >= limit_ || (found_ && violations > 0); }

  void walk(const std::function<void(std::size_t)>& at_point) {
    disk_ = CrashDisk{};
    acknowledged_ = 0;
    for (point_ = 0; point_ <= journal_.size() && !done(); ++point_) {
      if (found_ && Files::system().exists(*found_)) return;
      if (point_ > 0) {
        const Change& change = journal_[point_ - 1];
        disk_.apply(change);
        if (change.kind == Change::Kind::acknowledge) acknowledged_ = std::max(acknowledged_, change.number);
      }
      at_point(point_);
    }
  }

  /// Which of `n` loose changes of entries survive: all sets while those are few, else what a journal keeps, all but
  /// one, and one alone.
  [[nodiscard]] static std::set<std::vector<bool>> choices_of_entries(std::size_t n) {
    constexpr std::size_t few = 5;
    std::set<std::vector<bool>> choices;
    for (std::size_t set = 0; n <= few && set < (std::size_t{1} << n); ++set) {
      std::vector<bool> choice(n);
      for (std::size_t i = 0; i < n; ++i) choice[i] = (set >> i & 1U) != 0;
      choices.insert(choice);
    }
    for (std::size_t i = 0; i <= n; ++i) {
      std::vector<bool> choice(n, false);
      std::fill_n(choice.begin(), i, true);
      choices.insert(choice);
      if (i == n) break;
      choice.assign(n, true);
      choice[i] = false;
      choices.insert(choice);
      choice.flip();
      choices.insert(choice);
    }
    return choices;
  }

  void all_of_a_point() {
    constexpr std::size_t few = 16;
    for (const std::vector<bool>& survives : choices_of_entries(disk_.loose_entries())) {
      const CrashDisk::Names names = disk_.names(survives);
      std::size_t product = 1, most = 1;
      for (const auto& [path, inode] : names) {
        if (!disk_.is_file(inode)) continue;
        const std::size_t contents = disk_.contents(inode).size();  // one where it is synced
        product *= contents;
        most = std::max(most, contents);
      }
      const bool all = product <= few;
      for (std::size_t choice = 0; choice < (all ? product : most) && !done(); ++choice) {
        std::size_t left = choice;
        examine(names, [&](std::size_t contents) {
          if (!all) return std::min(choice, contents - 1);
          const std::size_t mine = left % contents;
          left /= contents;
          return mine;
        });
      }
    }
  }

  void random_one(RandomStream& random) {
    std::vector<bool> survives(disk_.loose_entries());
    if (random.below(2) == 0) {
      std::fill_n(survives.begin(), random.below(survives.size() + 1), true);
    } else {
      for (std::size_t i = 0; i < survives.size(); ++i) survives[i] = random.below(2) == 0;
    }
    examine(disk_.names(survives), [&](std::size_t contents) { return random.below(contents); });
  }

  void examine(const CrashDisk::Names& names, const std::function<std::size_t(std::size_t)>& choose) {
    ++states;
    CrashDisk::Tree tree;
    for (const auto& [path, inode] : names) {
      if (disk_.is_folder(inode)) {
        tree.folders.insert(path);
      } else if (!disk_.is_file(inode)) {
        tree.links[path] = disk_.link(inode);
      } else {
        const auto& contents = disk_.contents(inode);
        tree.files[path] = contents.size() == 1 ? contents[0] : contents[choose(contents.size())];
      }
    }
    const Digest digest = tree.digest();
    if (digest.bytes[0] % world().size() != world().rank()) return;
    const auto [place, is_new] = outcomes_.try_emplace(digest);
    if (is_new) {
      place->second = restart_.after(tree);
      ++loaded;
    }
    const Restart::Outcome& outcome = place->second;
    std::string wrong = outcome.wrong;
    if (wrong.empty() && outcome.newest < acknowledged_)
      wrong = fmt::format("step {} was acknowledged, step {} is found", acknowledged_, outcome.newest);
    if (wrong.empty()) return;
    ++violations;
    if (found_) Files::system().publish(*found_, "");
    if (!first.empty()) return;
    first_wrong = wrong;
    first =
        fmt::format("ARGOSY_FAULT_SEED={}: crash after {} of {} operations: {}{}\nleft by the crash:", fault_seed(13),
                    point_, journal_.size(), wrong, trace(journal_, point_));
    for (const auto& [path, content] : tree.files) first += fmt::format("\n  {} {}", path, content->bytes.size());
  }

  const Journal& journal_;
  Restart& restart_;
  std::size_t limit_;
  std::optional<Path> found_;
  CrashDisk disk_;
  std::size_t point_ = 0;
  std::int64_t acknowledged_ = 0;
  std::map<Digest, Restart::Outcome> outcomes_;
};

/// **Collective.** Runs the ranks' shares; returns the violations of all ranks.
std::int64_t violations_of(const Journal& journal, int kept, std::size_t states, bool stop_at_first) {
  Restart restart{kept};
  const SharedFolder shared;
  Campaign campaign{journal, restart, states, stop_at_first ? std::optional{shared / "found"} : std::nullopt};
  const auto begin = std::chrono::steady_clock::now();
  comm::agree(world(), [&] { campaign.run(); });
  std::array<std::int64_t, 2> sums{static_cast<std::int64_t>(campaign.violations),
                                   static_cast<std::int64_t>(campaign.loaded)};
  world().all_reduce(std::span<std::int64_t>{sums});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!stop_at_first) {
    EXPECT_EQ(campaign.violations, 0U) << campaign.first;
    EXPECT_EQ(campaign.states, states);
  }
  if (world().rank() == 0)
    std::printf("%zu operations, %zu crash states (%zu systematic), %lld distinct trees, %lld violations, %.1f s; %s\n",
                journal.size(), campaign.states, campaign.systematic, static_cast<long long>(sums[1]),
                static_cast<long long>(sums[0]), seconds, campaign.first_wrong.c_str());
  return sums[0];
}

class CrashStates : public testing::TestWithParam<int> {};

TEST_P(CrashStates, LoseNothingAcknowledged) {
  ASSERT_EQ(world().size(), crash_ranks) << "the saves are recorded on these";
  violations_of(record_saves(GetParam()), GetParam(), static_cast<std::size_t>(scaled(50'000)), false);
}

INSTANTIATE_TEST_SUITE_P(Kept, CrashStates, testing::Values(2, 1), testing::PrintToStringParamName());

/// The journal of a store that had forgotten a call, or made it at another time.
struct Mutant {
  const char* name;
  int kept;
  void (*plant)(Journal&);
};

bool is_sync_of(const Change& change, std::string_view part) {
  return change.kind == Change::Kind::fsync && change.path.find(part) != std::string::npos;
}

/// Drops the syncs of what has `part` in its path, and `slashes` slashes if that is given; some there must be.
void forget_syncs(Journal& journal, std::string_view part, std::optional<std::ptrdiff_t> slashes = std::nullopt) {
  const std::size_t dropped = std::erase_if(journal, [&](const Change& change) {
    return is_sync_of(change, part) && (!slashes || std::ranges::count(change.path, '/') == *slashes);
  });
  ARGOSY_CHECK(dropped > 0, "the journal of {} changes has no such sync", journal.size());
}

bool is_commit(const Change& change) {
  return change.kind == Change::Kind::rename && change.path.find("/.tmp-") != std::string::npos &&
         change.to.find("/0") != std::string::npos && change.to.find(".tmp-") == std::string::npos;
}

/// Moves every acknowledgement to `offset` places after its commit.
void acknowledge_at(Journal& journal, std::ptrdiff_t offset) {
  Journal changed;
  for (std::size_t i = 0; i < journal.size(); ++i) {
    if (journal[i].kind == Change::Kind::acknowledge) continue;
    changed.push_back(journal[i]);
    if (!is_commit(journal[i])) continue;
    const std::int64_t step = std::stoll(journal[i].to.substr(journal[i].to.rfind('/') + 1));
    changed.insert(changed.end() - 1 + offset, Change{.kind = Change::Kind::acknowledge, .number = step});
  }
  journal = std::move(changed);
}

/// Moves every removal to just before the commit that it follows.
void remove_before_commit(Journal& journal) {
  Journal changed;
  std::size_t commit = 0, moved = 0;
  for (const Change& change : journal) {
    if (is_commit(change)) commit = changed.size(), moved = 0;
    const bool removal = (change.path + change.to).find("/.del-") != std::string::npos;
    const auto place = removal ? changed.begin() + static_cast<std::ptrdiff_t>(commit + moved) : changed.end();
    changed.insert(place, change);
    if (removal) ++moved;
  }
  journal = std::move(changed);
}

/// Syncs each shard before its last write.
void sync_too_early(Journal& journal) {
  for (std::size_t i = 1; i < journal.size(); ++i) {
    if (!is_sync_of(journal[i], ".h5")) continue;
    std::size_t last = i - 1;
    while (journal[last].handle != journal[i].handle) --last;
    std::rotate(journal.begin() + static_cast<std::ptrdiff_t>(last), journal.begin() + static_cast<std::ptrdiff_t>(i),
                journal.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

const Mutant mutants[] = {
    {"ShardNotSynced", 2, [](Journal& j) { forget_syncs(j, ".h5"); }},
    {"ShardSyncedBeforeItsLastWrite", 2, sync_too_early},
    {"AttachmentNotSynced", 2, [](Journal& j) { forget_syncs(j, "/tokenizer.model"); }},
    {"ManifestNotSynced", 2, [](Journal& j) { forget_syncs(j, "/MANIFEST.json"); }},
    {"StagingFolderNotSynced", 2, [](Journal& j) { forget_syncs(j, "/.tmp-", 3); }},
    {"ParentNotSynced", 2, [](Journal& j) { forget_syncs(j, "/checkpoints", 2); }},
    {"ParentOfExportsNotSynced", 2, [](Journal& j) { forget_syncs(j, "/export", 2); }},
    {"RunFolderNotSyncedIntoItsParent", 2, [](Journal& j) { forget_syncs(j, "runs", 0); }},
    {"AcknowledgedBeforeTheCommit", 2, [](Journal& j) { acknowledge_at(j, 0); }},
    {"AcknowledgedBeforeTheParentIsSynced", 2, [](Journal& j) { acknowledge_at(j, 1); }},
    {"RemovedBeforeTheCommit", 1, remove_before_commit},
};

class CrashMutant : public testing::TestWithParam<Mutant> {};

TEST_P(CrashMutant, IsCaught) {
  ASSERT_EQ(world().size(), crash_ranks) << "the saves are recorded on these";
  Journal journal = record_saves(GetParam().kept);
  GetParam().plant(journal);
  EXPECT_GT(violations_of(journal, GetParam().kept, 25'000, true), 0);
}

INSTANTIATE_TEST_SUITE_P(All, CrashMutant, testing::ValuesIn(mutants),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace argosy::test
