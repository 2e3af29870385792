#include <algorithm>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>

#include "config/config.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"

namespace argosy::config {
namespace {

namespace json = boost::json;

struct Suffix {
  char letter;
  double factor;
};
constexpr Suffix suffixes[] = {{'G', 1e9}, {'M', 1e6}, {'k', 1e3}};

[[noreturn]] void refuse(std::string_view text) {
  throw Error{Fault::config,
              {.wanted = "a period such as 500 or \"300ku\" (steps), \"2Mt\" (tgt_tokens) or \"1.5e\" (epochs)",
               .got = fmt::format("\"{}\"", text)}};
}

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
  return replace_invalid_utf8(writer.out);  // file names need not be UTF-8
}

Period Period::parse(std::string_view text) {
  Period period;
  const char* const end = text.data() + text.size();
  // fixed: the e of "2e" is the unit, not an exponent
  auto [at, error] = std::from_chars(text.data(), end, period.count, std::chars_format::fixed);
  if (error != std::errc{} || period.count < 0 || !std::isfinite(period.count)) refuse(text);
  for (const Suffix& suffix : suffixes) {
    if (at == end || *at != suffix.letter) continue;
    period.count *= suffix.factor;
    ++at;
  }
  while (at != end && *at == ' ') ++at;
  if (at != end) {
    if (*at == 't') {
      period.unit = Unit::tgt_token;
    } else if (*at == 'e') {
      period.unit = Unit::epoch;
    } else if (*at != 'u') {
      refuse(text);
    }
    ++at;
  }
  constexpr double most = 0x1p53;  // above it, not every number of steps or tgt_tokens can be told from the next
  if (period.count > most) refuse(text);
  const bool countable = period.unit == Unit::epoch || period.count == std::floor(period.count);
  if (at != end || !countable) refuse(text);
  return period;
}

std::string Period::text() const {
  if (unit == Unit::step) return fmt::format("{:.0f}", count);
  const char letter = unit == Unit::epoch ? 'e' : 't';
  for (const Suffix& suffix : suffixes) {
    if (count >= suffix.factor && std::fmod(count, suffix.factor) == 0)
      return fmt::format("{:.0f}{}{}", count / suffix.factor, suffix.letter, letter);
  }
  return fmt::format("{}{}", count, letter);
}

}  // namespace argosy::config
