#include "checkpoint/checkpoint.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::checkpoint {
namespace {

class StoreOnRanks : public testing::TestWithParam<test::Hierarchy> {
 protected:
  SaveReport save(std::int64_t step) { return test::save_toy(store, test::own_toy(context), step); }

  test::FaultyOs os;
  test::TestContext context{os, test::world(), GetParam()};
  test::SharedFolder folder;
  Store store{context.get(), folder / "run", {}};
};

TEST_P(StoreOnRanks, EveryLayoutReadsBackInEveryOther) {
  const SaveReport report = save(3);
  ASSERT_TRUE(report.committed) << report.why_not;
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  newest->verify();
  EXPECT_EQ(newest->spaces().front().layout(), context.topology().layout());
  int turn = 0;
  for (const std::vector<int>& nodes : {std::vector{1}, {2}, {1, 1}, {3}, {1, 2}, {2, 2}, {4}, {3, 5}}) {
    if (turn++ % test::world().size() != test::world().rank()) continue;  // the ranks share the layouts
    const partition::Layout layout{nodes};
    for (int rank = 0; rank < layout.world(); ++rank) {
      test::Toy wanted{test::tiny_units(), layout, rank}, got{test::tiny_units(), layout, rank};
      got.fill_all(99);
      newest->read_state(got.states(), rank);
      EXPECT_TRUE(got == wanted.fill(3)) << layout.world() << " ranks, rank " << rank;
    }
  }
  for (const Reader::Parameter& parameter : newest->parameters()) {
    const std::vector<float> values = newest->read_parameter(parameter.name);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], test::element(parameter.name, 0, static_cast<std::int64_t>(i), 3));
  }
}

class FailingStore : public StoreOnRanks {};

TEST_P(FailingStore, AFailureOfOneRankIsTheFailureOfAll) {
  EXPECT_TRUE(save(1).committed);
  const int last = context.get().world.size() - 1;
  if (context.get().world.rank() == last) os.fail(test::Call::fallocate, os.count(test::Call::fallocate) + 1, ENOSPC);
  const SaveReport failed = save(2);
  EXPECT_FALSE(failed.committed);
  EXPECT_TRUE(test::says(failed.why_not, "ENOSPC", last > 0 ? fmt::format("rank {}", last) : ""));
  EXPECT_EQ(folder.names("run/checkpoints"), std::vector<std::string>{"000000001"});
  EXPECT_EQ(os.open_files(), 0U);
  EXPECT_TRUE(save(3).committed);
  EXPECT_EQ(store.newest()->step(), 3);
}

TEST_P(FailingStore, DamageIsTheSameErrorOnAllRanks) {
  EXPECT_TRUE(save(1).committed);
  if (context.get().is_root()) test::flip(folder / "run/checkpoints/000000001/MANIFEST.json", 50);
  EXPECT_TRUE(test::says(test::refusal(Fault::corrupt, [&] { (void)store.newest(); }), "000000001"));
}

INSTANTIATE_TEST_SUITE_P(Uneven, FailingStore, testing::Values(test::Hierarchy::uneven), test::by_name);
INSTANTIATE_TEST_SUITE_P(All, StoreOnRanks, testing::ValuesIn(test::hierarchies()), test::by_name);

}  // namespace
}  // namespace argosy::checkpoint
