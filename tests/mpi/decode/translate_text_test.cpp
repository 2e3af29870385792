#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "decode/translate.hpp"
#include "support/caught.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/on_root.hpp"
#include "support/refusal.hpp"
#include "support/shared_folder.hpp"

namespace argosy::decode {
namespace {

using test::refusal, test::world;
using testing::HasSubstr;

/// Files translated by a model that turns each line round and scores it with its number.
class TextTranslationTest : public testing::Test {
 protected:
  TextReport run(const TextFiles& files, Os& os) {
    test::TestContext context{os, world()};
    TextTranslation text{context.get(), files};
    return text.run([&](const TextPart& part) {
      most_ = std::max(most_, part.lines.size());
      ++parts_;
      double number = static_cast<double>(part.first);
      std::vector<Translation> translations;
      for (const std::string& line : part.lines) {
        translations.push_back({std::string(line.rbegin(), line.rend()), number++});
        if (files.nbest) translations.back().others.push_back({line, -0.5, -1.5});
      }
      return translations;
    });
  }
  TextReport run(const TextFiles& files) {
    const TextReport report = run(files, os_);
    world().barrier("translated");
    return report;
  }
  std::string written() {
    const std::string text = Files::system().read_text(folder_ / "out");
    world().barrier("read");
    return text;
  }
  std::string of_text(const std::string& text, std::size_t part_bytes = 1 << 20) {
    folder_.write("in", text);
    run({.input = folder_ / "in", .output = folder_ / "out", .part_bytes = part_bytes});
    return written();
  }

