#pragma once

#include <boost/json/object.hpp>

/// Floats that survive JSON bit for bit. Boost.JSON 1.81 reads some decimals one unit in the last place off, and JSON
/// has no NaN.
namespace argosy::checkpoint {

/// JSON pointer → 16 hex digits of each double found under the members of `document`; NaN and Inf in `document` become
/// the strings "nan", "inf", "-inf".
[[nodiscard]] boost::json::object take_float_bits(boost::json::object& document);

/// Puts the doubles back. Throws Error{corrupt} when a pointer leads nowhere or the bits contradict the decimal.
void restore_float_bits(boost::json::object& document, const boost::json::object& bits);

}  // namespace argosy::checkpoint
