#include "tokenizer/json_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/scores.hpp"

namespace argosy::tokenizer {
namespace {

using boost::json::array, boost::json::object, boost::json::value;

value* found_in(value& of, std::string_view key) {
  value* const at = of.is_object() ? of.get_object().if_contains(key) : nullptr;
  return at == nullptr || at->is_null() ? nullptr : at;
}

/// Calls visit(id) for the ids around a text, and the one for padding.
void each_id_around(value& whole, const std::function<void(value&)>& visit) {
  const std::function<void(value&)> walk = [&](value& processor) {
    if (value* const steps = found_in(processor, "processors"))
      for (value& step : steps->as_array()) walk(step);
    if (value* const tokens = found_in(processor, "special_tokens"))
      for (auto& [name, token] : tokens->as_object())
        for (value& id : token.at("ids").as_array()) visit(id);
    for (const char* const key : {"sep", "cls"})
      if (value* const pair = found_in(processor, key)) visit(pair->as_array().at(1));
  };
  if (value* const processor = found_in(whole, "post_processor")) walk(*processor);
  if (value* const padding = found_in(whole, "padding"))
    if (value* const id = found_in(*padding, "pad_id")) visit(*id);
}

bool has_type(const value& stage, std::string_view type) {
  if (stage.is_array())
    return std::ranges::any_of(stage.get_array(), [&](const value& s) { return has_type(s, type); });
  if (!stage.is_object()) return false;
  return std::ranges::any_of(stage.get_object(), [&](const auto& entry) {
    return entry.key() == "type" ? entry.value() == value(type) : has_type(entry.value(), type);
  });
}

std::vector<std::pair<std::string, std::string>> merges_of(const value& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const value& merge : model.at("merges").as_array()) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0).as_string(), merge.at(1).as_string());
      continue;
    }
    const std::string_view both = merge.as_string();
    const std::size_t blank = both.find(' ');
    if (!both.starts_with("#version")) merges.emplace_back(both.substr(0, blank), both.substr(blank + 1));
  }
  return merges;
}

/// As pairs if the file has pairs, or if a blank inside a piece needs them.
array merges_as(const std::vector<std::pair<std::string, std::string>>& merges, bool pairs) {
  pairs = pairs || std::ranges::any_of(merges, [](const auto& merge) {
            return merge.first.find(' ') != std::string::npos || merge.second.find(' ') != std::string::npos;
          });
  array list;
  for (const auto& [left, right] : merges)
    list.push_back(pairs ? value(array{left, right}) : value(fmt::format("{} {}", left, right)));
  return list;
}

}  // namespace

JsonPieces::JsonPieces(const Pipeline& pipeline, std::string_view json) {
  value whole = boost::json::parse(json);
  const value& model = whole.at("model");
  const value& vocabulary = model.at("vocab");
  in_model = vocabulary.is_object() ? vocabulary.get_object().size() : vocabulary.as_array().size();
  if (pipeline.is_bpe())
    merges = merges_of(model);
  else
    scores = spelled_scores(json);
  for (const char* const stage : {"normalizer", "pre_tokenizer"})
    if (const value* const found = found_in(whole, stage))
      is_byte_level = is_byte_level || has_type(*found, "ByteLevel");
  const value* const fallback = model.get_object().if_contains("byte_fallback");
  std::unordered_set<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    const auto unsigned_byte = narrow<unsigned char>(byte);
    const char character = std::bit_cast<char>(unsigned_byte);
    std::string as_character;
    append_as_byte_characters(as_character, {&character, 1});
    if (is_byte_level) bytes.insert(as_character);
    if (fallback != nullptr && *fallback == true) bytes.insert(byte_piece(unsigned_byte));
  }
  for (std::int32_t id = 0; id < pipeline.size(); ++id) {
    texts.push_back(pipeline.piece(id));
    types.push_back(bytes.contains(texts.back()) ? PieceType::byte : PieceType::normal);
  }
  if (value* const added = found_in(whole, "added_tokens"))
    for (const value& token : added->as_array())
      if (const auto id = pipeline.id_of(std::string_view{token.at("content").as_string()}))
        types[static_cast<std::size_t>(*id)] = pipeline.is_special(*id) ? PieceType::control : PieceType::user;
  each_id_around(whole, [&](const value& id) {
    const auto at = static_cast<std::size_t>(id.to_number<std::int64_t>());
    if (at < types.size() && types[at] == PieceType::normal) types[at] = PieceType::control;
  });
  if (const auto unknown = pipeline.unknown()) types[static_cast<std::size_t>(*unknown)] = PieceType::unknown;
}

std::string with_pieces(std::string_view json, const JsonPieces& pieces, std::span<const std::int64_t> old_ids) {
  value whole = boost::json::parse(json);
  value& model = whole.at("model");
  std::unordered_map<std::string_view, std::int64_t> ids;
  std::unordered_map<std::int64_t, std::int64_t> new_ids;
  for (std::size_t id = 0; id < pieces.texts.size(); ++id) {
    ids.emplace(pieces.texts[id], static_cast<std::int64_t>(id));
    if (old_ids[id] >= 0) new_ids.emplace(old_ids[id], static_cast<std::int64_t>(id));
  }
  if (value* const added = found_in(whole, "added_tokens"))
    for (value& token : added->as_array())
      if (const auto found = ids.find(token.at("content").as_string()); found != ids.end())
        token.at("id") = found->second;
  each_id_around(whole, [&](value& id) {
    const auto found = new_ids.find(id.to_number<std::int64_t>());
    if (found != new_ids.end()) id = found->second;
  });
  // The numbers of a unigram model go into the text as they were spelled.
  constexpr std::string_view numbers = "argosy: model.vocab";
  if (model.at("vocab").is_object()) {
    object& vocabulary = model.at("vocab").emplace_object();
    for (std::size_t id = 0; id < pieces.in_model; ++id) vocabulary[pieces.texts[id]] = static_cast<std::int64_t>(id);
    const array& was = model.at("merges").as_array();
    model.at("merges") = merges_as(pieces.merges, !was.empty() && was.front().is_array());
    return boost::json::serialize(whole);
  }
  const auto unknown = std::ranges::find(pieces.types, PieceType::unknown) - pieces.types.begin();
  model.at("unk_id") = static_cast<std::int64_t>(unknown);
  model.at("vocab") = numbers;
  std::string text = boost::json::serialize(whole), vocabulary;
  for (std::size_t id = 0; id < pieces.in_model; ++id) {
    if (id > 0) vocabulary += ',';
    vocabulary.append("[").append(boost::json::serialize(value(pieces.texts[id])));
    vocabulary.append(",").append(pieces.scores[id]).append("]");
  }
  const std::string quoted = "\"vocab\":\"" + std::string{numbers} + "\"";
  const std::size_t at = text.find(quoted);
  ARGOSY_CHECK(at != text.npos, "no model.vocab in tokenizer.json");
  return text.replace(at, quoted.size(), "\"vocab\":[" + vocabulary + "]");
}

}  // namespace argosy::tokenizer
