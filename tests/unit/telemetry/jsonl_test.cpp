#include "telemetry/jsonl.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "support/temp_folder.hpp"

namespace argosy::telemetry {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  void write(std::int64_t resumed_step, std::initializer_list<int> steps) {
    JsonLines lines(files, folder / "m.jsonl", resumed_step);
    for (const int step : steps) lines.append({{"step", step}});
  }
  std::string text() { return files.read_text(folder / "m.jsonl"); }

  test::TempFolder folder;
  Files files = Files::system();
};

TEST_F(JsonLinesTest, AppendsOneObjectALine) {
  write(0, {1, 2});
  JsonLines(files, folder / "m.jsonl", 2)
      .append({{"step", 3}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"text", "a\nb"}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2}\n{\"loss\":null,\"step\":3,\"text\":\"a\\nb\"}\n");
}

TEST_F(JsonLinesTest, CutsBackToTheResumedStep) {
  write(0, {10, 20, 20, 30, 40});
  write(25, {30, 41});
  EXPECT_EQ(text(), "{\"step\":10}\n{\"step\":20}\n{\"step\":20}\n{\"step\":30}\n{\"step\":41}\n");
  write(0, {});
  EXPECT_EQ(text(), "");
}

TEST_F(JsonLinesTest, RemovesABrokenEnd) {
  for (const char* tail : {"{\"step\":2", "{\"step\":2}", "\n", "nonsense\n", "[1]\n", "{\"x\":1}\n"}) {
    write(0, {1});
    files.append(folder / "m.jsonl").append(as_bytes(std::string_view{tail}));
    write(5, {6});
    EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":6}\n") << tail;
    files.remove(folder / "m.jsonl");
  }
}

TEST_F(JsonLinesTest, AcceptsAnEmptyFile) {
  files.write_atomically(folder / "m.jsonl", "");
  write(5, {6});
  EXPECT_EQ(text(), "{\"step\":6}\n");
}

}  // namespace
}  // namespace argosy::telemetry
