#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "data/records.hpp"
#include "fuzz/fuzz.hpp"

namespace argosy::data {
namespace {

/// A file in memory whose content can be replaced.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}
  void write(std::string_view text) const {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, text.data(), text.size(), 0) != std::ssize(text)) std::abort();
  }
  [[nodiscard]] const Path& path() const { return path_; }

 private:
  int fd_;
  Path path_;
};

TextRules rules_by(unsigned bits) {
  TextRules rules;
  rules.format = (bits & 1U) != 0 ? TextFormat::tsv : TextFormat::text;
  rules.pairs = (bits & 2U) != 0;
  if (rules.format == TextFormat::text && !rules.pairs) rules.documents = static_cast<DocumentUnit>((bits >> 2U) % 3);
  rules.invalid_utf8 = (bits & 16U) != 0 ? InvalidUtf8::replace : InvalidUtf8::reject;
  rules.broken_records = (bits & 32U) != 0 ? BrokenRecords::skip : BrokenRecords::reject;
  return rules;
}

CountedFile counted(const MemoryFile& file, std::string_view text) {
  CountedFile counted{.path = file.path(), .record = {}, .text = file.path()};
  const auto newlines = std::ranges::count(text, '\n');
  counted.record.size_bytes = text.size();
  counted.record.figures.lines = newlines + (text.empty() || text.ends_with('\n') ? 0 : 1);
  if (!text.empty()) counted.record.block_newlines = {static_cast<std::uint32_t>(newlines)};
  return counted;
}

/// Records of the whole text, and the same by tasks of a few lines.
void read_all(std::string_view text, const TextRules& rules, std::int64_t lines_per_task) {
  static const MemoryFile file;
  static const Files files = Files::system();
  file.write(text);
  CountedCorpus corpus{.rules = rules, .source = {counted(file, text)}};
  if (rules.pairs && rules.format == TextFormat::text) corpus.target = corpus.source;
  const RecordTask whole{&corpus, 0, corpus.lines()};
  const Records all = read_records(files, whole);
  Records parts;
  for (std::int64_t at = 0; at < corpus.lines(); at += lines_per_task) {
    const RecordTask task{&corpus, at, std::min(lines_per_task, corpus.lines() - at)};
    Records some = read_records(files, task);
    parts.broken += some.broken;
    for (Record& record : some.records) append_parts(std::move(record), parts.records, 3);
  }
  ARGOSY_CHECK(parts.broken == all.broken, "{} and {} broken records", parts.broken, all.broken);
  std::string joined[2];
  for (const Record& record : all.records) joined[0] += record.target;
  for (const Record& record : parts.records) joined[1] += record.target;
  ARGOSY_CHECK(joined[0] == joined[1], "the parts are another text");
}

}  // namespace
}  // namespace argosy::data

/// A text by all rules of lines and columns; its first byte decides which.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  if (size < 2) return 0;
  const std::string_view text = test::text_of(data + 2, size - 2);
  test::refuses_or_takes([&] { data::read_all(text, data::rules_by(data[0]), 1 + data[1] % 5); });
  return 0;
}
