#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>
#include <string>
#include <string_view>

/// Structs as texts that Communicator broadcasts and gathers: one JSON text each. A type is what Boost.JSON converts:
/// strings, which need not be UTF-8, whole numbers, lists, maps, pairs, and structs of these with
/// BOOST_DESCRIBE_STRUCT. JSON may change the last bit of a double: send doubles as Plain lists (comm/comm.hpp).
namespace argosy::comm {

template <class T>
[[nodiscard]] std::string to_message(const T& value) {
  return boost::json::serialize(boost::json::value_from(value));
}

/// `text` is what to_message<T> made.
template <class T>
[[nodiscard]] T from_message(std::string_view text) {
  return boost::json::value_to<T>(boost::json::parse(text, {}, {.allow_invalid_utf8 = true}));
}

}  // namespace argosy::comm
