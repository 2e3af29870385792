#include "data/record_line.hpp"
#include "fuzz/fuzz.hpp"

/// A line of jsonl, as a pair and as what a language model takes of it.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  using namespace argosy::data;
  const std::string_view line = test::text_of(data, size);
  TextRules rules{.format = TextFormat::jsonl};
  const auto parse = [&] {
    Record record;
    const std::optional<BrokenRecord> broken = parse_record(line, rules, record);
    if (broken) {
      ARGOSY_CHECK(broken->byte <= line.size(), "byte {} of {}", broken->byte, line.size());
      return;
    }
    std::size_t end = 0;
    for (const ByteRange& range : record.loss) {
      ARGOSY_CHECK(end <= range.begin && range.begin <= range.end && range.end <= record.target.size(), "a loss range");
      end = range.end;
    }
    ARGOSY_CHECK(record.loss_on_all || !record.loss.empty(), "no loss");
  };
  parse();
  rules.pairs = true;
  parse();
  rules.fields = {.source = "/a/0", .target = "/messages/1/content"};
  parse();
  rules.pairs = false;
  parse();
  return 0;
}
