#include "data/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace argosy::data {
namespace {

Lengths lengths_of(const Example& example) {
  return {.source = narrow<std::uint32_t>(example.source.size()),
          .target = narrow<std::uint32_t>(example.target.size())};
}

bool fits(const Lengths& lengths, const Lengths& longest) {
  return lengths.source <= longest.source && lengths.target <= longest.target;
}

Lengths longer_of(const Lengths& a, const Lengths& b) {
  return {.source = std::max(a.source, b.source), .target = std::max(a.target, b.target)};
}

/// What draws nothing changes the lengths of all that is drawn before it alike.
void add_change(Lengths& longest, const Lengths& before, const Lengths& after) {
  longest.source += after.source - before.source;
  longest.target += after.target - before.target;
}

/// Those of a corpus, with the one that tokenizes among them.
Transforms make_transforms(const CorpusConfig& corpus, const Tokenizer& tokenizer) {
  const Materials materials{.tokenizer = tokenizer, .languages = corpus.languages};
  Transforms transforms;
  for (const TransformConfig& config : transforms_of(corpus))
    transforms.push_back(std::visit([&](const auto& chosen) { return chosen.make(materials); }, config.value));
  const auto tokenizes = [](const auto& transform) { return transform->stage() == Stage::tokenize; };
  if (std::ranges::none_of(transforms, tokenizes)) {
    const auto on_ids = [](const auto& transform) { return transform->stage() == Stage::ids; };
    transforms.insert(std::ranges::find_if(transforms, on_ids), Subword{}.make(materials));
  }
  return transforms;
}

/// Puts the lines before an example in front of its texts.
void fold_lines(Example& example) {
  std::string source, target;
  for (const Example::Lines& line : example.before) {
    (source += line.source) += '\0';
    (target += line.target) += '\0';
  }
  example.source_text.insert(0, source);
  example.target_text.insert(0, target);
  if (!example.loss.empty()) example.loss.insert(example.loss.begin(), target.size(), false);
  example.before.clear();
}

/// Takes them out again.
void unfold_lines(Example& example) {
  std::size_t source = 0, target = 0;
  const auto next = [](const std::string& text, std::size_t& begin) {
    const std::size_t end = text.find('\0', begin);
    if (end == std::string::npos) return std::string{};
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    return line;
  };
  for (auto lines = std::ranges::count(example.target_text, '\0'); lines > 0; --lines) {
    std::string before = next(example.source_text, source);
    example.before.push_back({std::move(before), next(example.target_text, target)});
  }
  example.source_text.erase(0, source);
  example.target_text.erase(0, target);
  if (!example.loss.empty())
    example.loss.erase(example.loss.begin(), example.loss.begin() + static_cast<std::ptrdiff_t>(target));
}

}  // namespace

void DocumentLines::add(const std::string& source, const std::string& target) {
  if (most_ == 0) return;
  if (source.empty() || target.empty()) return lines_.clear();
  if (std::ssize(lines_) == most_) lines_.erase(lines_.begin());
  lines_.push_back({source, target});
}

Pipeline::Pipeline(const CorpusConfig& corpus, const Tokenizer& tokenizer, DataMode mode)
    : Pipeline(corpus, std::make_unique<const Tokenizer>(tokenizer.of(corpus.languages)), mode) {}

Pipeline::Pipeline(const CorpusConfig& corpus, std::unique_ptr<const Tokenizer> tokenizer, DataMode mode)
    : Pipeline(make_transforms(corpus, *tokenizer), has_pairs(corpus),
               narrow<std::int32_t>(tokenizer->vocabulary().unk.value_or(-1)), mode) {
  tokenizer_ = std::move(tokenizer);
  if (is_random() && !has_source_)
    throw_error(Fault::config, "data.corpora: " + corpus.name,
                "transforms that draw nothing in a corpus for a language model, whose rows are planned to the token",
                fmt::format("the transform {}", transforms_[first_random_]->type()),
                "remove it from this corpus's transforms");
}

Pipeline::Pipeline(Transforms transforms, bool has_source, std::int32_t unknown, DataMode mode)
    : transforms_(std::move(transforms)),
      has_source_(has_source),
      stores_places_(mode == DataMode::online),
      unknown_(unknown) {
  const auto place_of = [&](const auto& is_meant) {
    return static_cast<std::size_t>(std::ranges::find_if(transforms_, is_meant) - transforms_.begin());
  };
  tokenizer_at_ = place_of([](const auto& transform) { return transform->stage() == Stage::tokenize; });
  first_random_ = place_of([](const auto& transform) { return transform->is_random(); });
  const bool reads_lines = std::any_of(transforms_.begin() + static_cast<std::ptrdiff_t>(first_random_),
                                       transforms_.end(), [](const auto& each) { return each->lines_before() > 0; });
  is_planned_by_draws_ =
      std::any_of(transforms_.begin(), transforms_.begin() + static_cast<std::ptrdiff_t>(tokenizer_at_),
                  [](const auto& each) { return each->is_planned_by_draws(); });
  stored_at_ = reads_lines ? std::min(tokenizer_at_, first_random_) : first_random_;  // ids have no lines before them
  if (stores_places_) stored_at_ = 0;
}

