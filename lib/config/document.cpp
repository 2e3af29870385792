#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value_stack.hpp>

#include "config/config.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/utf8.hpp"

namespace argosy::config {
namespace {

namespace json = boost::json;

using Place = Document::Place;
constexpr int from_command_line = -1;
constexpr std::size_t deepest = 32;  // as deep as Boost parses

std::string unescaped(std::string_view step) {
  std::string key;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const bool escape = step[i] == '~' && i + 1 < step.size();
    key += escape ? (step[++i] == '1' ? '/' : '~') : step[i];
  }
  return key;
}

/// Events of Boost's parser, which is fed line by line: builds the value and notes the line of each key and element.
class Builder {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  explicit Builder(std::string_view name) : name_(name) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return open(false); }
  bool on_array_begin(json::error_code&) { return open(true); }
  bool on_object_end(std::size_t n, json::error_code&) {
    stack_.push_object(n);
    return close();
  }
  bool on_array_end(std::size_t n, json::error_code&) {
    stack_.push_array(n);
    return close();
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_ += part;
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code&) {
    key_ += part;
    stack_.push_key(part);
    const std::string key = std::exchange(key_, {});
    const auto [place, is_new] = open_.back().place->parts.try_emplace(key, Place{.line = line});
    if (!is_new) {
      const std::string path = path_to(key);
      throw_claim(Fault::config,
                  fmt::format("{}:{}: the key {} is already in line {}", name_, line, path, place->second.line),
                  fmt::format("{}:{}", name_, line), fmt::format("the key {} once", path),
                  fmt::format("the key again, after line {}", place->second.line), "remove one of them");
    }
    member_ = &place->second;
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code&) { return put(&Stack::push_string, part); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, json::error_code&) { return put(&Stack::push_int64, value); }
  bool on_uint64(std::uint64_t value, json::string_view, json::error_code&) { return put(&Stack::push_uint64, value); }
  bool on_double(double value, json::string_view, json::error_code&) { return put(&Stack::push_double, value); }
  bool on_bool(bool value, json::error_code&) { return put(&Stack::push_bool, value); }
  bool on_null(json::error_code&) { return put(&Stack::push_null); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  json::value release() { return stack_.release(); }

  int line = 1;
  Place places;

 private:
  using Stack = json::value_stack;
  struct Open {
    bool is_array;
    Place* place;
    std::size_t next_index = 0;
  };

  /// The dotted path to `key` of the innermost object: each level asks its parent which part it is.
  [[nodiscard]] std::string path_to(std::string_view key) const {
    std::string path;
    for (std::size_t i = 1; i < open_.size(); ++i) {
      const auto& parts = open_[i - 1].place->parts;
      const auto part =
          std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return &p.second == open_[i].place; });
      path += part->first + '.';
    }
    return path + std::string(key);
  }
  /// Where the value that begins now belongs.
  Place* begin_value() {
    if (open_.empty()) return &places;
    if (!open_.back().is_array) return member_;
    const std::string index = std::to_string(open_.back().next_index++);
    return &open_.back().place->parts.try_emplace(index, Place{.line = line}).first->second;
  }
  /// A value without parts.
  template <class Push, class... Values>
  bool put(Push push, Values... values) {
    begin_value();
    (stack_.*push)(values...);
    return true;
  }
  bool open(bool is_array) {
    open_.push_back({is_array, begin_value()});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string name_;
  Stack stack_;
  std::vector<Open> open_;
  std::string key_;
  Place* member_ = nullptr;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
  constexpr std::size_t shown = 60;
  return text.substr(0, shown);
}

}  // namespace

std::string read_source(const Files& files, const Path& path) {
  constexpr std::uint64_t largest_bytes = 16U << 20U;
  if (files.exists(path)) return files.read_text(path, largest_bytes);
  throw_claim(Fault::usage, fmt::format("{} does not exist", path.string()), path.string(), "a configuration file",
              "no such file", "correct the path, or see configs/ for examples");
}

