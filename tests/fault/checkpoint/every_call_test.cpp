#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <set>

#include "checkpoint/checkpoint.hpp"
#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/fixed_clock.hpp"
#include "support/later_process_os.hpp"
#include "support/on_root.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

/// Each call to the OS of a save, a load, a start and an end fails once, on each rank in turn. The run goes on or all
/// ranks say why not; nothing that was committed is lost, hidden or taken for damaged.
namespace argosy::checkpoint {
namespace {

using test::Call;
using Record = test::FaultyOs::Record;

struct Mishap {
  const char* name;
  int error;  // 0: the call moves only a part of its bytes
  [[nodiscard]] bool is_short() const { return error == 0; }
  [[nodiscard]] bool is_hard() const { return error != EINTR && !is_short(); }
};
constexpr Mishap mishaps[] = {{"Enospc", ENOSPC}, {"Edquot", EDQUOT}, {"Eio", EIO},
                              {"Estale", ESTALE}, {"Eintr", EINTR},   {"Short", 0}};

/// Calls that Linux may interrupt and that have to be repeated; a close must not be.
bool is_repeated(Call call) {
  const std::set calls{Call::open,  Call::close, Call::pread,     Call::pwrite,
                       Call::write, Call::fsync, Call::fallocate, Call::statvfs};
  return calls.contains(call);
}

/// What all ranks know of the call that failed.
struct Failed {
  std::string where;
  bool is_removal = false;
  bool must_succeed = false;    // the operation, all the same
  bool must_fail_save = false;  // what it was to do for the commit has not been done
};

/// Whether `calls`' last one is part of making a checkpoint last: its errors must not be passed over.
bool commit_needs(const std::vector<Record>& calls) {
  const Record& last = calls.back();
  const auto before = [&](const auto& is) {
    const auto found = std::find_if(calls.rbegin() + 1, calls.rend(), is);
    return found == calls.rend() ? nullptr : &*found;
  };
  const Record* const renamed = before([](const Record& r) { return r.call == Call::rename_noreplace; });
  const bool after_commit = renamed != nullptr && renamed->to.find("/.del-") != std::string::npos;
  const bool staged = last.path.find("/.tmp-0") != std::string::npos && last.path.find("ballast") == std::string::npos;
  const bool parent = last.path.ends_with("/checkpoints") && renamed != nullptr && !after_commit;
  if (!staged && !parent) return false;
  if (last.call == Call::close) {
    const Record* const opened = before([&](const Record& r) { return r.call == Call::open && r.path == last.path; });
    return opened != nullptr && (opened->flags & (O_WRONLY | O_RDWR)) != 0;
  }
  const std::set needed{Call::pwrite,           Call::write, Call::fsync, Call::mkdir, Call::rename,
                        Call::rename_noreplace, Call::open};
  return needed.contains(last.call);
}

/// Waiting for another job is one look.
class HastyClock : public test::FixedClock {
 public:
  void sleep_s(double seconds) const override { FixedClock::sleep_s(40 * seconds); }
};

class EveryCall : public testing::TestWithParam<Mishap> {
 protected:
  EveryCall() { clock_.now_s = Clock{}.wall_s(); }

