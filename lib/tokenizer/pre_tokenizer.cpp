#include "tokenizer/pre_tokenizer.hpp"

#include <utility>

#include "tokenizer/byte_alphabet.hpp"

namespace argosy::tokenizer {
namespace {

/// Calls change(view, out) for each word: what it adds to `out` are the words in its place, each of which is first if
/// it begins there and the word was.
template <class Change>
void replace_words(Parts& parts, Change&& change) {
  Parts out;
  out.text.reserve(parts.text.size() + parts.text.size() / 4);
  out.list.reserve(parts.list.size());
  for (const Part& part : parts.list) {
    if (part.id >= 0)
      out.list.push_back({out.text.size(), out.text.size(), part.id, part.first});
    else
      change(parts.view(part), part.first, out);
  }
  parts = std::move(out);
}

/// Cuts each word where `matches` says.
template <class Matches>
void cut_words(Parts& parts, Behavior behavior, bool invert, Matches&& matches) {
  std::vector<Part> out;
  out.reserve(2 * parts.list.size());
  std::vector<Span> cuts;
  for (const Part& part : parts.list) {
    if (part.id >= 0) {
      out.push_back(part);
      continue;
    }
    const std::string_view word = parts.view(part);
    cut(word.size(), matches(word), behavior, invert, cuts);
    for (const Span& span : cuts)
      if (span.begin < span.end)
        out.push_back({part.begin + span.begin, part.begin + span.end, -1, part.first && span.begin == 0});
  }
  parts.list = std::move(out);
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Parts& parts) const override {
    const std::size_t size = parts.text.size();
    for (const auto& step : steps_) {
      step->apply(parts);
      check_growth(size, parts.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

/// By a string or a regular expression.
class SplitByPattern final : public PreTokenizer {
 public:
  SplitByPattern(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Parts& parts) const override {
    Pattern::Search search = pattern_.search();
    cut_words(
        parts, behavior_, invert_, [&](std::string_view word) -> auto& { return search.matches(word); });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

/// By characters that have a property.
class SplitByCharacters final : public PreTokenizer {
 public:
  SplitByCharacters(bool (*matches)(char32_t), Behavior behavior) : matches_(matches), behavior_(behavior) {}
  void apply(Parts& parts) const override {
    std::vector<Span> found;
    cut_words(
        parts, behavior_, false, [&](std::string_view word) -> auto& {
          found.clear();
          for (std::size_t begin = 0, at = 0; at < word.size(); begin = at)
            if (matches_(next_character(word, at))) found.push_back({begin, at});
          return found;
        });
  }

 private:
  bool (*matches_)(char32_t);
  Behavior behavior_;
};

class ByBytes final : public PreTokenizer {
 public:
  ByBytes(bool prefix_blank, bool cuts) : prefix_blank_(prefix_blank) {
    if (cuts)
      cut_.emplace(Pattern::regex(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
                   Behavior::isolated, false);
  }
  void apply(Parts& parts) const override {
    if (prefix_blank_)
      replace_words(parts, [](std::string_view word, bool first, Parts& out) {
        out.add(word.starts_with(' ') ? std::string{word} : " " + std::string{word}, first);
      });
    if (cut_) cut_->apply(parts);
    std::string mapped;
    replace_words(parts, [&](std::string_view word, bool first, Parts& out) {
      mapped.clear();
      append_as_byte_characters(mapped, word);
      out.add(mapped, first);
    });
  }

 private:
  bool prefix_blank_;
  std::optional<SplitByPattern> cut_;
};

/// Blanks become a visible mark, which also begins the text, or each of its parts.
class MarkBlanks final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  explicit MarkBlanks(const JsonNode& node) {
    append_utf8(mark_, node.at("replacement").character());
    if (const auto scheme = node.find("prepend_scheme")) {
      const std::string name = scheme->text();
      if (name != "always" && name != "first" && name != "never") scheme->refuse("always, first or never", name);
      prepend_ = name == "always" ? Prepend::always : name == "first" ? Prepend::first : Prepend::never;
      if (prepend_ != Prepend::never && !node.flag("add_prefix_space", true))
        scheme->refuse("never, since add_prefix_space is false", name);
    } else if (!node.flag("add_prefix_space", true)) {
      node.refuse("the prepend_scheme never, since add_prefix_space is false", "none");
    }
    if (node.flag("split", true)) split_.emplace(Pattern(mark_), Behavior::merged_with_next, false);
  }
  void apply(Parts& parts) const override {
    std::string marked;
    replace_words(parts, [&](std::string_view word, bool first, Parts& out) {
      marked.clear();
      const bool adds = prepend_ == Prepend::always || (prepend_ == Prepend::first && first);
      if (adds && !word.starts_with(mark_) && !word.starts_with(' ')) marked += mark_;
      for (const char byte : word) {
        if (byte == ' ')
          marked += mark_;
        else
          marked += byte;
      }
      out.add(marked, first);
    });
    if (split_) split_->apply(parts);
  }

 private:
  std::string mark_;
  Prepend prepend_ = Prepend::always;
  std::optional<SplitByPattern> split_;
};

}  // namespace

std::unique_ptr<PreTokenizer> pre_tokenizer_of(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (const JsonNode& step : node.at("pretokenizers").elements()) steps.push_back(pre_tokenizer_of(step));
    return std::make_unique<Sequence>(std::move(steps));
  }
  if (type == "ByteLevel")
    return std::make_unique<ByBytes>(node.at("add_prefix_space").flag(), node.flag("use_regex", true));
  if (type == "Metaspace") return std::make_unique<MarkBlanks>(node);
  if (type == "Split")
    return std::make_unique<SplitByPattern>(Pattern(node.at("pattern")), behavior_of(node.at("behavior")),
                                            node.at("invert").flag());
  if (type == "Whitespace")
    return std::make_unique<SplitByPattern>(Pattern::regex(R"(\w+|[^\w\s]+)"), Behavior::removed, true);
  if (type == "WhitespaceSplit") return std::make_unique<SplitByCharacters>(is_space, Behavior::removed);
  if (type == "Digits")
    return std::make_unique<SplitByCharacters>(
        is_number, node.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return std::make_unique<SplitByCharacters>(is_punctuation, behavior ? behavior_of(*behavior) : Behavior::isolated);
  }
  node.refuse_type("pre-tokenizer",
                   "Sequence, ByteLevel, Metaspace, Split, Whitespace, WhitespaceSplit, Digits and Punctuation");
}

}  // namespace argosy::tokenizer
