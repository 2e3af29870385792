#include "data/records.hpp"

#include <gmock/gmock.h>

#include "support/counted_text.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::data {
namespace {

using testing::AllOf, testing::ElementsAre, testing::HasSubstr;

class ReadRecords : public testing::Test {
 protected:
  Path write(const std::string& name, const std::string& text) {
    files_.write_atomically(folder_ / name, text);
    return folder_ / name;
  }
  /// Of one file, with nothing counted.
  Records read(const std::string& text) { return read_records(files_, rules_, {{write("text", text)}, {}}, unpack_); }
  std::vector<std::string> targets(const std::string& text) {
    std::vector<std::string> found;
    for (const Record& record : read(text).records) found.push_back(record.target);
    return found;
  }
  std::string refused(const std::string& text) {
    return test::refusal(Fault::data, [&] { (void)read(text); });
  }
  test::TempFolder folder_;
  Files files_ = Files::system();
  TextRules rules_{};
  UnpackSettings unpack_{.folder = folder_ / "unpacked"};
};

TEST_F(ReadRecords, ADocumentIsALine) {
  EXPECT_THAT(targets("one\n  two\t\r\n\nlast"), ElementsAre("one", "  two\t", "", "last"));
}

TEST_F(ReadRecords, ADocumentEndsAtABlankLineAndKeepsItsOwnLines) {
  rules_.documents = DocumentUnit::blank_line;
  EXPECT_THAT(targets("\n\nif x:\n\ty = 1\n\n \nz\n\n\n\nend"), ElementsAre("if x:\n\ty = 1", " \nz", "end"));
  EXPECT_THAT(targets("a\r\nb\r\n\r\nc\r\n"), ElementsAre("a\r\nb", "c"));
  EXPECT_THAT(targets("\n\n"), ElementsAre());
}

TEST_F(ReadRecords, ADocumentIsAFileByteForByte) {
  rules_.documents = DocumentUnit::file;
  for (const char* text : {"int f() {\r\n\treturn 1;\n\n}\n", "\n\nno line feed at the end", "\n"})
    EXPECT_THAT(targets(text), ElementsAre(text));
}

TEST_F(ReadRecords, DropsAByteOrderMarkAtTheBeginningOfAFileOnly) {
  for (const DocumentUnit documents : {DocumentUnit::line, DocumentUnit::blank_line, DocumentUnit::file}) {
    rules_.documents = documents;
    EXPECT_THAT(targets("\xef\xbb\xbfone \xef\xbb\xbf"), ElementsAre("one \xef\xbb\xbf"));
  }
}

TEST_F(ReadRecords, TasksOfAnySizeGiveTheSameDocuments) {
  const std::string first = "a\nb\n\nc\n\n\nd\ne\nf", second = "g\n\nh\ni\n\n", third = "\nj\n";
  const std::vector<Path> paths{write("1", first), write("2", second), write("3", third)};
  for (const auto& [documents, wanted] :
       {std::pair{DocumentUnit::line,
                  std::vector<std::string>{"a", "b", "", "c", "", "", "d", "e", "f", "g", "", "h", "i", "", "", "j"}},
        {DocumentUnit::blank_line, {"a\nb", "c", "d\ne\nf", "g", "h\ni", "j"}},
        {DocumentUnit::file, {first, second, third}}}) {
    rules_.documents = documents;
    const CountedCorpus corpus = test::counted(rules_, paths);
    for (std::int64_t lines = 1; lines <= corpus.lines() + 1; ++lines) {
      std::vector<std::string> found;
      bool open = false;  // the latest document goes on
      for (std::int64_t at = 0; at < corpus.lines(); at += lines) {
        const RecordTask task{&corpus, at, std::min(lines, corpus.lines() - at)};
        for (const Record& record : read_records(files_, task).records) {
          EXPECT_NE(record.starts_document, open);
          if (record.starts_document) found.emplace_back();
          EXPECT_GE(static_cast<std::int64_t>(record.line), at);
          EXPECT_LT(static_cast<std::int64_t>(record.line), at + lines);
          found.back() += record.target;
          open = !record.ends_document;
        }
      }
      EXPECT_FALSE(open);
      EXPECT_EQ(found, wanted) << lines;
    }
  }
}

TEST_F(ReadRecords, NoticesATextThatChangedAfterItWasCounted) {
  const Path path = write("text", "one\ntwo\nthree\n");
  const CountedCorpus corpus = test::counted(rules_, {path});
  const RecordTask task{&corpus, 1, 2};
  EXPECT_EQ(read_records(files_, task).records.size(), 2U);
  for (const char* text : {"one\ntwo", "one two\nthree\n", "one two three\n"}) {
    write("text", text);
    EXPECT_THAT(test::refusal(Fault::data, [&] { (void)read_records(files_, task); }),
                HasSubstr("changed after it was counted"))
        << text;
  }
}

TEST_F(ReadRecords, CutsLongDocumentsIntoPartsThatAreTheText) {
  const auto parts_of = [](const std::string& text, std::size_t most) {
    Record record;
    record.target = text;
    record.loss_on_all = false;
    record.loss = {{1, 4}, {5, text.size() - 1}};
    std::string bearing, found;
    for (const ByteRange& range : record.loss) bearing += text.substr(range.begin, range.end - range.begin);
    std::vector<Record> parts;
    append_parts(std::move(record), parts, most);
    std::vector<std::string> texts;
    std::string joined;
    for (const Record& part : parts) {
      EXPECT_LE(part.target.size(), most);
      EXPECT_EQ(part.starts_document, &part == &parts.front());
      EXPECT_EQ(part.ends_document, &part == &parts.back());
      for (const ByteRange& range : part.loss) found += part.target.substr(range.begin, range.end - range.begin);
      joined += part.target;
      texts.push_back(part.target);
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(found, bearing);
    return texts;
  };
  EXPECT_THAT(parts_of("one\ntwo\nthree", 9), ElementsAre("one\ntwo\n", "three"));
  EXPECT_THAT(parts_of("one two\nthree four", 8), ElementsAre("one two\n", "three ", "four"));
  EXPECT_THAT(parts_of("caf\u00e9\u00e9\u00e9", 4), ElementsAre("caf", "\u00e9\u00e9", "\u00e9"));
  EXPECT_THAT(parts_of("short", 9), ElementsAre("short"));
}

TEST_F(ReadRecords, ReadsLinesOfTenMegabytes) {
  const std::string line(10 << 20, 'x');
  const std::vector<Record> records = read(line + "\nshort\n").records;
  const std::size_t parts = line.size() / most_record_bytes;
  ASSERT_EQ(records.size(), parts + 1);
  EXPECT_EQ(records.back().target, "short");
  EXPECT_EQ(records[parts - 1].target.size(), most_record_bytes);
  rules_.pairs = true;
  const Path path = write("long", line);
  const std::vector<Record> pairs = read_records(files_, rules_, {{path}, {path}}, unpack_).records;
  EXPECT_EQ(std::tuple(pairs.size(), pairs[0].source == line, pairs[0].target == line), std::tuple(1U, true, true));
}

TEST_F(ReadRecords, NamesFileLineAndByteOfABinaryFile) {
  EXPECT_THAT(refused(std::string("one\ntw\0o\n", 9)), AllOf(HasSubstr("text line 2, byte 6"), HasSubstr("binary")));
  EXPECT_THAT(refused(std::string("\xef\xbb\xbf\0", 4)), HasSubstr("text line 1, byte 3"));
}

TEST_F(ReadRecords, TakesColumnsOfTsv) {
  rules_ = {.format = TextFormat::tsv, .pairs = true};
  const auto pairs = [&](const std::string& text) {
    std::string all;
    for (const Record& record : read(text).records) all += record.source + "|" + record.target + ";";
    return all;
  };
  EXPECT_EQ(pairs("a b\tc\r\n\"d\"\t e\tf\n\n\t\n"), "a b|c;\"d\"| e;|;|;");
  rules_.fields = {.source = "3", .target = "1"};
  EXPECT_EQ(pairs("a\tb\tc\n"), "c|a;");
  EXPECT_THAT(
      refused("a\tb\tc\na\tb\n"),
      AllOf(HasSubstr("text line 2, byte 9: expected a column 3 (columns are separated by tabs), got 2 columns"),
            HasSubstr("data.broken_records=skip")));
  rules_ = {.format = TextFormat::tsv};
  EXPECT_THAT(targets("a\tb\n"), ElementsAre("a"));
  rules_.fields = {.text = "2"};
  EXPECT_THAT(targets("a\tb\n"), ElementsAre("b"));
  rules_.fields = {.source = "1", .target = "2"};
  const Record record = read("ab\tcde\n").records.at(0);
  EXPECT_EQ(record.target, "abcde");
  EXPECT_EQ(record.loss, (std::vector<ByteRange>{{2, 5}}));
}

TEST_F(ReadRecords, TakesFieldsOfJsonl) {
  rules_ = {.format = TextFormat::jsonl, .pairs = true};
  std::vector<Record> records = read(R"({"source": "a\nb", "target": "\u00e9", "x": [1, {"y": null}]})").records;
  EXPECT_EQ(std::pair(records.at(0).source, records.at(0).target),
            std::pair(std::string("a\nb"), std::string("\u00e9")));
  rules_.fields = {.source = "/t/0", .target = "/t/1/en"};
  records = read(R"({"t": ["s", {"en": "t"}]})").records;
  EXPECT_EQ(std::pair(records.at(0).source, records.at(0).target), std::pair(std::string("s"), std::string("t")));
  rules_ = {.format = TextFormat::jsonl, .documents = DocumentUnit::record};
  EXPECT_THAT(targets("{\"text\": \"a\\n\\tb\\n\"}\n\n{\"text\": \"\"}\n"), ElementsAre("a\n\tb\n", "", ""));
  rules_.fields = {.text = "/body"};
  EXPECT_THAT(targets(R"({"body": "b", "text": "t", "messages": []})"), ElementsAre("b"));
}

TEST_F(ReadRecords, PutsLossOnAnswersAndCompletionsAlone) {
  rules_ = {.format = TextFormat::jsonl};
  const auto bearing = [](const Record& record) {
    EXPECT_FALSE(record.loss_on_all);
    std::vector<std::string> parts;
    for (const ByteRange& range : record.loss)
      parts.push_back(record.target.substr(range.begin, range.end - range.begin));
    return parts;
  };
  const Record chat =
      read(R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, )"
           R"({"role": "assistant", "content": "Ho\n"}, {"role": "user", "content": ""}, )"
           R"({"content": "Bye", "role": "assistant", "name": "x"}]})")
          .records.at(0);
  EXPECT_EQ(chat.target,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo\n"
            "<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\nBye<|im_end|>\n");
  EXPECT_THAT(bearing(chat), ElementsAre("Ho\n<|im_end|>", "Bye<|im_end|>"));
  const Record completion = read(R"({"source": "2+2=", "target": "4"})").records.at(0);
  EXPECT_EQ(completion.target, "2+2=4");
  EXPECT_THAT(bearing(completion), ElementsAre("4"));
  EXPECT_TRUE(read(R"({"text": "all"})").records.at(0).loss_on_all);
}

TEST_F(ReadRecords, SaysWhatIsWrongWithARecordAndWhere) {
  rules_ = {.format = TextFormat::jsonl};
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": "a)", "text line 2, byte 28"},
      {R"({"text": tru})", "text line 2, byte 26"},
      {R"({"text": "a"} {})", "byte 31: expected one JSON object"},
      {R"({"text": "\ud800"})", "expected one JSON object"},
      {R"([1])", "expected a JSON object, got a list"},
      {R"({"text": 3})", "expected a string at /text, got a number"},
      {R"({"text": "a\u0000"})", "a zero character"},
      {R"({"title": "a"})", "expected a text, messages, or a source and a target, got none of them"},
      {R"({"source": "a", "target": null})", "expected a string at /target, got null"},
      {R"({"messages": []})", "expected a list of messages at /messages, got an empty list"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "of the role assistant at /messages, got none"},
      {R"({"messages": [{"role": "user"}]})", "expected a string at /messages/0/content, got none"},
      {R"({"messages": [{"role": "a\nb", "content": "a"}]})", "expected a role at /messages/0/role"},
  };
  for (const auto& [line, words] : cases)
    EXPECT_THAT(refused("{\"text\": \"good\"}\n" + std::string(line) + "\n"), HasSubstr(words)) << line;
  rules_.broken_records = BrokenRecords::skip;
  const Records some = read("{\"text\": \"good\"}\n{\n[]\n{\"text\": \"too\"}\n");
  EXPECT_EQ(std::tuple(some.records.size(), some.broken, some.records.at(1).line), std::tuple(2U, 2, 3U));
}