  test::SharedFolder folder_;
  Os os_;
  std::size_t most_ = 0;
  std::atomic<int> parts_ = 0;
};

TEST_F(TextTranslationTest, ALineEachHoweverLinesEnd) {
  EXPECT_EQ(of_text("ab\n\ncd\n"), "ba\n\ndc\n");
  EXPECT_EQ(of_text("ab\r\n\r\ncd"), "ba\n\ndc\n");
  EXPECT_EQ(of_text("\n"), "\n");
  EXPECT_EQ(of_text(""), "");
  EXPECT_EQ(parts_, 3);
}

TEST_F(TextTranslationTest, ALongTextIsTakenInPartsWhichChangeNothing) {
  std::string text, turned;
  for (int i = 0; i < 500; ++i) {
    const std::string line = i % 7 == 0 ? "" : fmt::format("line {}", i);
    text += line + "\n";
    turned += std::string(line.rbegin(), line.rend()) + "\n";
  }
  EXPECT_EQ(of_text(text, 100), turned);
  EXPECT_LT(most_, 100U);
  EXPECT_GT(parts_, 20);
}

TEST_F(TextTranslationTest, ScoresCountOverTheWholeText) {
  folder_.write("in", "a\nb\nc\n");
  run({.input = folder_ / "in", .output = folder_ / "out", .with_scores = true, .part_bytes = 2});
  EXPECT_EQ(written(), "0.000000\ta\n1.000000\tb\n2.000000\tc\n");
  EXPECT_EQ(parts_, 3);
  const std::string words = "one two three four five\n", turned = "evif ruof eerht owt eno\n";
  for (const std::size_t part_bytes : {std::size_t{24}, std::size_t{1} << 20}) {
    const TextFiles files{.input = folder_.write("in", words + words),
                          .output = folder_ / "out",
                          .reference = folder_.write("ref", turned + "evif ruof eerht owt zehn\n"),
                          .part_bytes = part_bytes};
    const TextReport report = run(files);
    EXPECT_EQ(report.lines, 2U);
    ASSERT_TRUE(report.scores);
    EXPECT_GT(report.scoring_s, 0);
    EXPECT_NEAR(report.scores->bleu, 83.76, 0.01);  // 100 (9/10 · 7/8 · 5/6 · 3/4)^(1/4)
    EXPECT_EQ(report.scores->ter, 10) << "one word of ten";
  }
}

TEST_F(TextTranslationTest, AllHypothesesAreListedInMariansFormat) {
  folder_.write("in", "ab\ncd\n");
  run({.input = folder_ / "in", .output = folder_ / "out", .nbest = true, .part_bytes = 2});
  EXPECT_EQ(parts_, 2);
  EXPECT_EQ(written(),
            "0 ||| ba ||| F0= 0.000000 ||| 0.000000\n0 ||| ab ||| F0= -1.500000 ||| -0.500000\n"
            "1 ||| dc ||| F0= 0.000000 ||| 1.000000\n1 ||| cd ||| F0= -1.500000 ||| -0.500000\n");
}

TEST_F(TextTranslationTest, AlignmentsFollowTheText) {
  test::TestContext context{os_, world()};
  const auto of = [&](TextFiles files) {
    files.input = folder_.write("in", "ab\n");
    files.output = folder_ / "out";
    files.with_alignments = true;
    (void)TextTranslation{context.get(), files}.run([](const TextPart& part) {
      return std::vector<Translation>(part.lines.size(), {.text = "x y", .score = -1, .alignment = "0-0 0-1"});
    });
    world().barrier("translated");
    return written();
  };
  EXPECT_EQ(of({}), "x y ||| 0-0 0-1\n");
  EXPECT_EQ(of({.with_scores = true}), "-1.000000\tx y ||| 0-0 0-1\n");
  EXPECT_EQ(of({.nbest = true}), "0 ||| x y ||| 0-0 0-1 ||| F0= 0.000000 ||| -1.000000\n");
}

TEST_F(TextTranslationTest, TargetsGoWithTheirLines) {
  std::string text, targets, expected;
  for (int i = 0; i < 100; ++i) {
    text += fmt::format("line {}\n", i);
    targets += i % 3 == 0 ? "\n" : fmt::format("target {}\n", i);
    expected += i % 3 == 0 ? fmt::format("line {}|\n", i) : fmt::format("line {}|target {}\n", i, i);
  }
  test::TestContext context{os_, world()};
  const auto join = [&](const TextFiles& files) {
    (void)TextTranslation{context.get(), files}.run([](const TextPart& part) {
      std::vector<Translation> joined;
      for (std::size_t i = 0; i < part.lines.size(); ++i)
        joined.push_back({.text = part.lines[i] + "|" + part.targets.at(i)});
      return joined;
    });
    world().barrier("joined");
    return written();
  };
  TextFiles files{.input = folder_.write("in", text),
                  .output = folder_ / "out",
                  .targets = folder_.write("to", targets),
                  .part_bytes = 50};
  EXPECT_EQ(join(files), expected);
  files.targets = folder_.write("to", "a\xff\n");
  files.input = folder_.write("in", "b\n");
  EXPECT_EQ(join(files), "b|a\xef\xbf\xbd\n");
  folder_.write("to", "a\nb\n");
  EXPECT_THAT(refusal(Fault::data, [&] { (void)join(files); }),
              HasSubstr("to: expected 1 lines, as many as the input has, got 2"));
  world().barrier("refused");
  files.output = files.targets;
  EXPECT_THAT(refusal(Fault::usage, [&] { (void)join(files); }),
              HasSubstr("is both the text of the targets and the output"));
}

TEST_F(TextTranslationTest, WhatIsNotUtf8IsReplaced) {
  EXPECT_EQ(of_text("ok\nb\xff\n"),
            "ko\n\xbd\xbf\xef"
            "b\n");
}

TEST_F(TextTranslationTest, TakesWhatCanBeReadOnlyOnce) {
  const Path fifo = folder_ / "fifo";
  std::jthread writer;
  if (world().rank() == 0) {
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    writer = std::jthread([&] { std::ofstream{fifo} << "ab\ncd\n"; });
  }
  class Ends : public Os {  // a terminal has to be told of each
   public:
    std::int64_t read(int fd, void* to, std::size_t size_bytes) override {
      const std::int64_t got = Os::read(fd, to, size_bytes);
      seen += got == 0 ? 1 : 0;
      return got;
    }
    int seen = 0;
  } ends;
  run({.input = fifo, .output = folder_ / "out"}, ends);
  world().barrier("translated");
  EXPECT_EQ(ends.seen, world().rank() == 0 ? 1 : 0);
  EXPECT_EQ(written(), "ba\ndc\n");
}

TEST_F(TextTranslationTest, OfAPipeALineIsTranslatedBeforeTheNextArrives) {
  const Path fifo = folder_ / "fifo";
  std::jthread writer;
  if (world().rank() == 0) {
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    writer = std::jthread([&] {
      std::ofstream pipe{fifo};
      pipe << "ab\nc" << std::flush;  // and the beginning of the next
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{20};
      while (parts_ == 0 && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      EXPECT_EQ(parts_, 1);
      pipe << "d\n";
    });
  }
  run({.input = fifo, .output = folder_ / "out"});
  EXPECT_EQ(parts_, 2);
  EXPECT_EQ(written(), "ba\ndc\n");
}

TEST_F(TextTranslationTest, RefusesBadInputBeforeAnythingIsTranslated) {
  folder_.write("in", "a\nb\nc\n");
  folder_.write("two", "a\nb\n");
  folder_.write("four", "a\nb\nc\nd\n");
  folder_.write("empty", "");
  folder_.write("long", "short\n" + std::string(100, 'x') + "\n");
  const Path out = folder_ / "out";
  const auto refuses = [&](Fault fault, TextFiles files, const char* text) {
    files.part_bytes = 10;
    EXPECT_THAT(refusal(fault, [&] { run(files); }), HasSubstr(text));
    EXPECT_EQ(parts_, 0) << text;
    world().barrier("refused");
  };
  refuses(Fault::data, {.input = folder_ / "missing", .output = out}, "no such file");
  refuses(Fault::data, {.input = folder_.path(), .output = out}, "expected a text file, got a folder");
  refuses(Fault::data, {.input = folder_ / "in", .output = out, .reference = folder_ / "two"},
          "expected 3 lines, as many as the input has, got 2");
  refuses(Fault::data, {.input = folder_ / "in", .output = out, .reference = folder_ / "four"},
          "expected 3 lines, as many as the input has, got 4");
  refuses(Fault::data, {.input = folder_ / "empty", .output = out, .reference = folder_ / "empty"},
          "a text with at least one line");
  refuses(Fault::io, {.input = folder_ / "in", .output = folder_ / "missing/out"}, "ENOENT");
  refuses(Fault::usage, {.input = folder_ / "in", .output = folder_.path()}, "got a folder");
  refuses(Fault::usage, {.input = folder_ / "in", .output = folder_ / "in"}, "is both the input and the output");
  refuses(Fault::usage, {.input = folder_ / "in", .output = folder_ / "two", .reference = folder_ / "two"},
          "is both the reference and the output");
  test::on_root([&] {
    Files::system().link_symbolically("in", folder_ / "link");
    std::filesystem::create_hard_link(folder_ / "in", folder_ / "hard");
  });
  for (const char* const same : {"link", "hard"})
    refuses(Fault::usage, {.input = folder_ / "in", .output = folder_ / same}, "is both the input and the output");
  EXPECT_THAT(refusal(Fault::data, [&] { run({.input = folder_ / "long", .output = out, .part_bytes = 10}); }),
              HasSubstr("long line 2"));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"empty", "four", "hard", "in", "link", "long", "two"}));
}