  [[nodiscard]] static int rank() { return test::world().rank(); }
  [[nodiscard]] static test::Toy toy_of(std::int64_t step) {
    const partition::Layout layout{std::vector<int>{test::world().size()}};
    return test::Toy{test::tiny_units(), layout, rank()}.fill(static_cast<std::uint64_t>(step));
  }
  [[nodiscard]] std::unique_ptr<Store> start(test::TestContext& context, const Path& run) const {
    return std::make_unique<Store>(context.get(), run, Store::Options{.max_checkpoints = 2, .heartbeat_s = 0});
  }
  /// The store of a start that may fail, on all ranks alike; else nullptr.
  [[nodiscard]] std::unique_ptr<Store> try_start(const Path& run) {
    std::unique_ptr<Store> store;
    (void)test::caught([&] { store = start(context_, run); });
    return store;
  }
  static SaveReport save(Store& store, std::int64_t step) { return test::save_toy(store, toy_of(step), step); }
  /// So that retention has work to do: two of them are kept.
  static void save_three_steps(Store& store) {
    for (std::int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(save(store, step).committed);
  }
  /// The step loaded on all ranks, 0 for none. Throws Error on all ranks.
  static std::int64_t load(Store& store) {
    test::Toy got = toy_of(1).fill_all(0);
    const auto found = store.load(got.states());
    if (!found) return 0;
    comm::agree(test::world(), [&] {
      if (!(got == toy_of(found->step())))
        throw Error{Fault::internal, {.got = fmt::format("other bytes in step {}", found->step())}};
    });
    return found->step();
  }
  /// Collective: runs `body` with its n-th call failing on each rank, for all n, and calls `check` after each.
  /// Returns the number of calls.
  std::size_t each_call(const std::function<void()>& body, const std::function<void(const Failed&)>& check) {
    std::size_t calls = 0;
    for (int victim = 0; victim < test::world().size(); ++victim) {
      for (std::size_t n = 0;; ++n) {
        const std::size_t begin = os_.count();
        if (rank() == victim) GetParam().is_short() ? os_.shorten(begin + n) : os_.fail(begin + n, GetParam().error);
        body();
        os_.heal();
        const Failed failed = told(victim, begin, n);
        check(failed);
        EXPECT_EQ(os_.open_files(), 0U) << failed.where;
        if (comm::any_of(test::world(), HasFailure())) return calls;
        if (failed.where.empty()) break;
        ++calls;
      }
    }
    return calls;
  }
  /// Collective: a text with a rank's own outcome must be the same on all ranks.
  static void expect_common(const std::string& outcome, const std::string& where) {
    for (const std::string& other : test::world().all_gather(outcome)) EXPECT_EQ(other, outcome) << where;
  }

  static void expect_start(const std::unique_ptr<Store>& store, const Failed& failed) {
    expect_common(store != nullptr ? "started" : "refused", failed.where);
    if (failed.must_succeed) {
      EXPECT_NE(store, nullptr) << failed.where;
    }
  }

  const test::SharedFolder folder_;
  const Files files_ = Files::system();
  const std::vector<std::string> names_{"000000002", "000000003"};  // kept of three saves
  test::FaultyOs os_;
  HastyClock clock_;
  test::TestContext context_{os_, test::world(), test::Hierarchy::flat, clock_};
  test::LaterProcessOs later_os_{folder_ / ("stat" + std::to_string(rank()))};
  test::TestContext later_{later_os_, test::world(), test::Hierarchy::flat, clock_};

 private:
  /// From the rank that knows; an empty `where`: the operation had fewer calls.
  Failed told(int victim, std::size_t begin, std::size_t n) const {
    std::string text;
    if (rank() == victim) {
      std::vector<Record> calls = os_.records_from(begin);
      if (calls.size() > n) {
        calls.resize(n + 1);
        const Record& last = calls.back();
        const Mishap& mishap = GetParam();
        const bool soft = mishap.is_short() || (mishap.error == EINTR && is_repeated(last.call));
        text = fmt::format("{}{}{}{} at call {} of rank {}, kind {} on {}",
                           last.call == Call::unlink || last.call == Call::rmdir ? 'r' : '-', soft ? 's' : '-',
                           mishap.is_hard() && commit_needs(calls) ? 'f' : '-', mishap.name, n, victim,
                           static_cast<int>(last.call), last.path);
      }
    }
    text = test::world().broadcast(text, victim);
    if (text.empty()) return {.where = {}, .must_succeed = true};
    return {.where = text.substr(3),
            .is_removal = text[0] == 'r',
            .must_succeed = text[1] == 's',
            .must_fail_save = text[2] == 'f'};
  }
};

TEST_P(EveryCall, OfASaveMayFailAndTheRunGoesOn) {
  const auto store = start(context_, folder_ / "run");
  ASSERT_NO_FATAL_FAILURE(save_three_steps(*store));
  std::int64_t step = 3, acknowledged = 3;
  SaveReport report;
  const auto next = [&] {
    report = save(*store, ++step);
    if (report.committed) acknowledged = step;
  };
  int lost = 0, needed = 0;
  std::set<std::string> left;  // what could not be removed waits for the next start
  const std::size_t calls = each_call(next, [&](const Failed& failed) {
    lost += report.committed ? 0 : 1;
    needed += failed.must_fail_save ? 1 : 0;
    expect_common(report.why_not, failed.where);
    EXPECT_EQ(report.committed, report.why_not.empty()) << failed.where;
    if (failed.must_succeed) {
      EXPECT_TRUE(report.committed) << failed.where << report.why_not;
    }
    if (failed.must_fail_save) {
      EXPECT_FALSE(report.committed) << failed.where;
      EXPECT_NE(report.why_not.find(strerrorname_np(GetParam().error)), std::string::npos) << report.why_not;
    }
    const std::int64_t newest = load(*store);
    // A save whose last sync failed is there although it was not acknowledged.
    EXPECT_TRUE(newest == acknowledged || newest == step) << failed.where;
    for (const std::string& name : files_.list(folder_ / "run/checkpoints")) {
      if (name[0] != '.' || !left.insert(name).second) continue;
      EXPECT_TRUE(failed.is_removal || (report.committed && name.starts_with(".del-")))
          << failed.where << " left " << name;
    }
  });
  EXPECT_GT(calls, 80U);
  if (GetParam().is_short()) {
    EXPECT_EQ(lost, 0);
  }
  if (GetParam().is_hard()) {
    EXPECT_GT(needed, 40);
    EXPECT_GT(lost, needed);
  }
}

TEST_P(EveryCall, OfALoadMayFailAndNothingIsTakenForDamage) {
  const auto store = start(context_, folder_ / "run");
  ASSERT_NO_FATAL_FAILURE(save_three_steps(*store));
  std::string outcome;
  const auto load_once = [&] {
    const auto error = test::caught([&] { outcome = std::to_string(load(*store)); });
    if (error) outcome = error->fault() == Fault::internal ? "wrong" : "refused";
  };
  const std::size_t calls = each_call(load_once, [&](const Failed& failed) {
    expect_common(outcome, failed.where);
    EXPECT_TRUE(outcome == "3" || outcome == "2" || outcome == "refused") << failed.where << ": " << outcome;
    if (failed.must_succeed) {
      EXPECT_EQ(outcome, "3") << failed.where;
    }
    EXPECT_EQ(load(*store), 3) << failed.where;
    EXPECT_EQ(files_.list(folder_ / "run/checkpoints"), names_) << failed.where;
  });
  EXPECT_GT(calls, 20U);
}

TEST_P(EveryCall, OfAStartMayFailAndTheNextOneWorks) {
  const Path run = folder_ / "run";
  ASSERT_NO_FATAL_FAILURE(save_three_steps(*start(context_, run)));
  std::unique_ptr<Store> store;
  const auto litter = [&] {
    for (const char* folder : {"checkpoints/.tmp-000000009-0123456789abcdef", "checkpoints/.del-000000001-0123abcd"}) {
      files_.make_folders(run / folder);
      files_.write_atomically(run / folder / "MANIFEST.json", std::string_view{"half"});
    }
    files_.write_atomically(run / "run.json.tmp-0123456789abcdef", std::string_view{"half"});
  };
  test::on_root(litter);
  const auto start_once = [&] { store = try_start(run); };
  const std::size_t calls = each_call(start_once, [&](const Failed& failed) {
    expect_start(store, failed);
    if (store != nullptr) {
      EXPECT_EQ(load(*store), 3) << failed.where;
      EXPECT_THROW(start(context_, run), Error) << failed.where << ": two jobs in one run directory";
    }
    store.reset();
    EXPECT_EQ(load(*start(later_, run)), 3) << failed.where;
    test::world().barrier("loaded");
    test::on_root([&] {
      EXPECT_EQ(files_.list(run / "checkpoints"), names_) << failed.where;
      for (const std::string& name : files_.list(run)) EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
      litter();
    });
  });
  EXPECT_GT(calls, 15U);
}

TEST_P(EveryCall, OfTheFirstStartMayFailAndTheNextOneWorks) {
  int n = 0;
  Path run;
  std::unique_ptr<Store> store;
  const auto start_once = [&] {
    run = folder_ / fmt::format("{}/run", ++n);
    store = try_start(run);
  };
  const std::size_t calls = each_call(start_once, [&](const Failed& failed) {
    expect_start(store, failed);
    store.reset();
    const auto next = start(later_, run);
    EXPECT_EQ(load(*next), 0) << failed.where;
    EXPECT_TRUE(save(*next, 1).committed) << failed.where;
    EXPECT_EQ(load(*next), 1) << failed.where;
  });
  EXPECT_GT(calls, 15U);
}

TEST_P(EveryCall, OfASecondJobsStartMayFailAndTheFirstOneStaysAlone) {
  Os os;
  test::TestContext first{os, test::world(), test::Hierarchy::flat, clock_};
  const auto store = start(first, folder_ / "run");
  bool started = false;
  std::int64_t step = 0;
  const auto start_once = [&] { started = try_start(folder_ / "run") != nullptr; };
  const std::size_t calls = each_call(start_once, [&](const Failed& failed) {
    EXPECT_FALSE(started) << failed.where;
    EXPECT_TRUE(save(*store, ++step).committed) << failed.where;
  });
  EXPECT_GT(calls, 10U);
}

TEST_P(EveryCall, OfTheEndMayFailAndTheNextStartWorks) {
  const Path run = folder_ / "run";
  auto store = start(context_, run);
  ASSERT_TRUE(save(*store, 1).committed);
  const auto end = [&] { store.reset(); };
  const std::size_t calls = each_call(end, [&](const Failed& failed) {
    EXPECT_EQ(load(*start(later_, run)), 1) << failed.where;
    test::world().barrier("looked");
    store = start(context_, run);
  });
  EXPECT_GT(calls, 5U);
}

INSTANTIATE_TEST_SUITE_P(All, EveryCall, testing::ValuesIn(mishaps), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace argosy::checkpoint