Document Document::parse(std::string_view text, std::string_view name) {
  json::parse_options options;
  options.allow_comments = options.allow_trailing_commas = true;
  json::basic_parser<Builder> parser(options, name);
  const auto refuse = [&](std::string_view why, std::string_view near) {
    const std::string got = fmt::format("{} {}", why, near);
    const std::string place = fmt::format("{}:{}", name, parser.handler().line);
    throw_claim(Fault::config,
                fmt::format("{}: not valid JSON (comments and trailing commas are allowed): {}", place, got), place,
                "JSON", got);
  };
  json::error_code error;
  std::string line;
  for (std::size_t at = 0; at < text.size(); ++parser.handler().line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    line.assign(text.substr(at, end - at)).push_back('\n');
    const std::size_t used = parser.write_some(true, line.data(), line.size(), error);
    if (error) {
      const bool deep = error == json::error::too_deep;
      refuse(deep ? "nested too deeply" : error.message(), fmt::format("near `{}`", trimmed(line)));
    }
    if (used < line.size()) {
      refuse("text after the end of the document",
             fmt::format("near `{}`", trimmed(std::string_view{line}.substr(used))));
    }
    at = end + 1;
  }
  parser.write_some(false, "", 0, error);
  if (error) refuse(error.message(), "at the end of the file");

  Document document;
  document.root_ = parser.handler().release();
  document.name_ = name;
  document.places_ = std::move(parser.handler().places);
  return document;
}

void Document::set(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const auto refuse = [&](std::string wanted, std::string got) {
    throw_error(Fault::usage, fmt::format("--set {}", assignment), std::move(wanted), std::move(got));
  };
  if (equals == std::string_view::npos || equals == 0) refuse("KEY=VALUE", fmt::format("\"{}\"", assignment));
  if (const auto at = first_invalid_utf8(assignment))  // the configuration, once printed, could not be read
    refuse("text in UTF-8", fmt::format("byte 0x{:02x}", static_cast<unsigned char>(assignment[*at])));

  json::value* at = &root_;
  Place* place = &places_;
  std::string above;  // the keys so far
  std::size_t depth = 0;
  std::string_view path = assignment.substr(0, equals);
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view step = path.substr(0, dot);
    if (step.empty()) refuse("keys separated by single dots", "an empty key");
    if (++depth > deepest) refuse(fmt::format("a path of at most {} keys", deepest), "a longer one");
    if (at->is_null()) *at = json::object{};
    if (auto* object = at->if_object()) {
      at = &(*object)[step];
    } else if (auto* array = at->if_array()) {
      const auto index = static_cast<std::size_t>(count_in(step).value_or(std::ssize(*array) + 1));
      if (index > array->size())
        refuse(fmt::format("an index of {} from 0 to {}", above, array->size()), std::string(step));
      if (index == array->size()) array->emplace_back(nullptr);
      at = &(*array)[index];
    } else {
      refuse(fmt::format("an object at {}", above), text_of(*at, false));
    }
    above += (above.empty() ? "" : ".") + std::string(step);
    place = &place->parts.try_emplace(std::string{step}, Place{.line = from_command_line}).first->second;
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }

  const std::string_view text = assignment.substr(equals + 1);
  json::error_code error;
  json::value value = json::parse(text, error);
  *at = error ? json::value(text) : std::move(value);
  *place = {.line = from_command_line};
}

std::string Document::place(std::string_view pointer) const {
  const Place* at = &places_;
  while (pointer.starts_with('/')) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    const auto part = at->parts.find(unescaped(pointer.substr(1, end - 1)));
    if (part == at->parts.end()) break;
    at = &part->second;
    pointer.remove_prefix(end);
  }
  if (at->line == from_command_line) return "--set";
  return at->line == 0 ? name_ : fmt::format("{}:{}", name_, at->line);
}

const boost::json::value& part_of(const boost::json::value& whole, std::string_view path) {
  const boost::json::value* at = &whole;
  std::string_view rest = path.starts_with('/') ? path.substr(1) : path;
  const char separator = path.starts_with('/') ? '/' : '.';
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view step = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const boost::json::value* next = nullptr;
    if (const auto* object = at->if_object()) {
      next = object->if_contains(step);
    } else if (const auto* array = at->if_array()) {
      if (const auto index = count_in(step)) next = array->if_contains(static_cast<std::size_t>(*index));
    }
    if (next == nullptr) {
      const std::string where = fmt::format("--print-config {}", path);
      throw_claim(Fault::usage, fmt::format("{}: the configuration has no key \"{}\" at this place", where, step),
                  where, "a key of the configuration", fmt::format("\"{}\"", step),
                  "correct the key, or put the configuration file before --print-config");
    }
    at = next;
  }
  return *at;
}

std::string printed(const boost::json::value& part, bool raw) {
  if (!raw) return text_of(part);
  if (part.is_string()) return std::string(part.get_string());
  throw_claim(Fault::usage, "--raw prints only strings, and the value to print is " + text_of(part, false), "--raw",
              "a string", "another value", "omit --raw");
}

}  // namespace argosy::config
