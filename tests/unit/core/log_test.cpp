#include "core/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "core/clock.hpp"
#include "support/captured.hpp"
#include "support/temp_folder.hpp"
#include "support/terminal.hpp"

namespace argosy {
namespace {

using test::stderr_of, test::terminal_output_of;
using testing::HasSubstr, testing::MatchesRegex;

TEST(Log, RankZeroSpeaksFromInfo) {
  const std::string text = stderr_of([] {
    const Log log;
    log.info("i{}", 2);
    log.warn("w{}", 3);
    log.error("e{}", 4);
  });
  EXPECT_THAT(
      text,
      MatchesRegex("....-..-.. ..:..:.. info +i2\n....-..-.. ..:..:.. warning +w3\n....-..-.. ..:..:.. error +e4\n"));
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::warn).info("x"); }), "");
}

TEST(Log, OtherRanksSpeakFromWarnWithTheirRank) {
  const std::string text = stderr_of([] {
    const Log log(42);
    log.info("quiet");
    log.warn("loud");
    log.plain("quiet");
    log.progress("quiet", 1, 2);
  });
  EXPECT_THAT(text, MatchesRegex("\\[r0042\\] .* warning loud\n"));
  EXPECT_THAT(stderr_of([] { Log(42, LogLevel::error).warn("x"); }), "");
}

TEST(Log, BracesInATextAreNoFormat) {
  EXPECT_THAT(stderr_of([] { Log{}.write(LogLevel::info, "result {\"a\": {}} %v"); }),
              HasSubstr("result {\"a\": {}} %v\n"));
}

TEST(Log, PlainLinesHaveNothingInFront) {
  EXPECT_EQ(stderr_of([] { Log{}.plain("result {\"tool\":\"count\"}"); }), "result {\"tool\":\"count\"}\n");
}

TEST(Log, ProgressOffATerminalIsRare) {
  const std::string text = stderr_of([] {
    const Log log;
    for (int i = 0; i < 100; ++i) log.progress("count", i, 100, "7 MB/s");
    log.progress("count", 100, 100);
  });
  EXPECT_THAT(text, MatchesRegex("count   0 % · 7 MB/s\ncount 100 % · took 0 s\n"))
      << "the first and the last call only";
}

TEST(Log, ProgressOnATerminalRewritesItsLine) {
  const std::string text = terminal_output_of([] {
    const Log log;
    log.progress("count", 1, 4);
    log.plain("between");
    Clock{}.sleep_s(0.15);
    log.progress("count", 2, 4);
    log.progress("count", 4, 4);
    log.plain("after");
  });
  const std::string wipe = "\r\x1b[K";
  EXPECT_THAT(text, MatchesRegex("count  25 %.*between\r\ncount  50 % · ETA 0 s.*count 100 % · took 0 s\r\nafter\r\n"));
  EXPECT_THAT(text, HasSubstr("count  25 %" + wipe + "between"));
  EXPECT_THAT(text, HasSubstr("ETA 0 s" + wipe + "count 100 %"));
}

TEST(Log, LinesAreCopiedToAFileWithTimeAndLevel) {
  const test::TempFolder folder;
  const Files files = Files::system();
  files.write_atomically(folder / "log", "before\n");
  const std::string text = stderr_of([&] {
    const Log log;
    log.info("not yet");
    log.copy_to(files.append(folder / "log"));
    log.warn("step {}", 1);
    log.progress("count", 1, 2);
    log.plain("result {}");
  });
  EXPECT_THAT(text, HasSubstr("warning step 1\n"));
  EXPECT_THAT(files.read_text(folder / "log"),
              MatchesRegex("before\n....-..-..T..:..:..Z warning step 1\nresult \\{\\}\n"));
}

TEST(Log, AFullDiskEndsTheCopyWithOneWarning) {
  const std::string text = stderr_of([] {
    const Log log;
    log.copy_to(File(Files::system().os(), open("/dev/full", O_WRONLY | O_CLOEXEC), "full"));
    log.info("one");
    log.info("two");
  });
  EXPECT_THAT(text,
              MatchesRegex(".* info +one\n.* warning the log goes to stderr alone from here on: .*\n.* info +two\n"));
}

TEST(Log, ProgressOfAnotherThingBeginsAnew) {
  const std::string text = stderr_of([] {
    const Log log;
    log.progress("a", 1, 2);
    log.progress("b", 1, 4);
    log.progress("empty", 0, 0);
  });
  EXPECT_EQ(text, "a  50 %\nb  25 %\nempty 100 % · took 0 s\n");
}

}  // namespace
}  // namespace argosy
