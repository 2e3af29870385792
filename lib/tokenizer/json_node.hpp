#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A value of tokenizer.json that knows its place, for readable refusals. Borrows the value.
namespace argosy::tokenizer {

class JsonNode {
 public:
  /// file: name for messages; path: keys from the root, "normalizer.normalizers.1".
  JsonNode(const boost::json::value& value, std::string_view file, std::string path = {})
      : value_(&value), file_(file), path_(std::move(path)) {}

  /// Place for messages: "tokenizer.json: model.merges.7".
  [[nodiscard]] std::string where() const;
  [[nodiscard]] const boost::json::value& value() const { return *value_; }

  /// The value of a key, if it is there and not null. Throws Error{data} if this is no object.
  [[nodiscard]] std::optional<JsonNode> find(std::string_view key) const;
  /// The same, or Error{data}.
  [[nodiscard]] JsonNode at(std::string_view key) const;
  /// Elements of an array. Throws Error{data} if this is none.
  [[nodiscard]] std::vector<JsonNode> elements() const;

  // Throw Error{data} for another type of value.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] double number() const;
  /// A whole number in [0, end).
  [[nodiscard]] std::int64_t whole(std::int64_t end) const;
  [[nodiscard]] bool flag() const;
  /// A key that may be absent.
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  /// A string of one character.
  [[nodiscard]] char32_t character() const;

  /// "type" of an object.
  [[nodiscard]] std::string type() const { return at("type").text(); }
  /// Throws Error{data}: `what` ("normalizer") has a type that is not read.
  [[noreturn]] void refuse_type(std::string_view what, std::string_view known) const;
  /// Throws Error{data} for this value.
  [[noreturn]] void refuse(std::string wanted, std::string got) const;

 private:
  const boost::json::value* value_;
  std::string_view file_;
  std::string path_;
};

}  // namespace argosy::tokenizer
