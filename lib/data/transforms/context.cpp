#include "data/transforms/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "data/transforms/draws.hpp"
#include "data/transforms/id_noise.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Context&) {
  static constexpr config::KeyText texts[] = {
      {"source_previous", "context: source lines before a line that come before it; 2 or 3 are usual"},
      {"target_previous", "context: target lines before a line that come before it, without loss"},
      {"max_pieces", "context: most pieces of a side with the lines before it, EOS not counted"},
      {"separator", "context: the piece after each line before"},
  };
  return texts;
}

void validate(const Context& config, config::Problems& problems) {
  require_in(problems, "/source_previous", config.source_previous, 0, most_lines_before);
  require_in(problems, "/target_previous", config.target_previous, 0, most_lines_before);
  problems.require(config.source_previous > 0 || config.target_previous > 0, "/source_previous",
                   "lines before the source or the target", "none");
  require_in(problems, "/max_pieces", config.max_pieces, 1, std::numeric_limits<std::int32_t>::max());
  require_piece(problems, "/separator", config.separator);
}

namespace {

class ContextTransform final : public Transform {
 public:
  ContextTransform(const Context& config, const Tokenizer& tokenizer) : config_(config), tokenizer_(tokenizer) {
    separators_ = of_sides(tokenizer, Sides::both,
                           [&](const Tokenizer& own) { return id_of_piece(own, config.separator, Context::type); });
  }

  [[nodiscard]] std::string_view type() const override { return Context::type; }
  [[nodiscard]] std::string recipe() const override {
    const auto [source, target] = separators_;
    return fmt::format("context {} {} {} {}", config_.source_previous, config_.target_previous, config_.max_pieces,
                       source == target ? fmt::format("{}", source) : fmt::format("{} {}", source, target));
  }
  [[nodiscard]] Stage stage() const override { return Context::stage; }
  [[nodiscard]] std::int64_t lines_before() const override {
    return std::max(config_.source_previous, config_.target_previous);
  }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    put_before(example.source, lines_of(example, Side::source, config_.source_previous, example.source.size()));
    const Ids lines = lines_of(example, Side::target, config_.target_previous, example.target.size());
    if (lines.empty()) return true;
    if (example.loss.empty()) example.loss.assign(example.target.size(), true);
    example.loss.insert(example.loss.begin(), lines.size(), false);
    put_before(example.target, lines);
    return true;
  }

 private:
  using Ids = std::vector<std::int32_t>;

  static void put_before(Ids& ids, const Ids& lines) { ids.insert(ids.begin(), lines.begin(), lines.end()); }

  /// The nearest lines that fit in front of `size` pieces.
  [[nodiscard]] Ids lines_of(const Example& example, Side side, std::int64_t most, std::size_t size) const {
    Ids all;
    for (auto line = example.before.rbegin(); line != example.before.rend() && most > 0; ++line, --most) {
      Ids ids = tokenizer_.encode(side == Side::source ? line->source : line->target, side);
      ids.push_back(separators_.at(static_cast<std::size_t>(side)));
      if (all.size() + ids.size() + size > static_cast<std::size_t>(config_.max_pieces)) break;
      put_before(all, ids);
    }
    return all;
  }

  Context config_;
  const Tokenizer& tokenizer_;
  std::array<std::int32_t, 2> separators_{};  // by Side
};

}  // namespace

std::unique_ptr<const Transform> Context::make(const Materials& materials) const {
  return std::make_unique<ContextTransform>(*this, materials.tokenizer);
}

}  // namespace argosy::data