TEST_F(TextTranslationTest, OfTwoAtOnceOneIsWhole) {
  folder_.write("in", "ab\n");
  folder_.write("in2", "cdef\n");
  test::TestContext context{os_, world()};
  {
    TextTranslation first{context.get(), {.input = folder_ / "in", .output = folder_ / "out"}};
    run({.input = folder_ / "in2", .output = folder_ / "out"});
    EXPECT_EQ(written(), "fedc\n");
    (void)first.run(
        [](const TextPart& part) { return std::vector<Translation>(part.lines.size(), {.text = "first"}); });
  }
  world().barrier("over");
  EXPECT_EQ(written(), "first\n");
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"in", "in2", "out"}));
}

TEST_F(TextTranslationTest, LeavesTheOldOutputOrAWholeOneWhateverCallFails) {
  folder_.write("in", "ab\ncd\nef\n");
  folder_.write("ref", "ab\ncd\nef\n");
  const TextFiles files{
      .input = folder_ / "in", .output = folder_ / "out", .reference = folder_ / "ref", .part_bytes = 4};
  test::FaultyOs watched;
  run(files, watched);
  const auto calls = std::stoull(world().broadcast(std::to_string(watched.count())));
  for (const bool crashes : {false, true}) {
    for (std::size_t n = 0; n < calls; ++n) {
      folder_.write("out", "old");
      test::FaultyOs os;
      if (world().rank() == 0) crashes ? os.crash(n) : os.fail(n, ENOSPC);
      const std::optional<Error> error = test::caught([&] { run(files, os); });
      const bool threw = error.has_value();
      if (threw) {
        EXPECT_EQ(exit_code(error->fault()), Exit::io) << error->what();
      }
      EXPECT_EQ(comm::any_of(world(), threw), threw) << "a rank goes on where another has failed";
      EXPECT_EQ(os.open_files(), 0U) << n;
      const std::string left = written();
      EXPECT_TRUE(left == "ba\ndc\nfe\n" || (threw && left == "old")) << n << " " << left;
      for (const std::string& name : folder_.names()) {
        const bool whole_name = name == "in" || name == "ref" || name == "out";
        EXPECT_TRUE(whole_name || (crashes && name.starts_with("out.tmp-"))) << n << " left " << name;
        if (!whole_name && world().rank() == 0) Files::system().remove(folder_ / name);
      }
      world().barrier("tidied");
    }
  }
}

}  // namespace
}  // namespace argosy::decode
