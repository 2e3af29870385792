#include "data/transforms/subword.hpp"

#include <utility>

#include "data/tokenizer.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Subword&) { return {}; }
void validate(const Subword&, config::Problems&) {}

namespace {

class BestSegmentation final : public Transform {
 public:
  explicit BestSegmentation(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  [[nodiscard]] std::string_view type() const override { return Subword::type; }
  [[nodiscard]] std::string recipe() const override { return ""; }  // what every corpus has
  [[nodiscard]] Stage stage() const override { return Subword::stage; }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    if (!example.source_text.empty()) example.source = tokenizer_.encode(example.source_text, Side::source);
    if (example.loss.empty())
      example.target = tokenizer_.encode(example.target_text);
    else
      tokenize_runs(example);
    return true;
  }

 private:
  /// Each run of text that bears loss, or bears none, is tokenized alone, so that no piece does both.
  void tokenize_runs(Example& example) const {
    const std::string_view text = example.target_text;
    const std::vector<bool> bears = std::exchange(example.loss, {});
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      while (end < text.size() && bears[end] == bears[begin]) ++end;
      const std::vector<std::int32_t> ids = tokenizer_.encode(text.substr(begin, end - begin));
      example.target.insert(example.target.end(), ids.begin(), ids.end());
      example.loss.insert(example.loss.end(), ids.size(), bears[begin]);
    }
  }

  const Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<const Transform> Subword::make(const Materials& materials) const {
  return std::make_unique<BestSegmentation>(materials.tokenizer);
}

}  // namespace argosy::data
