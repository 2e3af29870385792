#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/model_view.hpp"
#include "support/checkpoints.hpp"
#include "support/judge.hpp"
#include "support/temp_folder.hpp"

/// Other people's programs read our shards and the view of the whole model: h5py, h5ls, h5dump. What they find is what
/// our own reader gives.
namespace argosy::checkpoint {
namespace {

using testing::HasSubstr;

class Hdf5Judge : public testing::TestWithParam<std::vector<int>> {
 protected:
  Hdf5Judge() {
    test::write_checkpoint(files, checkpoint, units, layout, 3,
                           {.run_uuid = std::string(32, 'a'), .save_nonce = std::string(16, 'b'), .step = 5},
                           /*ema=*/true);
    const Manifest manifest = parse_manifest(files.read_text(checkpoint / manifest_name), "MANIFEST.json").manifest;
    files.write_atomically(checkpoint / model_view_name, ModelView{}.of(manifest));
  }
  /// The exit code of a shell command that is run in `folder`; fills `output`.
  int run(const std::string& command) {
    const std::string whole = fmt::format("cd '{}' && {{ {}; }} > out 2>&1", folder.path().string(), command);
    const int status = std::system(whole.c_str());
    output = files.read_text(folder / "out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const Files files = Files::system();
  const test::Units units = test::tiny_units();
  const partition::Layout layout{GetParam()};
  test::TempFolder folder;
  Path checkpoint = folder / "checkpoint";
  std::string output;
};

/// Everything our reader reads, tensor by tensor as raw fp32 in `folder`/ours, for the judge to compare with.
TEST_P(Hdf5Judge, H5pyReadsShardsAndViewAsOurReaderDoes) {
  const Path ours = folder / "ours";
  files.make_folder(ours);
  const Reader reader{files, checkpoint};
  const partition::Layout alone{{1}};
  test::Toy got{units, alone, 0, true};
  got.fill_all(99);
  reader.read_state(got.states(), 0);
  std::size_t id = 0;  // in the manifest's numbering
  for (std::size_t unit = 0; unit < got.spaces().size(); ++unit) {
    const partition::FlatSpace& space = got.spaces()[unit];
    for (std::size_t param = 0; param < space.params().size(); ++param, ++id) {
      ASSERT_EQ(reader.parameters()[id].name, space.params()[param].name);
      std::size_t tensor = 0;
      for (const char* name : {"master", "exp_avg", "exp_avg_sq", "ema"}) {
        const auto values = std::span{got.tensor(tensor++, unit)}.subspan(
            static_cast<std::size_t>(space.offset(param)), static_cast<std::size_t>(space.params()[param].numel()));
        files.write_atomically(ours / fmt::format("{}.{}", id, name), std::as_bytes(values));
      }
    }
  }
  const int code = run(test::judge_command("hdf5_judge.py", "checkpoint ours"));
  if (code == test::no_judges) GTEST_SKIP() << test::no_judges_text;
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("7 parameters"));
}

TEST_P(Hdf5Judge, H5lsAndH5dumpShowWholeParameters) {
  if (run("command -v h5ls && command -v h5dump") != 0) GTEST_SKIP() << "scripts/setup --judges has not run";
  const Reader reader{files, checkpoint};
  ASSERT_EQ(run("h5ls -r checkpoint/model.h5"), 0) << output;
  const std::string listing = output;
  for (const Reader::Parameter& parameter : reader.parameters()) {
    const std::string shape = parameter.shape.empty() ? "1" : fmt::format("{}", fmt::join(parameter.shape, ", "));
    EXPECT_THAT(listing,
                AllOf(HasSubstr(fmt::format("/{} ", parameter.name)), HasSubstr(fmt::format("Dataset {{{}}}", shape))));
    ASSERT_EQ(run(fmt::format("h5dump -d /{} -b LE -o values checkpoint/model.h5", parameter.name)), 0) << output;
    const std::vector<float> wanted = reader.read_parameter(parameter.name);
    const std::string values = files.read_text(folder / "values");
    ASSERT_EQ(values.size(), wanted.size() * sizeof(float)) << parameter.name;
    EXPECT_EQ(std::memcmp(values.data(), wanted.data(), values.size()), 0) << parameter.name;
  }
  ASSERT_EQ(run(fmt::format("h5dump -a /step -a /world checkpoint/{}", shard_name(0, layout.world()))), 0) << output;
  EXPECT_THAT(output, HasSubstr(fmt::format("(0): {}", layout.world())));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Hdf5Judge,
                         testing::Values(std::vector{1}, std::vector{2}, std::vector{1, 2}, std::vector{3, 5}),
                         [](const auto& test) { return fmt::format("{}", fmt::join(test.param, "_")); });

}  // namespace
}  // namespace argosy::checkpoint
