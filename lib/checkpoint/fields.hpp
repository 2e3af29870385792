#pragma once

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/hash.hpp"

/// Reads the members of a manifest's JSON and checks their types and bounds. A member that is missing, has another type
/// or is out of bounds is Error{corrupt}, which names its place. Every use of a manifest's values goes through here.
/// Borrows everything that it is constructed from.
namespace argosy::checkpoint {

class Fields {
 public:
  /// The largest counter of a run: 18 digits. The sum of two cannot overflow.
  static constexpr std::int64_t most = 999'999'999'999'999'999;

  /// `pointer` leads to the object; `where` names the file.
  Fields(const boost::json::object& object, std::string pointer, const std::string& where)
      : object_(object), pointer_(std::move(pointer)), where_(where) {}

  [[noreturn]] void fail(std::string_view key, const std::string& wanted, std::string got) const {
    constexpr std::size_t longest = 60;
    if (got.size() > longest) got = got.substr(0, longest) + "…";
    throw_error(Fault::corrupt, fmt::format("{} at {}/{}", where_, pointer_, key), wanted, std::move(got),
                "use another checkpoint");
  }
  void require(bool good, std::string_view key, const std::string& wanted) const {
    const boost::json::value* const value = object_.if_contains(key);
    if (!good) fail(key, wanted, value == nullptr ? "nothing" : boost::json::serialize(*value));
  }
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  [[nodiscard]] const boost::json::value& at(std::string_view key) const {
    const boost::json::value* const value = object_.if_contains(key);
    if (value == nullptr) fail(key, "a value", "nothing");
    return *value;
  }
  [[nodiscard]] std::string text(std::string_view key) const {
    require(at(key).is_string(), key, "a string");
    return std::string(at(key).get_string());
  }
  [[nodiscard]] bool flag(std::string_view key) const {
    require(at(key).is_bool(), key, "true or false");
    return at(key).get_bool();
  }
  /// A whole number from 0 to `limit`.
  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t limit = most) const {
    return count_of(at(key), key, limit);
  }
  [[nodiscard]] std::int64_t count_of(const boost::json::value& value, std::string_view key, std::int64_t limit) const {
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > limit)
      fail(key, fmt::format("a whole number from 0 to {}", limit), boost::json::serialize(value));
    return value.get_int64();
  }
  /// Any number. A loss may be NaN or Inf.
  [[nodiscard]] double number(std::string_view key) const {
    require(at(key).is_number(), key, "a number");
    return at(key).to_number<double>();
  }
  /// A finite number of 0 or more.
  [[nodiscard]] double amount(std::string_view key) const {
    require(at(key).is_number() && std::isfinite(number(key)) && number(key) >= 0, key, "a finite number of 0 or more");
    return number(key);
  }
  [[nodiscard]] const boost::json::array& list(std::string_view key) const {
    require(at(key).is_array(), key, "a list");
    return at(key).get_array();
  }
  [[nodiscard]] const boost::json::object& members(std::string_view key) const {
    require(at(key).is_object(), key, "an object");
    return at(key).get_object();
  }
  [[nodiscard]] Fields object(std::string_view key) const {
    return {members(key), fmt::format("{}/{}", pointer_, key), where_};
  }
  /// Calls `read` with each object of a list.
  template <class Read>
  void for_each(std::string_view key, const Read& read) const {
    std::size_t index = 0;
    for (const boost::json::value& value : list(key)) {
      require(value.is_object(), key, "a list of objects");
      read(Fields{value.get_object(), fmt::format("{}/{}/{}", pointer_, key, index++), where_});
    }
  }
  [[nodiscard]] Digest digest(std::string_view key) const {
    const auto value = Digest::from_hex(text(key));
    require(value.has_value(), key, "32 hex digits");
    return *value;
  }

 private:
  const boost::json::object& object_;
  std::string pointer_;
  const std::string& where_;
};

/// Keeps the bits of floats in JSON: Boost.JSON 1.81 reads some decimals one unit in the last place off, and JSON has
/// no NaN. Maps the JSON pointer of each double in `document` to its bits in 16 hex digits. NaN and Inf in `document`
/// become the strings "nan", "inf" and "-inf".
[[nodiscard]] boost::json::object take_float_bits(boost::json::object& document);

/// Puts the doubles back. `where` names the file in errors. Throws Error{corrupt} when a pointer leads nowhere or the
/// bits contradict the decimal.
void restore_float_bits(boost::json::object& document, const boost::json::object& bits, const std::string& where);

}  // namespace argosy::checkpoint
