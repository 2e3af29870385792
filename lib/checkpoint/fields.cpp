#include "checkpoint/fields.hpp"

#include <bit>

#include "core/file_name.hpp"

namespace argosy::checkpoint {
namespace {

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

/// What stands for a number that JSON does not have; empty for one that it has.
const char* word_for(double number) {
  if (std::isnan(number)) return "nan";
  return std::isinf(number) ? number > 0 ? "inf" : "-inf" : "";
}

void collect(boost::json::value& value, const std::string& pointer, boost::json::object& bits) {
  if (value.is_object()) {
    for (auto& member : value.get_object())
      collect(member.value(), fmt::format("{}/{}", pointer, escaped(member.key())), bits);
  } else if (value.is_array()) {
    std::size_t index = 0;
    for (auto& element : value.get_array()) collect(element, fmt::format("{}/{}", pointer, index++), bits);
  } else if (value.is_double()) {
    const double number = value.get_double();
    bits[pointer] = fmt::format("{:016x}", std::bit_cast<std::uint64_t>(number));
    if (!std::isfinite(number)) value = word_for(number);
  }
}

[[noreturn]] void fail(std::string_view pointer, const std::string& where) {
  throw_error(Fault::corrupt, where + " at /float_bits", fmt::format("the bits of the number at {}", pointer),
              "other bits", "use another checkpoint");
}

}  // namespace

boost::json::object take_float_bits(boost::json::object& document) {
  boost::json::object bits;
  for (auto& member : document) collect(member.value(), fmt::format("/{}", escaped(member.key())), bits);
  return bits;
}

void restore_float_bits(boost::json::object& document, const boost::json::object& bits, const std::string& where) {
  boost::json::value root(std::move(document));  // braces would make a list of one
  for (const auto& [pointer, hex] : bits) {
    boost::json::error_code error;
    boost::json::value* const place = root.find_pointer(pointer, error);
    const bool whole = hex.is_string() && hex.get_string().size() == 16;
    const auto raw = whole ? number_in<std::uint64_t>(hex.get_string(), 16) : std::nullopt;
    if (place == nullptr || !raw) fail(pointer, where);
    const auto number = std::bit_cast<double>(*raw);
    // A double has bits like its own, a word the bits it stands for; everything else is exact as it is.
    const bool right = place->is_double()
                           ? std::isfinite(number) && std::abs(place->get_double() - number) <= 1e-12 * std::abs(number)
                           : place->is_string() && !std::isfinite(number) && place->get_string() == word_for(number);
    if (!right) fail(pointer, where);
    *place = number;
  }
  document = std::move(root.get_object());
}

}  // namespace argosy::checkpoint
