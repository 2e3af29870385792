#include "data/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace argosy::data {
namespace {

Lengths lengths_of(const Example& example) {
  return {.source = narrow<std::uint32_t>(example.source.size()),
          .target = narrow<std::uint32_t>(example.target.size())};
}

bool fits(const Lengths& lengths, const Lengths& longest) {
  return lengths.source <= longest.source && lengths.target <= longest.target;
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

}  // namespace

void DocumentLines::add(const std::string& source, const std::string& target) {
  if (most_ == 0) return;
  if (source.empty() || target.empty()) return lines_.clear();
  if (std::ssize(lines_) == most_) lines_.erase(lines_.begin());
  lines_.push_back({source, target});
}

Pipeline::Pipeline(const CorpusConfig& corpus, const Tokenizer& tokenizer)
    : Pipeline(make_transforms(corpus, tokenizer), corpus.target.has_value(),
               narrow<std::int32_t>(tokenizer.vocabulary().unk.value_or(-1))) {
  if (is_random() && !has_source_)
    throw_error(Fault::config, "data.corpora: " + corpus.name,
                "transforms that draw nothing in a corpus for a language model, whose rows are planned to the token",
                fmt::format("the transform {}", transforms_[first_random_]->type()),
                "remove it from this corpus's transforms");
}

Pipeline::Pipeline(Transforms transforms, bool has_source, std::int32_t unknown)
    : transforms_(std::move(transforms)), has_source_(has_source), unknown_(unknown) {
  const auto place_of = [&](const auto& is_meant) {
    return static_cast<std::size_t>(std::ranges::find_if(transforms_, is_meant) - transforms_.begin());
  };
  tokenizer_at_ = place_of([](const auto& transform) { return transform->stage() == Stage::tokenize; });
  first_random_ = place_of([](const auto& transform) { return transform->is_random(); });
}

std::int64_t Pipeline::lines_before() const {
  std::int64_t lines = 0;
  for (const auto& transform : transforms_) lines = std::max(lines, transform->lines_before());
  return lines;
}

std::string Pipeline::recipe() const {
  std::string recipe;
  for (const auto& transform : transforms_) recipe.append(" ").append(transform->recipe());
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
  for (std::size_t i = 0; i < first_random_; ++i) {
    if (leaves_out(example, i)) return plan;
  }
  std::optional<Example> plain;  // what follows is made again while training
  if (is_random()) plain = example;
  Example& made = plain ? *plain : example;
  plan.longest = lengths_of(made);
  for (std::size_t i = first_random_; i < transforms_.size(); ++i) {
    const Lengths before = lengths_of(made);
    if (leaves_out(made, i)) return plan;
    if (i < tokenizer_at_) continue;
    if (i > tokenizer_at_) {
      if (!transforms_[i]->is_random()) add_change(plan.longest, before, lengths_of(made));
      plan.longest = transforms_[i]->longest(plan.longest);
      continue;
    }
    plan.longest = lengths_of(made);
    for (std::size_t j = first_random_; j <= i; ++j) plan.longest = transforms_[j]->longest(plan.longest);
  }
  ARGOSY_CHECK(fits(lengths_of(made), plan.longest), "{} and {} ids, planned {} and {}", made.source.size(),
               made.target.size(), plan.longest.source, plan.longest.target);
  plan.unknown = std::ranges::count(made.source, unknown_) + std::ranges::count(made.target, unknown_);
  return plan;
}

bool Pipeline::finish(Example& example, const std::optional<Draw>& draw, Lengths longest) const {
  if (!is_random()) return false;
  const auto made = [&](Example from, const std::optional<Draw>& by) {
    for (std::size_t i = first_random_; i < transforms_.size(); ++i)
      static_cast<void>(apply(i, from, by));  // filters have decided before
    return from;
  };
  if (draw) {
    Example drawn = made(example, draw);
    if (fits(lengths_of(drawn), longest)) {
      example = std::move(drawn);
      return false;
    }
  }
  example = made(std::move(example), std::nullopt);
  return draw.has_value();
}

}  // namespace argosy::data
