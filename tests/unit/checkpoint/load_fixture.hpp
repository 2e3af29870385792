#pragma once

#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

/// A run on one rank whose checkpoints a test saves, harms and loads.
namespace argosy::checkpoint {

class LoadTest : public testing::Test {
 protected:
  Store open(std::int64_t max_checkpoints = 5) {
    return Store{context.get(), run, {.max_checkpoints = max_checkpoints}};
  }
  test::Toy toy() { return {test::tiny_units(), context.topology().layout(), 0}; }
  void save(Store& store, std::int64_t step, Kind kind = Kind::temp, bool with_moments = true, bool finite = true,
            const Sections& sections = test::toy_sections()) {
    test::Toy state = toy();
    state.fill(static_cast<std::uint64_t>(step));
    if (!finite) state.tensor(1, 0)[3] = std::numeric_limits<float>::quiet_NaN();
    const SaveReport report = store.save(kind, step, state.states(with_moments), sections, test::toy_attachments());
    ASSERT_TRUE(report.committed) << report.why_not;
  }
  /// Checkpoints of these steps, saved and closed.
  void prepare(std::initializer_list<std::int64_t> steps) {
    Store store = open();
    for (const std::int64_t step : steps) save(store, step);
  }
  /// Step that a new start loads, with its very bytes; 0: none.
  std::int64_t load(const LoadOptions& options = {}) {
    Store store = open();
    return load(store, options);
  }
  std::int64_t load(Store& store, const LoadOptions& options = {}) {
    test::Toy got = toy();
    got.fill_all(77);
    const auto reader = store.load(got.states(), options);
    if (!reader) return 0;
    EXPECT_TRUE(got == toy().fill(static_cast<std::uint64_t>(reader->step()))) << "step " << reader->step();
    return reader->step();
  }
  std::string refusal(Fault fault, const LoadOptions& options = {}) {
    return test::refusal(fault, [&] { load(options); });
  }
  Path at(std::int64_t step, const char* kind = "checkpoints") { return run / kind / fmt::format("{:09}", step); }
  void flip_payload(const Path& directory) {
    test::flip(directory / shard_name(0, 1), test::map_of(directory, 0).datasets[1].offset + 40);
  }
  std::vector<std::string> names(const char* kind = "checkpoints") { return Files::system().list(run / kind); }
  using Names = std::vector<std::string>;

  test::FaultyOs os;
  test::TempFolder folder;
  Path run = folder / "run";
  test::TestContext context{os, test::world()};
};

}  // namespace argosy::checkpoint
