#include <sys/stat.h>

#include <limits>

#include "support/captured.hpp"
#include "support/fixed_clock.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"
#include "telemetry/sinks.hpp"

namespace argosy::telemetry {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  void write(std::int64_t resumed_step, std::initializer_list<int> steps) {
    JsonLines lines(setup(resumed_step));
    for (const int step : steps) lines.append({{"step", step}});
  }
  SinkSetup setup(std::int64_t resumed_step) {
    return {.files = files, .path = folder / "m.jsonl", .resumed_step = resumed_step, .log = log, .clock = clock};
  }
  std::string text() { return files.read_text(folder / "m.jsonl"); }

  test::TempFolder folder;
  Files files = Files::system();
  Log log;
  test::FixedClock clock;
};

TEST_F(JsonLinesTest, AppendsOneObjectALine) {
  write(0, {1, 2});
  JsonLines(setup(2)).append({{"step", 3}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"text", "a\nb"}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2}\n{\"loss\":null,\"step\":3,\"text\":\"a\\nb\"}\n");
}

TEST_F(JsonLinesTest, HoldsSamplesInTheLineOfTheirValidation) {
  JsonLines(setup(0)).validation(
      {.step = 3, .set = "dev", .figures = {{"loss", 2}}, .more = {{"distinct", 1}}, .samples = {{"a", "b", "c"}}});
  EXPECT_EQ(text(),
            "{\"figures\":{\"distinct\":1,\"loss\":2},\"samples\":[{\"reference\":\"b\",\"source\":\"a\","
            "\"translation\":\"c\"}],\"step\":3,\"validation\":\"dev\"}\n");
}

TEST_F(JsonLinesTest, HoldsTheLanguagesOfAValidationSet) {
  JsonLines(setup(0)).validation({.step = 3, .set = "dev", .figures = {{"loss", 2}}, .languages = {"en", "fr"}});
  EXPECT_EQ(text(), "{\"figures\":{\"loss\":2},\"languages\":[\"en\",\"fr\"],\"step\":3,\"validation\":\"dev\"}\n");
}

TEST_F(JsonLinesTest, CutsBackToTheResumedStep) {
  write(0, {10, 20, 20, 30, 40});
  write(25, {30, 41});
  EXPECT_EQ(text(), "{\"step\":10}\n{\"step\":20}\n{\"step\":20}\n{\"step\":30}\n{\"step\":41}\n");
  write(0, {});
  EXPECT_EQ(text(), "");
}

TEST_F(JsonLinesTest, RemovesAnUnfinishedEnd) {
  const std::string huge(1 << 20, '[');
  const std::vector<std::string> tails({"{\"step\":2", "{\"step\":2}", std::string(4096, '\0'), huge});
  for (const std::string& tail : tails) {
    write(0, {1});
    files.append(folder / "m.jsonl").append(as_bytes(std::string_view{tail}));
    write(5, {6});
    EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":6}\n") << tail.substr(0, 20);
    files.remove(folder / "m.jsonl");
  }
  files.write_atomically(folder / "m.jsonl", "");
  write(5, {6});
  EXPECT_EQ(text(), "{\"step\":6}\n");
}

TEST_F(JsonLinesTest, KeepsAndNamesALineThatIsNoneOfOurs) {
  const std::string huge(1 << 20, '[');
  const std::vector<std::string> lines({"", "nonsense", "[1]", "{\"x\":1}", "{\"step\":1.5}", "{\"step\":\"2\"}",
                                        "{\"step\":9223372036854775808}", std::string("\0\xff\x01", 3), huge});
  for (const std::string& bad : lines) {
    files.write_atomically(folder / "m.jsonl",
                           "{\"step\":1}\n" + bad + "\n{\"step\":2}\n{\"step\":9}\n" + bad + "\n{\"step\":9}\n");
    const std::string said = test::stderr_of([&] { write(5, {6}); });
    EXPECT_EQ(text(), "{\"step\":1}\n" + bad + "\n{\"step\":2}\n" + bad + "\n{\"step\":6}\n") << bad.substr(0, 20);
    EXPECT_TRUE(test::says(said, "m.jsonl line 2, 5: the text is not a JSON object with a valid step"));
    EXPECT_EQ(files.list(folder.path()), std::vector<std::string>{"m.jsonl"});
  }
  files.write_atomically(folder / "m.jsonl", std::string(100, '\n'));
  EXPECT_TRUE(test::says(test::stderr_of([&] { write(5, {}); }), "line 1, 2, 3, 4, 5 and 95 more:"));
}

TEST_F(JsonLinesTest, IsNeverFollowedThroughALinkNorWaitedFor) {
  const std::string theirs = "{\"step\":1}\n{\"step\":100}\n";
  files.write_atomically(folder / "theirs", theirs);
  files.link_symbolically("theirs", folder / "m.jsonl");
  EXPECT_TRUE(test::says(test::refusal(Fault::io, [&] { write(5, {6}); }), "ELOOP"));
  EXPECT_EQ(files.read_text(folder / "theirs"), theirs);
  files.remove(folder / "m.jsonl");
  ASSERT_EQ(mkfifo((folder / "m.jsonl").c_str(), 0600), 0);
  EXPECT_TRUE(test::says(test::refusal(Fault::io, [&] { write(5, {6}); }), "ENXIO"));
  files.remove(folder / "m.jsonl");
  files.make_folder(folder / "m.jsonl");
  (void)test::refusal(Fault::io, [&] { write(5, {6}); });
}

}  // namespace
}  // namespace argosy::telemetry
