#pragma once

#include <string>
#include <utility>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"
#include "support/small_text.hpp"

/// What the tests of transforms share.
namespace argosy::data {

inline Materials materials(std::span<const std::string> languages = {}) {
  return {.tokenizer = test::small_tokenizer(spec::TokenLayout::marian), .languages = languages};
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
