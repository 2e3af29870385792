#include "data/count.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>

#include "core/random.hpp"
#include "data/line_offset.hpp"
#include "data/token_count.hpp"
#include "support/captured.hpp"
#include "support/compress.hpp"
#include "support/faulty_os.hpp"
#include "support/on_root.hpp"
#include "support/refusal.hpp"
#include "support/shared_folder.hpp"
#include "support/small_text.hpp"

namespace argosy::data {
namespace {

using test::world;
using testing::HasSubstr;

/// About 13 MB (four blocks) of lines of very different lengths, one longer than a block, with an unterminated end.
std::string long_text() {
  RandomStream random{11, 0};
  std::string text;
  const char* const words[] = {"word ", "caf\u00e9 ", "\u6f22\u5b57 ", "a\tb ",
                               "\r\n",  "\n",         "\n\n",          "plain text here "};
  while (text.size() < (12U << 20)) {
    text += words[random.below(std::size(words))];
    if (text.size() > (3U << 20) && text.size() < (3U << 20) + 8) text += std::string(5U << 20, 'x');
    if (text.size() > (1U << 20) && random.below(3) == 0) text += std::string(random.below(3000), 'y');
  }
  return text + "the end without a line feed";
}

TextFigures figures_in_one_piece(const std::string& text) {
  TextScanner scanner;
  scanner.scan(text, true);
  scanner.finish();
  return scanner.figures();
}

class Count : public testing::Test {
 protected:
  std::vector<CountedFile> count_all(const std::vector<Path>& paths, bool content_hash = false) {
    settings_.content_hash = content_hash;
    return count_files(world(), files_, log_, paths, settings_);
  }
  CountedFile count(const Path& path, bool content_hash = false) { return count_all({path}, content_hash).at(0); }
  std::size_t bytes_read() {  // from files that are no records
    std::size_t sum = 0;
    for (const auto& record : os_.records()) {
      const bool text = record.path.find("/cache/") == std::string::npos;
      if (text && (record.call == test::Call::pread || record.call == test::Call::mmap)) sum += record.size_bytes;
    }
    std::vector<std::int64_t> all{static_cast<std::int64_t>(sum)};
    world().all_reduce(all);
    return static_cast<std::size_t>(all[0]);
  }
  test::SharedFolder folder_;
  test::FaultyOs os_;
  Files files_{os_};
  Log log_{world().rank(), LogLevel::warn};
  CountSettings settings_{.cache = folder_ / "cache"};
};

TEST_F(Count, GivesTheSameRecordOnAnyNumberOfRanks) {
  const std::string text = long_text();
  const CountRecord record = count(folder_.write("long", text)).record;
  EXPECT_EQ(record.figures, figures_in_one_piece(text));
  EXPECT_EQ(record.size_bytes, text.size());
  EXPECT_GE(record.block_newlines.size(), 4U);
  // XXH3-128 over the digests of 4 MiB blocks.
  Hasher hasher;
  for (std::size_t at = 0; at < text.size(); at += count_block_bytes) {
    const Digest block = digest_of(std::string_view{text}.substr(at, count_block_bytes));
    hasher.update(std::as_bytes(std::span{block.bytes}));
  }
  EXPECT_EQ(record.digest, hasher.digest());
}

TEST_F(Count, FindsTheFirstInvalidByteOfTheWholeFile) {
  std::string text = long_text();
  const std::size_t at = text.find("plain", (9U << 20));
  text[at] = '\xff';
  text[at + 600000] = '\xfe';
  const CountRecord record = count(folder_.write("bad", text)).record;
  EXPECT_EQ(record.figures.invalid_bytes, figures_in_one_piece(text).invalid_bytes);
  ASSERT_TRUE(record.first_invalid);
  EXPECT_EQ(record.first_invalid->byte_offset, static_cast<std::int64_t>(at));
  EXPECT_EQ(record.first_invalid->line, std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

TEST_F(Count, FindsAnyLineByItsBlock) {
  const std::string text = long_text();
  const Path path = folder_.write("long", text);
  const CountRecord record = count(path).record;
  const auto lines = static_cast<std::uint64_t>(record.figures.lines);
  std::uint64_t line = 0;
  std::size_t offset = 0;
  for (const std::uint64_t wanted : {std::uint64_t{0}, std::uint64_t{1}, lines / 3, lines / 2, lines - 1}) {
    for (; line < wanted; ++line) offset = text.find('\n', offset) + 1;
    EXPECT_EQ(offset_of_line(files_, path, record, wanted), offset) << wanted;
  }
  EXPECT_EQ(offset_of_line(files_, path, record, lines), text.size());
}

TEST_F(Count, ReadsNoTextASecondTime) {
  const Path path = folder_.write("caf\xe9", "one two\nthree\n");  // in Latin-1: not UTF-8
  const CountedFile first = count(path);
  EXPECT_FALSE(first.from_cache);
  const std::size_t read = bytes_read();
  EXPECT_GT(read, 0U);
  const CountedFile second = count(path);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.record, first.record);
  EXPECT_EQ(bytes_read(), read);
  EXPECT_FALSE(count(path, true).from_cache);
  EXPECT_GT(bytes_read(), read);
}

TEST_F(Count, ReadsAgainWhenTheFileChanged) {
  const Path path = folder_.write("text", "one two\nthree\n");
  const CountRecord first = count(path).record;
  folder_.write("text", "one two\nthrew\n");  // as many bytes
  const CountedFile changed = count(path);
  EXPECT_FALSE(changed.from_cache);
  EXPECT_NE(changed.record.digest, first.digest);
  // Touched only: read again, and the same record.
  test::on_root([&] {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::hours{1});
  });
  const CountedFile touched = count(path);
  EXPECT_FALSE(touched.from_cache);
  EXPECT_EQ(touched.record, changed.record);
}

TEST_F(Count, TakesADamagedRecordForNone) {
  const Path path = folder_.write("text", "one\n");
  const CountRecord first = count(path).record;
  for (const char* damage : {"", "{", "[]", "{\"version\": 1}", "{\"version\": 9}"}) {
    test::on_root([&] {
      for (const std::string& name : Files::system().list(folder_ / "cache"))
        Files::system().write_atomically(folder_ / "cache" / name, std::string_view{damage});
    });
    const CountedFile again = count(path);
    EXPECT_FALSE(again.from_cache) << damage;
    EXPECT_EQ(again.record, first) << damage;
  }
}

TEST_F(Count, AFlippedBitOfARecordChangesNoFigure) {
  const Path path = folder_.write("text", "one two\n\xff\nthree\n");
  const CountRecord first = count(path).record;
  const std::vector<std::string> names = Files::system().list(folder_ / "cache");
  ASSERT_EQ(names.size(), 2U);
  for (const std::string& name : names) {
    const std::string whole = Files::system().read_text(folder_ / "cache" / name);
    world().barrier("read");
    for (std::size_t at = 0; at < whole.size(); at += 5) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << at % 8);
      folder_.write("cache/" + name, bytes);
      EXPECT_EQ(count(path).record, first) << bytes;
    }
  }
}

