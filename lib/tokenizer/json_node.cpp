#include "tokenizer/json_node.hpp"

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

std::string kind_of(const boost::json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.get_array().size());
  std::string text = boost::json::serialize(value);
  if (text.size() > 60) text = valid_utf8(text.substr(0, 60)) + "\u2026";
  return text;
}

}  // namespace

std::string JsonNode::where() const { return path_.empty() ? std::string{file_} : fmt::format("{}: {}", file_, path_); }

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("an object", kind_of(*value_));
  const boost::json::value* const found = value_->get_object().if_contains(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return JsonNode{*found, file_, path_.empty() ? std::string{key} : fmt::format("{}.{}", path_, key)};
}

JsonNode JsonNode::at(std::string_view key) const {
  auto found = find(key);
  if (!found) refuse(fmt::format("the key {}", key), "none");
  return *std::move(found);
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) refuse("an array", kind_of(*value_));
  std::vector<JsonNode> all;
  for (const boost::json::value& element : value_->get_array())
    all.emplace_back(element, file_, fmt::format("{}.{}", path_, all.size()));
  return all;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) refuse("a string", kind_of(*value_));
  return std::string{value_->get_string()};
}

double JsonNode::number() const {
  const double number = value_->is_number() ? value_->to_number<double>() : std::numeric_limits<double>::infinity();
  if (!std::isfinite(number)) refuse("a finite number", kind_of(*value_));
  return number;
}

std::int64_t JsonNode::whole(std::int64_t end) const {
  boost::system::error_code error;
  const auto number = value_->is_int64() || value_->is_uint64() ? value_->to_number<std::int64_t>(error) : -1;
  if (error || number < 0 || number >= end)
    refuse(fmt::format("a whole number from 0 to {}", end - 1), kind_of(*value_));
  return number;
}

bool JsonNode::flag() const {
  if (!value_->is_bool()) refuse("true or false", kind_of(*value_));
  return value_->get_bool();
}

bool JsonNode::flag(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->flag() : otherwise;
}

char32_t JsonNode::character() const {
  const std::string all = text();
  std::size_t at = 0;
  const char32_t first = all.empty() ? U'\0' : next_character(all, at);
  if (all.empty() || at != all.size()) refuse("one character", kind_of(*value_));
  return first;
}

void JsonNode::refuse_type(std::string_view what, std::string_view known) const {
  const std::string remedy = "use another tokenizer, or its SentencePiece model";
  throw_claim(Fault::data, fmt::format("{}: Argosy does not read the {} {}; it reads {}", where(), what, type(), known),
              where(), std::string{known}, type(), remedy);
}

void JsonNode::refuse(std::string wanted, std::string got) const {
  throw_error(Fault::data, where(), std::move(wanted), std::move(got), "get the file again");
}

}  // namespace argosy::tokenizer
