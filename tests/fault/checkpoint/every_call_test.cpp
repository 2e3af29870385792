#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/temp_folder.hpp"

namespace argosy::checkpoint {
namespace {

enum class Mishap { enospc, eio, eintr, shortened };

std::string name_of(Mishap mishap) {
  constexpr const char* names[] = {"Enospc", "Eio", "Eintr", "Short"};
  return names[static_cast<int>(mishap)];
}

/// Calls that Linux may interrupt and that have to be repeated; a close must not be.
bool is_repeated(test::Call call) {
  using test::Call;
  const Call calls[] = {Call::open,  Call::close, Call::pread,     Call::pwrite,
                        Call::write, Call::fsync, Call::fallocate, Call::statvfs};
  return std::find(std::begin(calls), std::end(calls), call) != std::end(calls);
}

class EveryCallOfASave : public testing::TestWithParam<Mishap> {};

/// Fails each call of a save in turn. The run goes on, what was committed before stays the newest sound checkpoint, and
/// nothing half-done stays under a name of its own.
TEST_P(EveryCallOfASave, MayFailAndTheRunGoesOn) {
  const test::TempFolder folder;
  test::FaultyOs os;
  test::TestContext context{os, test::world()};
  Store store{context.get(), folder / "run", {.max_checkpoints = 2}};
  test::Toy toy{test::tiny_units(), context.topology().layout(), 0},
      got{test::tiny_units(), context.topology().layout(), 0};
  std::int64_t step = 0, acknowledged = 0;
  const auto save = [&] {
    ++step;
    const SaveReport report = store.save(Kind::temp, step, toy.fill(static_cast<std::uint64_t>(step)).states(),
                                         test::toy_sections(), test::toy_attachments());
    if (report.committed) acknowledged = step;
    return report;
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(save().committed);  // so that retention has work to do

  int failed = 0;
  std::size_t calls = 0;
  for (std::size_t n = 0;; ++n) {
    const std::size_t begin = os.count();
    switch (GetParam()) {
      case Mishap::enospc:
        os.fail(begin + n, ENOSPC);
        break;
      case Mishap::eio:
        os.fail(begin + n, EIO);
        break;
      case Mishap::eintr:
        os.fail(begin + n, EINTR);
        break;
      case Mishap::shortened:
        os.shorten(begin + n);
        break;
    }
    const SaveReport report = save();
    if (os.count() <= begin + n) {  // the save has fewer calls: all have failed once
      EXPECT_TRUE(report.committed);
      break;
    }
    const test::FaultyOs::Record record = os.records()[begin + n];
    const std::string where =
        fmt::format("call {} of a save, kind {} on {}", n, static_cast<int>(record.call), record.path);
    calls = n + 1;
    failed += report.committed ? 0 : 1;
    if (GetParam() == Mishap::shortened || (GetParam() == Mishap::eintr && is_repeated(record.call))) {
      EXPECT_TRUE(report.committed) << where << ": " << report.why_not;
    }
    EXPECT_EQ(report.committed, report.why_not.empty()) << where;

    auto newest = store.newest();
    ASSERT_TRUE(newest) << where;
    // A save whose last sync failed is there although it was not acknowledged.
    EXPECT_TRUE(newest->step() == acknowledged || newest->step() == step) << where;
    newest->verify();
    newest->read_state(got.states(), 0);
    EXPECT_TRUE(got == toy.fill(static_cast<std::uint64_t>(newest->step()))) << where;
    newest.reset();
    EXPECT_EQ(os.open_files(), 0U) << where;
    const bool removal = record.call == test::Call::unlink || record.call == test::Call::rmdir;
    for (const std::string& name : Files::system().list(folder / "run/checkpoints")) {
      if (name[0] == '.' && !removal) {
        EXPECT_TRUE(report.committed && name.starts_with(".del-")) << where << " left " << name;
      }
    }
  }
  EXPECT_GT(calls, 40U);
  if (GetParam() == Mishap::shortened) {
    EXPECT_EQ(failed, 0);
  } else if (GetParam() != Mishap::eintr) {
    EXPECT_GT(failed, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCallOfASave,
                         testing::Values(Mishap::enospc, Mishap::eio, Mishap::eintr, Mishap::shortened),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::checkpoint