std::int64_t Pipeline::lines_before() const {
  std::int64_t lines = 0;
  for (const auto& transform : transforms_) lines = std::max(lines, transform->lines_before());
  return lines;
}

std::string Pipeline::recipe() const {
  std::string recipe;
  for (const auto& transform : transforms_) {
    if (const std::string own = transform->recipe(); !own.empty()) recipe.append(" ").append(own);
  }
  if (stores_text()) recipe.append(stores_places_ ? ", read in place" : ", stored as text");
  return recipe;
}

bool Pipeline::apply(std::size_t i, Example& example, const std::optional<Draw>& draw) const {
  if (!draw) return transforms_[i]->apply(example, nullptr);
  RandomStream random(draw->seed, draw->epoch, draw->example, i);
  return transforms_[i]->apply(example, &random);
}

Pipeline::Plan Pipeline::plan(Example& example) const {
  Plan plan;
  const auto leaves_out = [&](Example& made, std::size_t i) {
    if (!apply(i, made, std::nullopt)) plan.left_out = transforms_[i]->type();
    // A prefix would hide that nothing follows it.
    const bool is_empty = made.target.empty() || (has_source_ && made.source.empty());
    if (i == tokenizer_at_ && is_empty) plan.left_out = "empty";
    return plan.left_out.has_value();
  };
  for (std::size_t i = 0; i < stored_at_; ++i) {
    if (leaves_out(example, i)) return plan;
  }
  std::optional<Example> plain;  // what follows is made again while training
  if (stored_at_ < transforms_.size()) plain = example;
  Example& made = plain ? *plain : example;
  Lengths drawn;
  plan.longest = lengths_of(made);
  for (std::size_t i = stored_at_; i < transforms_.size(); ++i) {
    if (i == first_random_ && is_planned_by_draws_) drawn = longest_drawn(made);
    const Lengths before = lengths_of(made);
    if (leaves_out(made, i)) return plan;
    if (i < tokenizer_at_) continue;
    if (i > tokenizer_at_) {
      if (!transforms_[i]->is_random()) add_change(plan.longest, before, lengths_of(made));
      plan.longest = transforms_[i]->longest(plan.longest, made);
      continue;
    }
    plan.longest = longer_of(lengths_of(made), drawn);
    for (std::size_t j = first_random_; j <= i; ++j) plan.longest = transforms_[j]->longest(plan.longest, made);
  }
  plan.plain = lengths_of(made);
  ARGOSY_CHECK(fits(plan.plain, plan.longest), "{} and {} ids, planned {} and {}", made.source.size(),
               made.target.size(), plan.longest.source, plan.longest.target);
  plan.unknown = std::ranges::count(made.source, unknown_) + std::ranges::count(made.target, unknown_);
  if (stores_text()) fold_lines(example);
  return plan;
}

Lengths Pipeline::longest_drawn(const Example& text) const {
  constexpr int draws = 8;
  constexpr double deviations = 4.5, most_above_longest = 1.25, few = 2;
  struct {
    double sum = 0, squares = 0, longest = 0;
    void add(double length) {
      sum += length;
      squares += length * length;
      longest = std::max(longest, length);
    }
    [[nodiscard]] std::uint32_t planned() const {
      const double mean = sum / draws, deviation = std::sqrt(std::max(0., squares / draws - mean * mean));
      const double far = std::min(mean + deviations * deviation, most_above_longest * longest + few);
      return narrow<std::uint32_t>(static_cast<std::int64_t>(std::ceil(std::max(longest, far))));
    }
  } source, target;
  const std::uint64_t seed = hash64(text.target_text, hash64(text.source_text));
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    Example made = text;
    for (std::size_t i = first_random_; i < tokenizer_at_; ++i)
      static_cast<void>(apply(i, made, Draw{.seed = seed, .epoch = draw, .example = 0}));
    static_cast<void>(apply(tokenizer_at_, made, std::nullopt));
    source.add(static_cast<double>(made.source.size()));
    target.add(static_cast<double>(made.target.size()));
  }
  return {source.planned(), target.planned()};
}

bool Pipeline::finish(Example& example, const std::optional<Draw>& draw, Lengths longest) const {
  if (stored_at_ == transforms_.size()) return false;
  if (stores_text()) unfold_lines(example);
  const auto made = [&](Example from, const std::optional<Draw>& by) {
    for (std::size_t i = stored_at_; i < transforms_.size(); ++i)
      if (!transforms_[i]->is_filter()) static_cast<void>(apply(i, from, by));  // those have decided before
    return from;
  };
  if (draw && is_random()) {
    Example drawn = made(example, draw);
    if (fits(lengths_of(drawn), longest)) {
      example = std::move(drawn);
      return false;
    }
  }
  example = made(std::move(example), std::nullopt);
  return draw && is_random();
}

}  // namespace argosy::data