TEST_F(Count, BelievesNoRecordThatNoTextCouldHave) {
  const Path path = folder_.write("text", "one two\nthree\n");
  const CountRecord first = count(path).record;
  const auto forged = [&](const std::function<void(CountRecord&)>& forge) {
    CountRecord record = first;
    forge(record);
    folder_.write("cache/" + record.digest.hex() + ".json", text_of(record));
    const CountedFile again = count(path);
    EXPECT_FALSE(again.from_cache);
    EXPECT_EQ(again.record, first);
  };
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{1} << 31, INT64_MAX}) {
    for (std::int64_t TextFigures::*figure :
         {&TextFigures::lines, &TextFigures::newlines, &TextFigures::empty_lines, &TextFigures::words,
          &TextFigures::characters, &TextFigures::longest_line, &TextFigures::invalid_bytes})
      forged([&](CountRecord& record) { record.figures.*figure = number; });
    forged([&](CountRecord& record) { record.size_bytes = static_cast<std::uint64_t>(number); });
    forged([&](CountRecord& record) { record.first_invalid = BytePlace{number, number}; });
    forged([&](CountRecord& record) { record.block_newlines.at(0) = static_cast<std::uint32_t>(number); });
  }
}

TEST_F(Count, RefusesAPipe) {
  const Path pipe = folder_ / "pipe";
  test::on_root([&] { EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0); });
  for (const Path& path : {pipe, Path{"/dev/null"}})
    EXPECT_THAT(test::refusal(Fault::data, [&] { (void)count(path); }), HasSubstr("got a pipe or a device"));
}

TEST_F(Count, CountsSmallAndEmptyFilesOfAList) {
  std::vector<std::int64_t> lines;
  for (const CountedFile& file : count_all({folder_.write("a", "1\n2\n"), folder_.write("empty", ""),
                                            folder_.write("c", "x"), folder_.write("d", "\n\n")}))
    lines.push_back(file.record.figures.lines);
  EXPECT_EQ(lines, (std::vector<std::int64_t>{2, 0, 1, 2}));
}

TEST_F(Count, CountsWhereNothingCanBeKept) {
  const Path text = folder_.write("a", "1\n2\n");
  (void)folder_.write("cache", "no folder");
  const std::string said = test::stderr_of([&] { EXPECT_EQ(count(text).record.figures.lines, 2); });
  if (world().rank() == 0) {
    EXPECT_THAT(said, HasSubstr("counts are not kept for the next call"));
  }
  EXPECT_FALSE(count(text).from_cache);
}

