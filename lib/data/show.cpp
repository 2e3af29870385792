#include "data/show.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "data/pipeline.hpp"
#include "data/records.hpp"

namespace argosy::data {
namespace {

// Documents may be as long as their file.
constexpr std::size_t shown_ids = 200, shown_bytes = 2000;

std::string beginning_of(std::string_view text) {
  if (text.size() <= shown_bytes) return std::string{text};
  std::size_t end = shown_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // within a character
  return fmt::format("{} … ({} more bytes)", text.substr(0, end), text.size() - end);
}

std::vector<Example> first_examples(const Files& files, const CountedCorpus& corpus, std::int64_t count,
                                    std::int64_t lines_before) {
  std::vector<Example> examples;
  DocumentLines document{corpus.rules.pairs ? lines_before : 0};
  for (Record& record : read_records(files, {&corpus, 0, std::min(count, corpus.lines())}).records) {
    if (std::ssize(examples) == count) break;
    std::vector<Example::Lines> before = document.before();
    document.add(record.source, record.target);
    examples.push_back(example_of(std::move(record)));
    examples.back().before = std::move(before);
  }
  return examples;
}

class Show {
 public:
  explicit Show(const Pipeline& pipeline) : pipeline_(pipeline) {}

  void add(Example example, const Draw& draw) {
    Example stored = example;
    const Pipeline::Plan plan = pipeline_.plan(stored);
    const bool plainly = plan.left_out.has_value();  // filters see examples without noise
    bool is_ids = false;
    add_sides(example, is_ids);
    for (std::size_t i = 0; i < pipeline_.transforms().size(); ++i) {
      const Transform& transform = *pipeline_.transforms()[i];
      const Example before = example;
      const bool kept = pipeline_.apply(i, example, plainly ? std::nullopt : std::optional{draw});
      if (plainly && !kept) {
        const std::string fault = transform.fault_of(before);
        text_ += fmt::format("  {}: left out{}{}\n", transform.type(), fault.empty() ? "" : ": ", fault);
        return;
      }
      is_ids = transform.stage() != Stage::text;
      const bool changed = transform.stage() == Stage::tokenize || !same(before, example);
      text_ += fmt::format("  {}{}\n", transform.type(), changed ? "" : ": unchanged");
      if (changed) add_sides(example, is_ids);
      if (plainly && transform.stage() == Stage::tokenize && plan.left_out == "empty") {
        text_ += "  left out: empty\n";
        return;
      }
    }
    const bool fits = example.source.size() <= plan.longest.source && example.target.size() <= plan.longest.target;
    if (!fits)
      text_ += fmt::format("  more pieces than planned ({} and {}): training takes this example without noise\n",
                           plan.longest.source, plan.longest.target);
  }
  void add_title(std::string_view title) { text_ += fmt::format("{}\n", title); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  static bool same(const Example& a, const Example& b) {
    return a.source_text == b.source_text && a.target_text == b.target_text && a.source == b.source &&
           a.target == b.target && a.loss == b.loss;
  }

  void add_sides(const Example& example, bool is_ids) {
    const bool has_source = !example.source_text.empty() || !example.source.empty();
    if (!is_ids) {
      if (has_source) text_ += fmt::format("    source  {}\n", beginning_of(example.source_text));
      text_ += fmt::format("    target  {}\n", beginning_of(example.target_text));
      return;
    }
    if (has_source) add_ids(Side::source, example.source);
    add_ids(Side::target, example.target);
    if (!example.loss.empty())
      text_ += fmt::format("            loss on {} of {} pieces\n", std::ranges::count(example.loss, true),
                           example.loss.size());
  }
  void add_ids(Side side, const std::vector<std::int32_t>& ids) {
    text_ += fmt::format("    {}  {}\n", side == Side::source ? "source" : "target",
                         text_of_ids(pipeline_.tokenizer().side(side), ids));
  }

  const Pipeline& pipeline_;
  std::string text_;
};

}  // namespace

std::string text_of_ids(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const std::span<const std::int32_t> shown = ids.first(std::min(ids.size(), shown_ids));
  std::vector<std::string> pieces;
  pieces.reserve(shown.size());
  for (const std::int32_t id : shown) pieces.push_back(tokenizer.piece(id));
  const std::string rest = ids.size() > shown.size() ? fmt::format(" … ({} more)", ids.size() - shown.size()) : "";
  return fmt::format("pieces {}{} | ids {} | text {}", fmt::join(pieces, " "), rest, fmt::join(shown, " "),
                     tokenizer.decode(shown));
}

std::string show_examples(const Files& files, const DataConfig& config, std::span<const CountedCorpus> corpora,
                          const Tokenizer& tokenizer, std::int64_t count, std::uint64_t seed) {
  std::string text;
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const Pipeline pipeline{config.corpora[c], tokenizer};
    Show show{pipeline};
    const std::vector<Example> examples = first_examples(files, corpora[c], count, pipeline.lines_before());
    for (std::size_t i = 0; i < examples.size(); ++i) {
      show.add_title(fmt::format("{}, example {}", config.corpora[c].name, i + 1));
      show.add(examples[i], {.seed = seed, .epoch = 0, .example = i});
    }
    text += show.text();
  }
  return text;
}

}  // namespace argosy::data
