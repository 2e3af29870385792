#include "checkpoint/model_view.hpp"

#include "checkpoint/checkpoint.hpp"
#include "support/hdf5_array.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::checkpoint {
namespace {

class ViewOfASave : public testing::TestWithParam<test::Hierarchy> {
 protected:
  Os os;
  test::TestContext context{os, test::world(), GetParam()};
  test::SharedFolder folder;
  Store store{context.get(), folder / "run", {}};
};

TEST_P(ViewOfASave, ShowsWhatTheReaderReads) {
  for (const std::int64_t step : {1, 2}) {  // the second view has the first one's bytes
    const SaveReport report = test::save_toy(store, test::own_toy(context), step);
    ASSERT_TRUE(report.committed) << report.why_not;
    const Reader reader{context.get().files, report.directory};
    int turn = 0;
    for (const Reader::Parameter& parameter : reader.parameters()) {
      if (turn++ % test::world().size() != test::world().rank()) continue;  // the ranks share the parameters
      const test::Array array = test::read_array(report.directory / model_view_name, parameter.name);
      EXPECT_EQ(array.values, reader.read_parameter(parameter.name)) << parameter.name;
      EXPECT_EQ(array.values.back(),
                test::element(parameter.name, 0, static_cast<std::int64_t>(array.values.size()) - 1,
                              static_cast<std::uint64_t>(step)));
    }
    EXPECT_EQ(reader.attachments(), std::vector<std::string>{"tokenizer.model"}) << "no soup takes it along";
    context.get().world.barrier("readers are done");
  }
}

TEST_P(ViewOfASave, IsLeftOutWhereItCannotBe) {
  const test::Units units{{"a", {{"a/b", {300}}, {"a/b/c", {300}}}}};  // a dataset is no group
  const SaveReport report = test::save_toy(store, test::own_toy(context, units), 1);
  EXPECT_TRUE(report.committed) << report.why_not;
  EXPECT_FALSE(Files::system().exists(report.directory / model_view_name));
  context.get().world.barrier("looked");
}

INSTANTIATE_TEST_SUITE_P(All, ViewOfASave,
                         testing::Values(test::Hierarchy::flat, test::Hierarchy::uneven, test::Hierarchy::cyclic),
                         test::by_name);

}  // namespace
}  // namespace argosy::checkpoint