TEST_F(Count, ReportsATableAndFigures) {
  const std::vector<CountedFile> files =
      count_all({folder_.write("a", "one two\n\nthree\n"), folder_.write("b", "x\xff\n")});
  const std::string table = count_table(files);
  EXPECT_THAT(
      table, testing::MatchesRegex(
                 " +lines +empty +words +characters +bytes +longest +invalid +file\n"
                 " +3 +1 +3 +15 +15 +7 +0 +[^ ]*/a\n +1 +0 +1 +2 +3 +1 +1 +[^ ]*/b\n +4 +1 +4 +17 +18 +7 +1 +total\n"));
  const boost::json::object figures = count_figures(files);
  EXPECT_EQ(figures.at("lines"), 4);
  EXPECT_EQ(figures.at("files").at(1).at("invalid_bytes"), 1);
  EXPECT_EQ(figures.at("files").at(0).at("digest").as_string(), files[0].record.digest.hex());
}

TEST_F(Count, CountsTheTextOfCompressedFilesAndLeavesItWhereAsked) {
  const std::string text = long_text();
  const CountRecord plain = count(folder_.write("plain", text)).record;
  const Path path = folder_.write("packed", test::gzipped(text)),
             other = folder_.write("other", test::zstd_packed(text));
  for (const CountedFile& file : count_all({path, other})) {
    EXPECT_EQ(file.record, plain);
    EXPECT_TRUE(file.text.empty());
  }
  EXPECT_TRUE(count(path).from_cache);
  settings_.unpack.folder = folder_ / "unpacked";
  for (const bool again : {false, true}) {
    for (const CountedFile& file : count_all({path, other})) {
      EXPECT_EQ(file.from_cache, again);
      EXPECT_EQ(file.record, plain);
      EXPECT_TRUE(Files::system().read_text(file.text) == text);
    }
  }
  EXPECT_EQ(count(folder_ / "plain").text, folder_ / "plain");
  // What is unpacked is made again if it is gone.
  test::on_root([&] { Files::system().remove_tree(folder_ / "unpacked"); });
  EXPECT_TRUE(Files::system().read_text(count(path).text) == text);
  EXPECT_THAT(
      test::refusal(Fault::corrupt, [&] { (void)count(folder_.write("cut", test::gzipped(text).substr(0, 100000))); }),
      HasSubstr("cut: expected a whole compressed file, got its end after 100000 bytes"));
}

TEST_F(Count, FindsZeroBytesAndByteOrderMarks) {
  std::string text = long_text();
  const std::size_t at = text.find("plain", (9U << 20));
  text[at] = '\0';
  text[at + 9] = '\0';
  const CountRecord record = count(folder_.write("zero", "\xef\xbb\xbf" + text)).record;
  ASSERT_TRUE(record.first_zero);
  EXPECT_EQ(record.first_zero->byte_offset, static_cast<std::int64_t>(at) + 3);
  EXPECT_EQ(record.first_zero->line, std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  EXPECT_TRUE(record.has_byte_order_mark);
  EXPECT_EQ(count(folder_ / "zero").record, record);  // from the cache
  const CountRecord none = count(folder_.write("none", "a\xef\xbb\xbf\n")).record;
  EXPECT_FALSE(none.first_zero || none.has_byte_order_mark);
}

TEST_F(Count, KeepsManyFilesInOneRecord) {
  test::on_root([&] { Files::system().make_folders(folder_ / "many"); });
  std::vector<Path> paths;
  test::on_root([&] {
    for (int i = 0; i < 200; ++i)
      Files::system().publish(folder_ / fmt::format("many/{}", i), fmt::format("file\n{}\n", i));
  });
  for (int i = 0; i < 200; ++i) paths.push_back(folder_ / fmt::format("many/{}", i));
  const std::vector<CountedFile> first = count_all(paths);
  EXPECT_EQ(folder_.names("cache").size(), 1U);
  const std::size_t read = bytes_read();
  std::vector<CountedFile> again = count_all(paths);
  EXPECT_EQ(bytes_read(), read);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    EXPECT_TRUE(again[i].from_cache);
    EXPECT_EQ(again[i].record, first[i].record);
    EXPECT_EQ(first[i].record.figures.words, 2);
  }
  // One that changed is counted again, alone.
  folder_.write("many/7", "longer than before\n");
  again = count_all(paths);
  for (std::size_t i = 0; i < paths.size(); ++i) EXPECT_EQ(again[i].from_cache, i != 7);
  EXPECT_EQ(again[7].record.figures.words, 3);
  EXPECT_TRUE(count_all(paths)[7].from_cache);
  // Damage changes no figure.
  const std::string name = folder_.names("cache").at(0), whole = Files::system().read_text(folder_ / "cache" / name);
  world().barrier("read");
  for (std::size_t at = 0; at < whole.size(); at += whole.size() / 6) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << at % 8);
    folder_.write("cache/" + name, bytes);
    for (const CountedFile& file : count_all(paths)) EXPECT_GE(file.record.figures.words, 2) << at;
    EXPECT_EQ(count_all(paths)[8].record, first[8].record);
  }
}

