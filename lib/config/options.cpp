#include "config/options.hpp"

namespace argosy::config {

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
      const bool digits = step.find_first_not_of("0123456789") == std::string_view::npos && step.size() < 10;
      if (digits && !step.empty()) next = array->if_contains(std::stoul(std::string(step)));
    }
    if (next == nullptr) {
      const std::string where = fmt::format("--print-config {}", path);
      const std::string remedy = "correct the key, or put the configuration file before --print-config";
      throw Error{
          Fault::usage,
          {.sentence = fmt::format("{}: the configuration has no key \"{}\" at this place; {}", where, step, remedy),
           .wanted = "a key of the configuration",
           .got = fmt::format("\"{}\"", step),
           .where = where,
           .remedy = remedy}};
    }
    at = next;
  }
  return *at;
}

std::string printed(const boost::json::value& part, bool raw) {
  if (!raw) return text_of(part);
  if (part.is_string()) return std::string(part.get_string());
  throw Error{Fault::usage,
              {.wanted = "a string", .got = text_of(part, false), .where = "--raw", .remedy = "omit --raw"}};
}

}  // namespace argosy::config
