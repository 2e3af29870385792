#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

namespace argosy::test {

/// Pointers of all numbers under `value`.
inline void collect_numbers(const boost::json::value& value, const std::string& pointer,
                            std::vector<std::string>& found) {
  if (value.is_number()) found.push_back(pointer);
  if (value.is_object()) {
    for (const auto& member : value.get_object()) {
      std::string key;  // as JSON pointers spell it
      for (const char c : std::string_view{member.key()}) key += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
      collect_numbers(member.value(), pointer + "/" + key, found);
    }
  }
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.get_array().size(); ++i)
      collect_numbers(value.get_array()[i], pointer + "/" + std::to_string(i), found);
  }
}

inline std::vector<std::string> numbers_of(const boost::json::value& value) {
  std::vector<std::string> found;
  collect_numbers(value, "", found);
  return found;
}

}  // namespace argosy::test
