#pragma once

#include <boost/json/object.hpp>
#include <string>

/// Keeps the bits of floats in JSON. Boost.JSON 1.81 reads some decimals one unit in the last place off, and JSON has
/// no NaN.
namespace argosy::checkpoint {

/// Maps the JSON pointer of each double in `document` to its bits in 16 hex digits. NaN and Inf in `document` become
/// the strings "nan", "inf" and "-inf".
[[nodiscard]] boost::json::object take_float_bits(boost::json::object& document);

/// Puts the doubles back. `where` names the file in errors. Throws Error{corrupt} when a pointer leads nowhere or the
/// bits contradict the decimal.
void restore_float_bits(boost::json::object& document, const boost::json::object& bits, const std::string& where);

}  // namespace argosy::checkpoint
