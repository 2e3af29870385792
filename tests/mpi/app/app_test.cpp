#include "../apps/app.hpp"

#include <gmock/gmock.h>

#include "support/refusal.hpp"
#include "support/shared_folder.hpp"
#include "unit/config/sample_config.hpp"

namespace argosy::test {
namespace {

using testing::AllOf, testing::HasSubstr;

class AppTest : public testing::Test {
 protected:
  /// What a tool that only loads its configuration does with these words.
  std::optional<SampleConfig> run(std::vector<const char*> words) {
    const Topology topology = comm::Topology::discover(world());
    const comm::Context context{world(), topology, log_, Files::system(), clock_, stop_};
    words.insert(words.begin(), "/some/where/tool");
    config::Options options;
    CLI::App app{"Does a thing."};
    app::add_config_options(app, options);
    app.add_flag("--dry-run", dry_run_, "plan only");
    if (!app::parse(app, static_cast<int>(words.size()), words.data(), "  tool a.json  a plain run", context))
      return std::nullopt;
    return app::load_config<SampleConfig>(options, context);
  }
  std::string printed(const std::vector<const char*>& words) {
    testing::internal::CaptureStdout();
    EXPECT_FALSE(run(words).has_value());
    return testing::internal::GetCapturedStdout();
  }
  std::string refusal(const std::vector<const char*>& words, Fault fault = Fault::usage) {
    return test::refusal(fault, [&] { (void)run(words); });
  }

  using Topology = comm::Topology;
  bool dry_run_ = false;
  Log log_{world().rank()};
  Clock clock_;
  StopSignals stop_;
};

TEST_F(AppTest, HelpIsPrintedByRankZeroWithExamples) {
  const std::string text = printed({"--help"});
  if (world().rank() != 0) {
    EXPECT_EQ(text, "");
  } else {
    EXPECT_THAT(text, AllOf(HasSubstr("Does a thing."), HasSubstr("Usage: tool"), HasSubstr("CONFIG"),
                            HasSubstr("--set"), HasSubstr("Examples:\n  tool a.json  a plain run")));
  }
}

TEST_F(AppTest, VersionNamesTheLibraries) {
  const std::string text = printed({"--version"});
  if (world().rank() != 0) return;
  EXPECT_THAT(text, AllOf(HasSubstr("argosy "), HasSubstr("\nMPI "), HasSubstr("\nHDF5 "), HasSubstr("\nLibTorch "),
                          HasSubstr("\nNCCL "), HasSubstr("\nCUDA ")));
}

TEST_F(AppTest, WrongWordsAreUsageErrorsOnAllRanks) {
  EXPECT_EQ(refusal({"--dry-rum"}), "tool: unknown option --dry-rum; did you mean --dry-run?");
  EXPECT_EQ(refusal({"a.json", "b.json"}), "tool: unexpected argument b.json; see `tool --help`");
  EXPECT_THAT(refusal({"--set"}), HasSubstr("--set"));
  EXPECT_EQ(refusal({}), "CONFIG is missing: give a configuration file; see configs/ for examples");
}

TEST_F(AppTest, AllRanksGetTheConfigurationThatRankZeroReads) {
  const SharedFolder folder;
  const std::string path = folder.write("a.json", R"({"seed": 7, "workers": 3})").string();
  const auto value = run({path.c_str(), "--set", "workers=5", "--set", "schedule.lr=0.5", "--dry-run"});
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(std::tuple(value->seed, value->workers, value->schedule.lr), std::tuple(7, 5, 0.5));
  EXPECT_TRUE(dry_run_);
}

TEST_F(AppTest, AMissingFileIsAUsageErrorOnAllRanks) {
  EXPECT_THAT(refusal({"/nowhere/a.json"}),
              HasSubstr("/nowhere/a.json does not exist; correct the path, or see configs/"));
}

TEST_F(AppTest, ABadFileIsAConfigErrorOnAllRanks) {
  const SharedFolder folder;
  const std::string path = folder.write("a.json", "{\n\"sead\": 7}").string();
  EXPECT_THAT(refusal({path.c_str()}, Fault::config), HasSubstr("a.json:2: unknown key sead; did you mean seed?"));
}

TEST_F(AppTest, PrintsConfigurationAndSchemaOnRankZero) {
  const std::string whole = printed({"--set", "workers=9", "--print-config"});
  const std::string part = printed({"--print-config", "schedule.lr"});
  const std::string schema = printed({"--print-schema"});
  EXPECT_THAT(refusal({"--print-config", "nope"}), HasSubstr("the configuration has no key \"nope\""));
  if (world().rank() != 0) {
    EXPECT_EQ(whole + part + schema, "");
    return;
  }
  EXPECT_THAT(whole, AllOf(HasSubstr("\"workers\": 9"), HasSubstr("\"schedule\": {")));
  EXPECT_EQ(part, "0.001\n");
  EXPECT_THAT(schema, HasSubstr("\"additionalProperties\": false"));
}

}  // namespace
}  // namespace argosy::test
