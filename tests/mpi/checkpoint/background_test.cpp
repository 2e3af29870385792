#include <chrono>
#include <future>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "support/faulty_os.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

/// Saves on their way while their caller goes on.
namespace argosy::checkpoint {
namespace {

class BackgroundSave : public testing::Test {
 protected:
  [[nodiscard]] bool is_last() { return context.get().world.rank() == context.get().world.size() - 1; }
  [[nodiscard]] test::Toy toy() const { return test::own_toy(context); }

  /// Begins to save `live`, whose state is taken at once or when `may_copy` is ready.
  void begin(Store& store, std::int64_t step, test::Toy& live, const std::shared_future<void>& may_copy = {}) {
    copy.emplace(toy());
    store.begin_save(Kind::temp, step, copy->states(), test::toy_sections(), test::toy_attachments(),
                     [this, &live, may_copy] {
                       if (may_copy.valid()) may_copy.wait();
                       for (int t = 0; t < 3; ++t)
                         for (std::size_t u = 0; u < live.spaces().size(); ++u)
                           std::copy(live.tensor(t, u).begin(), live.tensor(t, u).end(), copy->tensor(t, u).begin());
                     });
  }
  SaveReport poll(Store& store) {
    while (true) {
      if (const auto report = store.poll_save()) return *report;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void expect_state(const Store& store, std::int64_t step) {
    const auto newest = store.newest();
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->step(), step);
    test::Toy wanted = toy(), got = toy();
    newest->read_state(got.states(), context.topology().canonical_rank());
    EXPECT_TRUE(got == wanted.fill(static_cast<std::uint64_t>(step)));
    context.get().world.barrier("state read");
  }

  test::FaultyOs os;
  test::TestContext context{os, test::world()};
  test::SharedFolder folder;
  std::optional<test::Toy> copy;
  std::promise<void> permit;
};

TEST_F(BackgroundSave, GoesOnBesideItsCallerAndHoldsWhatWasThereAtTheCopy) {
  Store store{context.get(), folder / "run", {}};
  EXPECT_FALSE(store.poll_save());
  EXPECT_FALSE(store.finish_save());
  test::Toy live = toy();
  live.fill(7);
  begin(store, 7, live, is_last() ? permit.get_future().share() : std::shared_future<void>{});
  for (int step = 0; step < 3; ++step) EXPECT_FALSE(store.poll_save()) << "a rank has not begun to write";
  EXPECT_TRUE(store.is_saving());
  std::jthread copying;  // for so long that an update that did not wait for it would be in it
  if (is_last()) {
    copying = std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      permit.set_value();
    });
  }
  store.wait_for_units();
  live.fill(8);  // the next update
  const SaveReport report = poll(store);
  EXPECT_TRUE(report.committed) << report.why_not;
  EXPECT_GT(report.bytes, 0U);
  EXPECT_FALSE(store.is_saving());
  EXPECT_FALSE(store.poll_save());
  expect_state(store, 7);
}

TEST_F(BackgroundSave, ThatFailsIsReportedToAllRanksAtOnePoll) {
  Store store{context.get(), folder / "run", {}};
  test::Toy live = toy();
  begin(store, 1, live.fill(1));
  EXPECT_TRUE(store.finish_save()->committed);
  for (const test::Call call : {test::Call::mkdir, test::Call::fallocate, test::Call::pwrite, test::Call::fsync}) {
    // A rank's first fallocate is the ballast's, which the skeleton needs; the second is the writer's.
    const std::size_t ahead = call == test::Call::fallocate || call == test::Call::pwrite ? 1 : 0;
    if (call == test::Call::mkdir ? context.get().is_root() : is_last()) os.fail(call, os.count(call) + ahead, EIO);
    begin(store, 2, live.fill(2));
    const SaveReport report = poll(store);
    EXPECT_FALSE(report.committed);
    EXPECT_NE(report.why_not.find("EIO"), std::string::npos) << report.why_not;
    expect_state(store, 1);
  }
  begin(store, 3, live.fill(3));
  EXPECT_TRUE(poll(store).committed);
  expect_state(store, 3);
}

TEST_F(BackgroundSave, WhoseStateCannotBeTakenFailsAndNobodyWaitsForIt) {
  Store store{context.get(), folder / "run", {}};
  test::Toy live = toy();
  copy.emplace(toy());
  store.begin_save(Kind::temp, 1, copy->states(), test::toy_sections(), {}, [this] {
    if (is_last()) throw Error{Fault::io, {.wanted = "a copy", .got = "the device is lost"}};
  });
  store.wait_for_units();
  const SaveReport report = poll(store);
  EXPECT_FALSE(report.committed);
  EXPECT_NE(report.why_not.find("the device is lost"), std::string::npos) << report.why_not;
  begin(store, 2, live.fill(2));
  EXPECT_TRUE(poll(store).committed);
  expect_state(store, 2);
}

TEST_F(BackgroundSave, ThatIsGivenUpLeavesNothingBehind) {
  test::Toy live = toy();
  {
    Store store{context.get(), folder / "run", {}};
    begin(store, 1, live.fill(1));
    EXPECT_TRUE(poll(store).committed);
    begin(store, 2, live.fill(2));
  }
  Store store{context.get(), folder / "run", {}};
  expect_state(store, 1);
  for (const std::string& name : folder.names("run/checkpoints")) EXPECT_NE(name[0], '.') << name;
}

}  // namespace
}  // namespace argosy::checkpoint
