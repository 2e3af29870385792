#include "data/transforms/filter.hpp"

#include <utility>

namespace argosy::data {
namespace {

class TextFilter final : public Transform {
 public:
  TextFilter(std::string_view type, std::string recipe, FindFault find)
      : type_(type), recipe_(std::move(recipe)), find_(std::move(find)) {}

  [[nodiscard]] std::string_view type() const override { return type_; }
  [[nodiscard]] std::string recipe() const override { return recipe_; }
  [[nodiscard]] Stage stage() const override { return Stage::text; }
  [[nodiscard]] bool is_filter() const override { return true; }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override { return !find_(example); }
  [[nodiscard]] std::string fault_of(const Example& example) const override { return find_(example).value_or(""); }

 private:
  std::string_view type_;
  std::string recipe_;
  FindFault find_;
};

}  // namespace

std::unique_ptr<const Transform> make_filter(std::string_view type, std::string recipe, FindFault find) {
  return std::make_unique<TextFilter>(type, std::string{type} + " " + recipe, std::move(find));
}

FindFault on_each_side(std::function<std::optional<std::string>(std::string_view text)> find) {
  return [find = std::move(find)](const Example& example) -> std::optional<std::string> {
    for (const auto& [side, text] : {std::pair{"source: ", &example.source_text}, {"target: ", &example.target_text}}) {
      if (text->empty()) continue;
      if (const auto fault = find(*text)) return side + *fault;
    }
    return std::nullopt;
  };
}

FindFault on_pairs(std::function<std::optional<std::string>(std::string_view source, std::string_view target)> find) {
  return [find = std::move(find)](const Example& example) -> std::optional<std::string> {
    if (example.source_text.empty() || example.target_text.empty()) return std::nullopt;
    return find(example.source_text, example.target_text);
  };
}

}  // namespace argosy::data
