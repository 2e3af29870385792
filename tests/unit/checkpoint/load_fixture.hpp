#pragma once

#include <limits>

#include "checkpoint/run_folder.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

/// A run on one rank whose checkpoints a test saves, harms and loads.
namespace argosy::checkpoint {

using Names = std::vector<std::string>;

/// Expects that a checkpoint fills the shards of every rank of these layouts (ranks of each node) with what a model
/// trained from `seed` holds, whatever was in them before, in gaps and pads too.
inline void expect_state(const Reader& reader, const test::Units& units, const std::vector<std::vector<int>>& layouts,
                         std::uint64_t seed, bool ema = false) {
  for (const std::vector<int>& nodes : layouts) {
    const partition::Layout layout{nodes};
    for (int rank = 0; rank < layout.world(); ++rank) {
      test::Toy got{units, layout, rank, ema}, wanted{units, layout, rank, ema};
      reader.read_state(got.fill_all(99).states(), rank);
      EXPECT_TRUE(got == wanted.fill(seed)) << "rank " << rank << " of " << layout.world();
    }
  }
}

class LoadTest : public testing::Test {
 protected:
  Store open(std::int64_t max_checkpoints = 5) {
    return Store{context.get(), run, {.max_checkpoints = max_checkpoints}};
  }
  test::Toy toy() { return {test::tiny_units(), context.topology().layout(), 0}; }
  SaveReport try_save(Store& store, std::int64_t step, Kind kind = Kind::temp, bool with_moments = true,
                      bool finite = true, const Sections& sections = test::toy_sections()) {
    test::Toy state = toy();
    state.fill(static_cast<std::uint64_t>(step));
    if (!finite) state.tensor(1, 0)[3] = std::numeric_limits<float>::quiet_NaN();
    return store.save(kind, step, state.states(with_moments), sections, test::toy_attachments());
  }
  void save(Store& store, std::int64_t step, Kind kind = Kind::temp, bool with_moments = true, bool finite = true,
            const Sections& sections = test::toy_sections()) {
    const SaveReport report = try_save(store, step, kind, with_moments, finite, sections);
    ASSERT_TRUE(report.committed) << report.why_not;
  }
  /// The folder by itself of a run.
  RunFolder owner(std::int64_t max_checkpoints, const Path& of) {
    RunFolder owner{Files{os}, clock, log, of, max_checkpoints};
    owner.adopt();
    return owner;
  }
  /// The same by a job of its own.
  void save_alone(std::int64_t step, Kind kind, bool with_moments = true, bool finite = true) {
    Store store = open();
    save(store, step, kind, with_moments, finite);
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
  Names names(const char* kind = "checkpoints") { return Files::system().list(run / kind); }

  test::FaultyOs os;
  const Log log{0, LogLevel::warn};
  const Clock clock;
  test::TempFolder folder;
  Path run = folder / "run";
  test::TestContext context{os, test::world()};
};

}  // namespace argosy::checkpoint
