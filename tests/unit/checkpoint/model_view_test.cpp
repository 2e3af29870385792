#include "checkpoint/model_view.hpp"

#include <cmath>

#include "support/checkpoints.hpp"
#include "support/hdf5_array.hpp"
#include "support/temp_folder.hpp"

/// The view is read with HDF5's own interface, as its users do.
namespace argosy::checkpoint {
namespace {

using partition::Layout;

/// Every number of dimensions, rows that no border respects.
test::Units units_of_all_shapes() {
  return {
      {"a", {{"a/scalar", {}, false}, {"a/vector", {301}, false}, {"a/cube", {7, 11, 13}}}},
      {"b 100%b", {{"b/50%/matrix", {67, 19}}, {"b/one", {1}, false}, {"b/thin", {401, 1}}, {"b/4d", {3, 5, 7, 9}}}}};
}

class ViewOfAModel : public testing::TestWithParam<std::vector<int>> {
 protected:
  /// Commits a checkpoint whose shards of all ranks are written here, with the view next to them.
  void save(const test::Units& units, std::uint64_t seed) {
    test::write_checkpoint(Files::system(), checkpoint, units, layout, seed);
    Files::system().write_atomically(checkpoint / model_view_name, ModelView{}.of(test::manifest_of(units, layout)));
  }
  const Layout layout{GetParam()};
  test::TempFolder folder;
  Path checkpoint = folder / "checkpoint";
};

TEST_P(ViewOfAModel, ShowsEveryParameterInItsShape) {
  const test::Units units = units_of_all_shapes();
  save(units, 3);
  const Path moved = folder / "moved";
  Files::system().rename(checkpoint, moved);
  for (const auto& unit : units) {
    for (const partition::ParamSpec& param : unit.second) {
      const test::Array array = test::read_array(moved / model_view_name, param.name);
      EXPECT_EQ(array.shape, param.shape.empty() ? std::vector<std::int64_t>{1} : param.shape) << param.name;
      ASSERT_EQ(array.values.size(), static_cast<std::size_t>(param.numel())) << param.name;
      for (std::size_t i = 0; i < array.values.size(); ++i)
        ASSERT_EQ(array.values[i], test::element(param.name, 0, static_cast<std::int64_t>(i), 3))
            << param.name << " element " << i;
    }
  }
}

TEST_P(ViewOfAModel, ShowsAMissingShardAsNotANumber) {
  const test::Units units = units_of_all_shapes();
  save(units, 3);
  const partition::FlatSpace space{units[0].second, layout};
  const int gone = space.owner(space.slices() / 2);
  Files::system().remove(checkpoint / shard_name(gone, layout.world()));
  std::size_t missing = 0;
  for (std::size_t p = 0; p < space.params().size(); ++p) {
    const std::string& name = space.params()[p].name;
    const test::Array array = test::read_array(checkpoint / model_view_name, name);
    for (const partition::Interval& interval : intervals_of(space)) {
      if (interval.param != p) continue;
      for (std::int64_t i = interval.begin; i < interval.end; ++i) {
        const float got = array.values[static_cast<std::size_t>(i)];
        missing += std::isnan(got) ? 1 : 0;
        ASSERT_EQ(std::isnan(got), interval.rank == gone) << name << " element " << i;
        if (interval.rank != gone) {
          ASSERT_EQ(got, test::element(name, 0, i, 3));
        }
      }
    }
  }
  EXPECT_GT(missing, 0U);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ViewOfAModel,
                         testing::Values(std::vector{1}, std::vector{2}, std::vector{1, 1}, std::vector{3},
                                         std::vector{1, 2}, std::vector{4}, std::vector{2, 2}, std::vector{3, 5}),
                         [](const auto& test) { return fmt::format("{}", fmt::join(test.param, "_")); });

TEST(ModelViewBytes, AreMadeAnewWhereNamesShapesOrRanksDiffer) {
  ModelView view;
  const test::Units units = units_of_all_shapes();
  const Manifest of_two = test::manifest_of(units, Layout{{2}});
  const std::string two = view.of(of_two);
  const char* const where = view.of(of_two).data();
  EXPECT_EQ(view.of(of_two).data(), where) << "the same ones again";
  EXPECT_NE(view.of(test::manifest_of(units, Layout{{3}})), two);
  test::Units reshaped = units, renamed = units, in_another_unit = units;
  reshaped[0].second[1].shape = {300};
  renamed[0].second[1].name = "a/array";
  in_another_unit[0].first = "c";
  for (const test::Units& other : {reshaped, renamed, in_another_unit})
    EXPECT_NE(view.of(test::manifest_of(other, Layout{{2}})), two);
  EXPECT_EQ(view.of(of_two).size(), two.size());
}

TEST(ModelViewBytes, AreNoneAboveTheLimit) {
  ModelView view;
  const test::Units units{{"a", {{"a/vector", {30'000}, false}}}};
  EXPECT_FALSE(view.of(test::manifest_of(units, Layout{{model_view_most_ranks}})).empty());
  EXPECT_TRUE(view.of(test::manifest_of(units, Layout{{model_view_most_ranks + 1}})).empty());
}

TEST(ModelViewBytes, OfNamesThatCannotBeAreOneErrorAndThenNone) {
  ModelView view;
  const test::Units units{{"a", {{"a/b", {3}}, {"a/b/c", {3}}}}};  // a dataset is no group
  EXPECT_THROW(static_cast<void>(view.of(test::manifest_of(units, Layout{{1}}))), Error);
  EXPECT_TRUE(view.of(test::manifest_of(units, Layout{{1}})).empty());
}

}  // namespace
}  // namespace argosy::checkpoint
