#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "config/config.hpp"

namespace argosy::config {
namespace {

namespace json = boost::json;

class Writer {
 public:
  explicit Writer(bool pretty) : pretty_(pretty) {}

  void write(const json::value& value) {
    switch (value.kind()) {
      case json::kind::object:
        return write_object(value.get_object());
      case json::kind::array:
        return write_array(value.get_array());
      case json::kind::double_:
        out += std::isfinite(value.get_double()) ? fmt::format("{}", value.get_double()) : "null";
        return;
      default:
        out += json::serialize(value);
    }
  }

  std::string out;

 private:
  void write_object(const json::object& object) {
    std::vector<const json::key_value_pair*> members;
    for (const auto& member : object) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->key() < b->key(); });
    write_list('{', '}', members.size(), [&](std::size_t i) {
      out += json::serialize(json::string(members[i]->key()));
      out += pretty_ ? ": " : ":";
      write(members[i]->value());
    });
  }

  void write_array(const json::array& array) {
    const bool flat = std::none_of(array.begin(), array.end(), [](const json::value& v) { return v.is_structured(); });
    const bool pretty = std::exchange(pretty_, pretty_ && !flat);
    write_list('[', ']', array.size(), [&](std::size_t i) { write(array[i]); });
    pretty_ = pretty;
  }

  template <class Item>
  void write_list(char open, char close, std::size_t size, Item&& item) {
    out += open;
    ++depth_;
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0) out += ',';
      new_line();
      item(i);
    }
    --depth_;
    if (size > 0) new_line();
    out += close;
  }

  void new_line() {
    if (pretty_) out += '\n' + std::string(2 * depth_, ' ');
  }

  bool pretty_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string text_of(const json::value& value, bool pretty) {
  Writer writer{pretty};
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace argosy::config
