#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace argosy::tokenizer {
namespace {

bool ends_with_word(std::string_view text) {
  std::size_t begin = 0;
  return !text.empty() && is_word(last_character(text, begin));
}

bool begins_with_word(std::string_view text) {
  std::size_t end = 0;
  return !text.empty() && is_word(next_character(text, end));
}

std::size_t blanks_at_end(std::string_view text) {
  std::size_t begin = text.size();
  for (std::size_t at = 0; begin > 0 && is_space(last_character(text.substr(0, begin), at));) begin = at;
  return text.size() - begin;
}

std::size_t blanks_at_begin(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size() && is_space(next_character(text, at));) end = at;
  return end;
}

}  // namespace

AddedTokens::AddedTokens(const std::optional<JsonNode>& node, const Model& model, const Normalizer* normalizer)
    : size_(model.size()) {
  if (!node) return;
  std::vector<std::pair<std::string, std::int32_t>> as_written, normalized;
  for (const JsonNode& each : node->elements()) {
    Token token{.content = each.at("content").text(),
                .single_word = each.flag("single_word", false),
                .lstrip = each.flag("lstrip", false),
                .rstrip = each.flag("rstrip", false),
                .normalized = each.flag("normalized", true),
                .special = each.flag("special", false)};
    const auto id = narrow<std::int32_t>(each.at("id").whole(std::numeric_limits<std::int32_t>::max()));
    if (token.content.empty()) continue;
    auto known = id_of(token.content);
    if (!known) known = model.id_of(token.content);
    if (id != known.value_or(size_))
      each.refuse(fmt::format("the id {} for {}, which is {}", known.value_or(size_), token.content,
                              known ? "the one of this piece" : "the next free one"),
                  std::to_string(id));
    size_ = std::max(size_, id + 1);
    ids_[token.content] = id;
    if (token.special) special_.insert(token.content);
    Stretch stretch{token.content};
    if (token.normalized && normalizer != nullptr) normalizer->apply(stretch);
    decoded_[id] = stretch.text;
    (token.normalized ? normalized : as_written).emplace_back(stretch.text, id);
    tokens_[id] = std::move(token);
  }
  as_written_ = Trie(std::move(as_written));
  normalized_ = Trie(std::move(normalized));
}

const AddedTokens::Token* AddedTokens::find(std::int32_t id) const {
  const auto token = tokens_.find(id);
  return token == tokens_.end() ? nullptr : &token->second;
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto id = ids_.find(std::string{content});
  return id == ids_.end() ? std::nullopt : std::optional{id->second};
}

/// The leftmost token, of those that begin there the longest, and so on. Blanks around a token may belong to it.
std::vector<AddedTokens::Found> AddedTokens::found(std::string_view text, const Trie& trie) const {
  std::vector<Found> all;
  std::size_t end = 0;  // of the last token
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = 0;
    std::int32_t id = -1;
    trie.prefixes(text.substr(at), [&](std::size_t length, std::int32_t number) {
      size = length;
      id = number;
    });
    if (id < 0) {
      ++at;
      continue;
    }
    const Token& token = tokens_.at(id);
    std::size_t begin = at, stop = at + size;
    at = stop;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(stop)))) continue;
    if (token.lstrip) begin = std::max(begin - blanks_at_end(text.substr(0, begin)), end);
    if (token.rstrip) stop += blanks_at_begin(text.substr(stop));
    if (end < begin) all.push_back({{end, begin}, -1});
    all.push_back({{begin, stop}, id});
    end = stop;
  }
  if (end < text.size()) all.push_back({{end, text.size()}, -1});
  return all;
}

Parts AddedTokens::split(std::string_view text, const Normalizer* normalizer) const {
  Parts parts;
  for (const Found& outer : found(text, as_written_)) {
    if (outer.id >= 0) {
      parts.list.push_back({.id = outer.id});
      continue;
    }
    Stretch stretch{std::string{text.substr(outer.span.begin, outer.span.end - outer.span.begin)},
                    outer.span.begin == 0};
    if (normalizer != nullptr) normalizer->apply(stretch);
    for (const Found& inner : found(stretch.text, normalized_)) {
      if (inner.id >= 0)
        parts.list.push_back({.id = inner.id});
      else
        parts.add(std::string_view{stretch.text}.substr(inner.span.begin, inner.span.end - inner.span.begin),
                  stretch.first && inner.span.begin == 0);
    }
  }
  return parts;
}

}  // namespace argosy::tokenizer
