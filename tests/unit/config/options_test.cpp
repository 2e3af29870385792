#include <gmock/gmock.h>

#include <boost/json/parse.hpp>

#include "config/config.hpp"
#include "sample_config.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using testing::HasSubstr;

config::Document document(std::string_view text) { return config::Document::parse(text, "mt.json"); }

TEST(Options, AssignmentsOverrideTheFile) {
  const config::Options options{.assignments = {"seed=7", "schedule.lr=0.5", "seed=8"}};
  const auto c = config::from_document<SampleConfig>(document(R"({"seed": 1, "workers": 3})"), options);
  EXPECT_EQ(std::tuple(c.seed, c.workers, c.schedule.lr), std::tuple(8, 3, 0.5));
}

TEST(Options, ABadAssignmentIsNamedAsThePlace) {
  const config::Options options{.assignments = {"schedule.lr=-2"}};
  const Error error = error_of([&] { (void)config::from_document<SampleConfig>(document("{}"), options); });
  EXPECT_STREQ(error.what(), "--set: schedule.lr must be a learning rate above 0, got -2");
}

TEST(Options, PrintOnlyWhatWasAsked) {
  const SampleConfig c;
  EXPECT_EQ(config::requested_text({}, c), std::nullopt);
  EXPECT_EQ(config::requested_text({.print_config = "/schedule/lr"}, c), "0.001");
  EXPECT_EQ(config::requested_text({.print_config = "schedule.style"}, c), "\"cosine\"");
  EXPECT_THAT(*config::requested_text({.print_config = ""}, c), HasSubstr("\"workers\": 2"));
  EXPECT_EQ(config::requested_text({.print_config = "schedule.style", .raw = true}, c), "cosine");
  EXPECT_THROW((void)config::requested_text({.print_config = "schedule.lr", .raw = true}, c), Error);
  EXPECT_EQ(config::printed("a \"b\"\n\\", true), "a \"b\"\n\\");
  EXPECT_THAT(*config::requested_text({.print_schema = true}, c), HasSubstr("2020-12"));
}

TEST(Options, PartOfWalksObjectsAndLists) {
  const auto whole = boost::json::parse(R"({"a": [{"b": 5}]})");
  EXPECT_EQ(config::part_of(whole, "/a/0/b"), 5);
  EXPECT_EQ(config::part_of(whole, "a.0.b"), 5);
  EXPECT_EQ(config::part_of(whole, ""), whole);
  for (const char* path : {"/a/1", "/a/x", "b", "a.0.b.c"})
    EXPECT_THROW((void)config::part_of(whole, path), Error) << path;
}

}  // namespace
}  // namespace argosy::test
