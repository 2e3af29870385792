#include "data/record_line.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <utility>

namespace argosy::data {
namespace {

namespace json = boost::json;
using Broken = std::optional<BrokenRecord>;

/// The text of a column of a line, from 1; a view behind the last column has no data.
std::string_view column_of(std::string_view line, const std::string& number) {
  std::size_t column = 0;
  std::from_chars(number.data(), number.data() + number.size(), column);
  for (; column > 1; --column) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return {};
    line.remove_prefix(tab + 1);
  }
  return line.substr(0, line.find('\t'));
}

Broken take_column(std::string_view line, const std::string& number, std::string& to) {
  const std::string_view text = column_of(line, number);
  if (text.data() == nullptr) {
    const auto columns = std::ranges::count(line, '\t') + 1;
    return BrokenRecord{fmt::format("a column {} (columns are separated by tabs)", number),
                        fmt::format("{} column{}", columns, columns == 1 ? "" : "s"), line.size()};
  }
  to = text;
  return std::nullopt;
}

/// The source in front of the target, which alone bears loss.
void join_prompt(Record& record) {
  record.loss_on_all = false;
  record.loss = {{record.source.size(), record.source.size() + record.target.size()}};
  record.target = std::exchange(record.source, {}) + record.target;
}

Broken parse_tsv(std::string_view line, const TextRules& rules, Record& record) {
  const FieldsConfig& fields = rules.fields;
  if (!rules.pairs && !fields.source && !fields.target)
    return take_column(line, fields.text.value_or("1"), record.target);
  if (Broken broken = take_column(line, fields.source.value_or("1"), record.source)) return broken;
  if (Broken broken = take_column(line, fields.target.value_or("2"), record.target)) return broken;
  if (!rules.pairs) join_prompt(record);
  return std::nullopt;
}

std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::object:
      return "an object";
    case json::kind::array:
      return "a list";
    case json::kind::string:
      return "a string";
    case json::kind::bool_:
      return "true or false";
    case json::kind::null:
      return "null";
    default:
      return "a number";
  }
}

const json::value* find(const json::value& root, std::string_view pointer) {
  boost::system::error_code error;
  return root.find_pointer(pointer, error);
}

Broken take_string(const json::value* value, std::string_view where, std::string& to) {
  if (value == nullptr || !value->is_string())
    return BrokenRecord{fmt::format("a string at {}", where),
                        value == nullptr ? "none" : std::string{kind_name(*value)}, 0};
  to = std::string_view{value->get_string()};
  if (const std::size_t zero = to.find('\0'); zero != std::string::npos)
    return BrokenRecord{fmt::format("text at {}", where), "a zero character (\\u0000)", 0};
  return std::nullopt;
}

Broken take_messages(const json::value* value, std::string_view where, Record& record) {
  if (value == nullptr || !value->is_array() || value->get_array().empty())
    return BrokenRecord{fmt::format("a list of messages at {}", where),
                        value == nullptr    ? "none"
                        : value->is_array() ? "an empty list"
                                            : std::string{kind_name(*value)},
                        0};
  constexpr std::string_view end = "<|im_end|>";
  record.loss_on_all = false;
  const json::array& messages = value->get_array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    std::string role, content;
    for (const auto& [key, to] : {std::pair{"role", &role}, {"content", &content}}) {
      const json::value* part = messages[i].is_object() ? messages[i].get_object().if_contains(key) : nullptr;
      if (Broken broken = take_string(part, fmt::format("{}/{}/{}", where, i, key), *to)) return broken;
    }
    if (role.empty() || role.find_first_of("\n<") != std::string::npos)
      return BrokenRecord{fmt::format("a role at {}/{}/role, such as user or assistant", where, i),
                          role.empty() ? "an empty one" : "one with a line feed or <", 0};
    record.target += fmt::format("<|im_start|>{}\n", role);
    const std::size_t begin = record.target.size();
    record.target.append(content).append(end);
    if (role == "assistant") record.loss.push_back({begin, record.target.size()});
    record.target += '\n';
  }
  if (record.loss.empty()) return BrokenRecord{fmt::format("a message of the role assistant at {}", where), "none", 0};
  return std::nullopt;
}

Broken take_pair(const json::value& root, const FieldsConfig& fields, Record& record) {
  for (const auto& [pointer, to] : {std::pair{fields.source.value_or("/source"), &record.source},
                                    {fields.target.value_or("/target"), &record.target}})
    if (Broken broken = take_string(find(root, pointer), pointer, *to)) return broken;
  return std::nullopt;
}

Broken parse_json(std::string_view line, const TextRules& rules, Record& record) {
  json::stream_parser parser;
  boost::system::error_code error;
  const std::size_t used = parser.write_some(line.data(), line.size(), error);
  if (!error && used == line.size()) parser.finish(error);
  if (error || used < line.size())
    return BrokenRecord{"one JSON object", error ? error.message() : "text after it", used};
  const json::value root = parser.release();
  if (!root.is_object()) return BrokenRecord{"a JSON object", std::string{kind_name(root)}, 0};

  const FieldsConfig& fields = rules.fields;
  if (rules.pairs) return take_pair(root, fields, record);
  const bool any = fields == FieldsConfig{};  // nothing is named: what is there
  const std::string messages = fields.messages.value_or("/messages"), text = fields.text.value_or("/text");
  if (fields.messages || (any && find(root, messages) != nullptr))
    return take_messages(find(root, messages), messages, record);
  if (fields.text || (any && find(root, text) != nullptr)) return take_string(find(root, text), text, record.target);
  if (any && (find(root, "/source") == nullptr || find(root, "/target") == nullptr))
    return BrokenRecord{"a text, messages, or a source and a target", "none of them", 0};
  if (Broken broken = take_pair(root, fields, record)) return broken;
  join_prompt(record);
  return std::nullopt;
}

}  // namespace

Broken parse_record(std::string_view line, const TextRules& rules, Record& record) {
  record = {};
  return rules.format == TextFormat::tsv ? parse_tsv(line, rules, record) : parse_json(line, rules, record);
}

}  // namespace argosy::data