TEST_F(Count, CountsTokensAndLengthsOfRecordsOnce) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  const test::Verses text = test::verses(300);
  std::string tsv, lines;
  for (std::size_t i = 0; i < 300; ++i) {
    tsv += text.english[i] + "\t" + (i == 7 ? "" : text.spanish[i]) + "\n";
    lines += text.english[i] + "\n";
  }
  DataConfig data;
  data.corpora = {{.name = "pairs", .languages = {"en", "es"}, .source = folder_.write("v.tsv", tsv)}};
  const auto count_all_tokens = [&] {
    const auto corpora = count_corpora(world(), files_, log_, data, settings_);
    return count_tokens(world(), files_, log_, corpora, tokenizer, folder_ / "cache");
  };
  TokenCount wanted{.examples = 299, .empty = 1};
  for (std::size_t i = 0; i < 300; ++i) {
    if (i == 7) continue;
    for (const auto& [side, line] : {std::pair{&wanted.source, &text.english[i]}, {&wanted.target, &text.spanish[i]}}) {
      const auto ids = std::ssize(tokenizer.encode(*line)) + 1;
      side->tokens += ids;
      side->longest = std::max(side->longest, ids);
      side->lengths.resize(std::max<std::size_t>(side->lengths.size(), std::bit_width(static_cast<std::size_t>(ids))));
      ++side->lengths.at(static_cast<std::size_t>(std::log2(ids)));
    }
  }
  EXPECT_EQ(count_all_tokens(), std::vector{wanted});
  const std::size_t read = bytes_read();
  EXPECT_EQ(count_all_tokens(), std::vector{wanted});
  EXPECT_EQ(bytes_read(), read);
  data.broken_records = BrokenRecords::skip;  // other rules: not the same count
  data.corpora[0].source = folder_.write("v.tsv", tsv + "one column\n");
  wanted.broken = 1;
  EXPECT_EQ(count_all_tokens(), std::vector{wanted});

  data.corpora = {{.name = "lm", .source = folder_.write("v.txt", lines)}};
  EXPECT_EQ(count_all_tokens().at(0).examples, 300);
  data.corpora[0].documents = DocumentUnit::file;
  const TokenCount document = count_all_tokens().at(0);
  EXPECT_EQ(document.examples, 1);
  EXPECT_EQ(document.target.tokens, std::ssize(tokenizer.encode(lines)) + 1);
  EXPECT_EQ(document.source, SideTokens{});
}

TEST_F(Count, ReportsTokensAndLengths) {
  TokenCount count{.examples = 3, .empty = 1, .unknown = 2};
  count.source = {.tokens = 9, .longest = 5, .lengths = {0, 1, 1}};
  count.target = {.tokens = 4, .longest = 2, .lengths = {1, 1}};
  const std::vector<std::string> names{"ab"};
  EXPECT_THAT(token_table(names, std::vector{count}),
              testing::MatchesRegex(" +examples +src_tokens +tgt_tokens +unknown +longest +corpus\n"
                                    " +3 +9 +4 +2 +5 +ab\n"
                                    " +2 +4 +8 +examples with fewer tokens than this\n"
                                    " +0 +1 +1 +ab source\n +1 +1 +0 +ab target\n"));
  EXPECT_EQ(boost::json::serialize(figures_of(count, true).at("lengths")), R"({"target":[1,1],"source":[0,1,1]})");
  EXPECT_EQ(figures_of(count, true).at("dropped").at("empty"), 1);
}

TEST_F(Count, CountsStandardInputOnce) {
  const std::string text = long_text();
  const int saved = ::dup(STDIN_FILENO);
  const Path path = folder_.write("input", text);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(::dup2(file, STDIN_FILENO), 0);
  const CountRecord record = count_standard_input(world(), files_).record;
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(file);
  EXPECT_EQ(record, count(path).record);
}

TEST_F(Count, RefusesMissingFilesAndFoldersOnEveryRank) {
  for (const Path& path : {folder_ / "none", folder_.path()})
    EXPECT_THAT(test::refusal(Fault::data, [&] { (void)count(path); }), HasSubstr(path.filename().string()));
}

TEST_F(Count, FailsOnEveryRankWhenOneCannotRead) {
  const Path path = folder_.write("long", long_text());
  if (world().rank() == world().size() - 1) os_.fail(test::Call::pread, 1, EIO, true);
  EXPECT_THROW((void)count(path), Error);
}

}  // namespace
}  // namespace argosy::data