TEST_F(ReadRecords, FindsFilesByPatterns) {
  files_.make_folders(folder_ / "a/b/c");
  for (const char* name : {"a/2.py", "a/1.py", "a/x.txt", "a/.h.py", "a/b/3.py", "a/b/c/4.py", "a/[5].py"})
    write(name, "x");
  const auto found = [&](const std::string& pattern) {
    std::vector<std::string> names;
    for (const Path& path : matching_files(files_, (folder_ / pattern).string()))
      names.push_back(path.lexically_relative(folder_.path()).string());
    return names;
  };
  EXPECT_THAT(found("a/*.py"), ElementsAre("a/1.py", "a/2.py", "a/[5].py"));
  EXPECT_THAT(found("a/[12].p?"), ElementsAre("a/1.py", "a/2.py"));
  EXPECT_THAT(found("**/*.py"), ElementsAre("a/1.py", "a/2.py", "a/[5].py", "a/b/3.py", "a/b/c/4.py"));
  EXPECT_THAT(found("a/*/*.py"), ElementsAre("a/b/3.py"));
  EXPECT_THAT(found("a/[5].py"), ElementsAre("a/[5].py"));  // the file of this name
  EXPECT_THAT(found("none"), ElementsAre("none"));          // what it is, is said when it is read
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)found("a/*.rs"); }),
              AllOf(HasSubstr("no file matches "), HasSubstr("a/*.rs; correct the pattern")));
  const config::StringOrList two(std::vector<std::string>{folder_ / "a/1.py", folder_ / "a/b/*"});
  EXPECT_EQ(find_text_files(files_, two, std::nullopt, "x").source.size(), 2U);
}

TEST(FormatOf, GoesByTheEndingOfTheFirstName) {
  const std::pair<const char*, TextFormat> names[] = {
      {"a.tsv", TextFormat::tsv},          {"a/b.*.jsonl.gz", TextFormat::jsonl},
      {"x.ndjson.zst", TextFormat::jsonl}, {"jsonl", TextFormat::text},
      {"a.en", TextFormat::text},          {"tsv.gz", TextFormat::text}};
  for (const auto& [name, format] : names) EXPECT_EQ(format_of(std::nullopt, {name}, false), format) << name;
  EXPECT_EQ(format_of(std::nullopt, {"a.tsv"}, true), TextFormat::text);
  EXPECT_EQ(format_of(TextFormat::text, {"a.tsv"}, false), TextFormat::text);
}

}  // namespace
}  // namespace argosy::data
