#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "config/config.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "data/tokenizer_training.hpp"
#include "data/transforms/transform.hpp"
#include "support/small_text.hpp"

/// What the tests of transforms share.
namespace argosy::data {

/// A test by chance fails wrongly this often, with numbers that are drawn anew.
inline constexpr double improbable = 1e-3;

inline Materials materials(std::span<const std::string> languages = {}) {
  return {.tokenizer = test::small_tokenizer(spec::TokenLayout::marian), .languages = languages};
}

/// A small tokenizer with pieces that transforms need.
inline const Tokenizer& tokenizer_with_symbols() {
  static const std::vector<std::string> symbols{"<mask>", "<news>", "<sep>", "<to_en>", "<to_es>"};
  static const Tokenizer tokenizer = Tokenizer::load(
      train_tokenizer({.vocab_size = 300}, test::verses(600).of_both(), spec::TokenLayout::marian, symbols), {});
  return tokenizer;
}

inline Materials with_symbols() {
  static const std::vector<std::string> languages{"en", "es"};
  return {.tokenizer = tokenizer_with_symbols(), .languages = languages};
}

inline std::int32_t id_of(const char* piece) {
  return narrow<std::int32_t>(tokenizer_with_symbols().id_of(piece).value());
}

/// What a transform that draws makes of an example, for each of many examples.
template <class Config>
std::vector<Example> drawn(const Config& config, const Example& from, std::uint64_t times) {
  const auto transform = config.make(with_symbols());
  EXPECT_TRUE(transform->is_random());
  EXPECT_EQ(transform->type(), Config::type);
  EXPECT_EQ(transform->stage(), Config::stage);
  std::vector<Example> all;
  for (std::uint64_t i = 0; i < times; ++i) {
    RandomStream random(5, i);
    all.push_back(from);
    EXPECT_TRUE(transform->apply(all.back(), &random));
    if (Config::stage != Stage::ids) continue;
    const Lengths most = transform->longest(
        {narrow<std::uint32_t>(from.source.size()), narrow<std::uint32_t>(from.target.size())}, from);
    EXPECT_LE(all.back().source.size(), most.source);
    EXPECT_LE(all.back().target.size(), most.target);
  }
  return all;
}

template <class Config>
std::string recipe_of(const Config& config) {
  return config.make(with_symbols())->recipe();
}

inline Example pair_of(std::string source, std::string target) {
  Example example;
  example.source_text = std::move(source);
  example.target_text = std::move(target);
  return example;
}

inline Example ids_of(std::vector<std::int32_t> source, std::vector<std::int32_t> target) {
  Example example;
  example.source = std::move(source);
  example.target = std::move(target);
  return example;
}

/// Places and wishes of what is wrong with a configuration; empty: nothing.
template <class Config>
std::string problems_of(const Config& config) {
  config::Problems problems;
  validate(config, problems);
  std::string all;
  for (const auto& problem : problems.all()) all += problem.pointer + " " + problem.wanted + "\n";
  return all;
}

}  // namespace argosy::data
