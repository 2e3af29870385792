#pragma once

#include <algorithm>
#include <boost/mp11.hpp>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "config/config.hpp"
#include "core/error.hpp"

/// Templates over described structs: reading, dumping and describing a configuration, each as one recursion over the
/// members of a type. What needs no type is in describe.cpp. For .cpp files only: instantiate once per struct.
namespace argosy::config {

namespace detail {

namespace json = boost::json;

template <class T>
concept Struct = boost::describe::has_describe_members<T>::value && !std::is_union_v<T>;
template <class T>
concept Enum = std::is_enum_v<T> && boost::describe::has_describe_enumerators<T>::value;
template <class T>
concept Text = requires(const T& value) {
  { T::parse(std::string_view{}) } -> std::same_as<T>;
  { value.text() } -> std::convertible_to<std::string>;
};
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

template <class T, template <class...> class Of>
inline constexpr bool is_a = false;
template <class... Ts, template <class...> class Of>
inline constexpr bool is_a<Of<Ts...>, Of> = true;
template <class T>
concept Optional = is_a<T, std::optional>;
template <class T>
concept Vector = is_a<T, std::vector>;
template <class T>
concept Map = is_a<T, std::map>;
template <class T>
concept OneOf = is_a<T, Tagged>;
template <class T>
concept MaybeAuto = is_a<T, OrAuto>;

template <class T>
using Members = boost::describe::describe_members<T, boost::describe::mod_public | boost::describe::mod_inherited>;

/// Calls f(name, reference to the member) for each described member of `value`.
template <class T, class F>
void for_each_member(T& value, F&& f) {
  boost::mp11::mp_for_each<Members<std::remove_const_t<T>>>(
      [&](auto member) { f(member.name, value.*member.pointer); });
}

/// As it is spelled in JSON: without the _ at the end of one that would be a word of C++ otherwise (char_).
inline std::string_view name_of_enumerator(std::string_view name) {
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

template <Enum T>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<T>>(
      [&](auto e) { names.push_back(name_of_enumerator(e.name)); });
  return names;
}

template <Struct T>
std::span<const KeyText> texts_of() {
  if constexpr (requires(const T& value) { key_texts(value); }) {
    static const T value{};
    return key_texts(value);
  } else {
    return {};
  }
}

std::string_view text_for(std::span<const KeyText> texts, std::string_view key);
void add_mismatch(Problems& problems, std::string_view wanted, const json::value& got);
void add_bad_name(Problems& problems, std::span<const std::string_view> known, const json::value& got);
/// `key` is not among `known`, the keys of the object in the scope of `problems`. everywhere: the dotted paths of all
/// keys.
void add_unknown_key(Problems& problems, std::string_view key, std::span<const std::string_view> known,
                     std::span<const std::string> everywhere);
/// Drops problems of `second` at, above or below places of `first`. Throws Error{config} if any problem remains.
void throw_problems(const Document& document, const Problems& first, const Problems& second);

struct Reader {
  Problems& problems;
  std::span<const std::string> everywhere;

  void read(const json::value& from, bool& to) {
    if (!from.is_bool()) return add_mismatch(problems, "true or false", from);
    to = from.get_bool();
  }

  template <Integer T>
  void read(const json::value& from, T& to) {
    const auto fits = [&to](auto value) {
      if (!std::in_range<T>(value)) return false;
      to = static_cast<T>(value);
      return true;
    };
    bool ok = false;
    if (from.is_int64()) {
      ok = fits(from.get_int64());
    } else if (from.is_uint64()) {
      ok = fits(from.get_uint64());
    } else if (from.is_double() && std::abs(from.get_double()) < 0x1p63 &&
               from.get_double() == std::floor(from.get_double())) {
      ok = fits(static_cast<std::int64_t>(from.get_double()));  // 4e5
    }
    if (ok) return;
    using Limits = std::numeric_limits<T>;
    const std::string wanted = sizeof(T) == 8 && std::is_signed_v<T> ? "an integer"
                               : sizeof(T) == 8
                                   ? "an integer of at least 0"
                                   : fmt::format("an integer from {} to {}", +Limits::min(), +Limits::max());
    add_mismatch(problems, wanted, from);
  }

  template <std::floating_point T>
  void read(const json::value& from, T& to) {
    if (!from.is_number()) return add_mismatch(problems, "a number", from);
    const auto value = from.to_number<double>();
    if (std::abs(value) > static_cast<double>(std::numeric_limits<T>::max()))
      return add_mismatch(problems, fmt::format("a number of at most {:.1e}", std::numeric_limits<T>::max()), from);
    to = static_cast<T>(value);
  }

  void read(const json::value& from, std::string& to) {
    if (!from.is_string()) return add_mismatch(problems, "a string", from);
    to = from.get_string();
  }
  void read(const json::value& from, Path& to) {
    if (!from.is_string()) return add_mismatch(problems, "a path (a string)", from);
    to = std::string(from.get_string());
  }

  template <Enum T>
  void read(const json::value& from, T& to) {
    bool known = false;
    boost::mp11::mp_for_each<boost::describe::describe_enumerators<T>>([&](auto e) {
      if (!from.is_string() || name_of_enumerator(e.name) != std::string_view{from.get_string()}) return;
      to = e.value;
      known = true;
    });
    if (!known) add_bad_name(problems, names_of<T>(), from);
  }

  template <Text T>
  void read(const json::value& from, T& to) {
    try {
      to = T::parse(from.is_string() ? std::string_view{from.get_string()} : std::string_view{text_of(from, false)});
    } catch (const Error& error) {
      problems.add("", error.facts().wanted, error.facts().got, error.facts().remedy);
    }
  }

  template <class T>
  void read(const json::value& from, std::optional<T>& to) {
    if (from.is_null() || (from.is_string() && from.get_string() == "auto")) {
      to.reset();
    } else {
      read(from, to.emplace());
    }
  }

  template <class T>
  void read(const json::value& from, OrAuto<T>& to) {
    to = {};
    to.is_auto = from.is_string() && from.get_string() == "auto";
    if (!to.is_auto && !from.is_null()) read(from, to.emplace());
  }

  void read(const json::value& from, StringOrList& to) {
    if (!from.is_string() && !from.is_array()) return add_mismatch(problems, "a string or a list of strings", from);
    if (from.is_array()) return read(from, to.items);
    to = std::string(from.get_string());
  }

  template <class T>
  void read(const json::value& from, std::vector<T>& to) {
    if (!from.is_array()) return add_mismatch(problems, "a list", from);
    to.clear();
    for (const json::value& item : from.get_array()) {
      const Problems::Scope scope(problems, std::to_string(to.size()));
      T element{};
      read(item, element);
      to.push_back(std::move(element));
    }
  }

  template <class T>
  void read(const json::value& from, std::map<std::string, T>& to) {
    if (!from.is_object()) return add_mismatch(problems, "an object", from);
    to.clear();
    for (const auto& member : from.get_object()) {
      const Problems::Scope scope(problems, member.key());
      read(member.value(), to[std::string(member.key())]);
    }
  }

  template <class... Ts>
  void read(const json::value& from, Tagged<Ts...>& to) {
    if (!from.is_object()) return add_mismatch(problems, "an object", from);
    if (const json::value* named = from.get_object().if_contains("type")) {
      const auto choose = [&]<class T>(const T& other) {
        if (!named->is_string() || named->get_string() != T::type) return false;
        to.value = other;
        return true;
      };
      if (!(choose(Ts{}) || ...)) {
        const std::string_view names[] = {Ts::type...};
        const Problems::Scope scope(problems, "type");
        return add_bad_name(problems, names, *named);
      }
    }
    std::visit([&](auto& chosen) { read(from, chosen, {"type"}); }, to.value);
  }

  template <Struct T>
  void read(const json::value& from, T& to, std::vector<std::string_view> known = {}) {
    if (!from.is_object()) return add_mismatch(problems, "an object", from);
    const json::object& object = from.get_object();
    for_each_member(to, [&](std::string_view key, auto& member) {
      known.push_back(key);
      const json::value* value = object.if_contains(key);
      if (value == nullptr) return;
      const Problems::Scope scope(problems, key);
      read(*value, member);
    });
    for (const auto& member : object) {
      if (std::find(known.begin(), known.end(), std::string_view{member.key()}) == known.end())
        add_unknown_key(problems, member.key(), known, everywhere);
    }
  }
};

/// Calls validate() of every struct in the tree that has one.
template <class T>
void validate_tree(const T& value, Problems& problems) {
  if constexpr (Struct<T>) {
    if constexpr (requires { validate(value, problems); }) validate(value, problems);
    for_each_member(value, [&](std::string_view key, const auto& member) {
      const Problems::Scope scope(problems, key);
      validate_tree(member, problems);
    });
  } else if constexpr (OneOf<T>) {
    std::visit([&](const auto& chosen) { validate_tree(chosen, problems); }, value.value);
  } else if constexpr (Optional<T>) {
    if (value) validate_tree(*value, problems);
  } else if constexpr (Vector<T>) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Problems::Scope scope(problems, std::to_string(i));
      if constexpr (!std::same_as<T, std::vector<bool>>) validate_tree(value[i], problems);
    }
  } else if constexpr (Map<T>) {
    for (const auto& [key, member] : value) {
      const Problems::Scope scope(problems, key);
      validate_tree(member, problems);
    }
  }
}

template <class T>
json::value dump(const T& value) {
  if constexpr (Struct<T>) {
    json::object object;
    for_each_member(value, [&](std::string_view key, const auto& member) { object[key] = dump(member); });
    return object;
  } else if constexpr (OneOf<T>) {
    return std::visit(
        [](const auto& chosen) {
          json::object object{{"type", chosen.type}};
          for_each_member(chosen, [&](std::string_view key, const auto& member) { object[key] = dump(member); });
          return object;
        },
        value.value);
  } else if constexpr (Enum<T>) {
    const char* const name = boost::describe::enum_to_string(value, nullptr);
    ARGOSY_CHECK(name != nullptr, "an enumerator without a description");
    return json::value(name_of_enumerator(name));
  } else if constexpr (std::same_as<T, Period>) {
    if (value.unit == Period::Unit::step) return json::value(static_cast<std::int64_t>(value.count));
    return json::value(value.text());
  } else if constexpr (Text<T>) {
    return json::value(value.text());
  } else if constexpr (Optional<T> || MaybeAuto<T>) {
    if constexpr (MaybeAuto<T>) {
      if (value.is_auto) return "auto";
    }
    return value ? dump(*value) : json::value(nullptr);
  } else if constexpr (Vector<T>) {
    json::array array;
    for (const auto& item : value) array.push_back(dump(item));
    return array;
  } else if constexpr (Map<T>) {
    json::object object;
    for (const auto& [key, member] : value) object[key] = dump(member);
    return object;
  } else if constexpr (std::same_as<T, Path>) {
    return json::value(value.string());
  } else if constexpr (std::same_as<T, StringOrList>) {
    return value.items.size() == 1 ? json::value(value.items[0]) : dump(value.items);
  } else {
    return json::value(value);
  }
}

template <class T>
json::value schema() {
  if constexpr (Struct<T>) {
    json::object properties;
    const std::span<const KeyText> texts = texts_of<T>();
    T defaults{};
    for_each_member(defaults, [&](std::string_view key, const auto& member) {
      using Member = std::remove_cvref_t<decltype(member)>;
      json::value property = schema<Member>();
      if (const std::string_view text = text_for(texts, key); !text.empty()) property.as_object()["description"] = text;
      if constexpr (!Struct<Member>) property.as_object()["default"] = dump(member);
      properties[key] = std::move(property);
    });
    return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  } else if constexpr (OneOf<T>) {
    json::array any;
    const auto add = [&]<class One>(const One&) {
      json::object one = schema<One>().as_object();
      one["properties"].as_object()["type"] = json::object{{"const", One::type}};
      any.push_back(std::move(one));
    };
    [&]<class... Ts>(const Tagged<Ts...>&) { (add(Ts{}), ...); }(T{});
    return {{"anyOf", std::move(any)}};
  } else if constexpr (Enum<T>) {
    json::array names;
    for (const std::string_view name : names_of<T>()) names.emplace_back(name);
    return {{"enum", std::move(names)}};
  } else if constexpr (std::same_as<T, Period>) {
    return {{"type", json::array{"integer", "string"}}, {"pattern", "^[0-9]+([.][0-9]*)?[kMG]? *[ute]?$"}};
  } else if constexpr (Text<T> && requires { T::schema(); }) {  // objects reach its parse as their JSON text
    return T::schema();
  } else if constexpr (Text<T>) {
    return {{"type", json::array{"number", "string"}}};
  } else if constexpr (Optional<T> || MaybeAuto<T>) {
    return {{"anyOf", json::array{schema<typename T::value_type>(), {{"enum", json::array{nullptr, "auto"}}}}}};
  } else if constexpr (Vector<T>) {
    return {{"type", "array"}, {"items", schema<typename T::value_type>()}};
  } else if constexpr (Map<T>) {
    return {{"type", "object"}, {"additionalProperties", schema<typename T::mapped_type>()}};
  } else if constexpr (std::same_as<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (Integer<T>) {
    json::object object{{"type", "integer"}};
    if constexpr (sizeof(T) < 8 || std::is_unsigned_v<T>) object["minimum"] = std::numeric_limits<T>::min();
    if constexpr (sizeof(T) < 8) object["maximum"] = std::numeric_limits<T>::max();
    return object;
  } else if constexpr (std::floating_point<T>) {
    return {{"type", "number"}};
  } else if constexpr (std::same_as<T, StringOrList>) {
    return {{"anyOf", json::array{schema<std::string>(), schema<std::vector<std::string>>()}}};
  } else {
    static_assert(std::same_as<T, std::string> || std::same_as<T, Path>, "a type no configuration can hold");
    return {{"type", "string"}};
  }
}

/// Calls f(dotted path, text) for each key of T, structs in structs, lists and maps included ("corpora.0.weight").
template <class T, class F>
void for_each_key(const std::string& prefix, F&& f) {
  if constexpr (Struct<T>) {
    const std::span<const KeyText> texts = texts_of<T>();
    boost::mp11::mp_for_each<Members<T>>([&](auto member) {
      const std::string path = prefix.empty() ? member.name : prefix + "." + member.name;
      f(path, text_for(texts, member.name));
      for_each_key<std::remove_cvref_t<decltype(std::declval<T&>().*member.pointer)>>(path, f);
    });
  } else if constexpr (OneOf<T>) {
    f(prefix + ".type", std::string_view("what it is"));
    [&]<class... Ts>(const Tagged<Ts...>&) { (for_each_key<Ts>(prefix, f), ...); }(T{});
  } else if constexpr (Optional<T> || Vector<T>) {
    for_each_key<typename T::value_type>(Vector<T> ? prefix + ".0" : prefix, f);
  } else if constexpr (Map<T>) {
    for_each_key<typename T::mapped_type>(prefix, f);
  }
}

}  // namespace detail

template <class T>
std::vector<std::string> keys_of() {
  std::vector<std::string> keys;
  detail::for_each_key<T>("", [&](const std::string& path, std::string_view) { keys.push_back(path); });
  return keys;
}

template <class T>
std::vector<std::string> keys_without_text() {
  std::vector<std::string> keys;
  detail::for_each_key<T>("", [&](const std::string& path, std::string_view text) {
    if (text.empty()) keys.push_back(path);
  });
  return keys;
}

template <class T>
T from_document(const Document& document) {
  T value{};
  Problems unreadable, invalid;
  const std::vector<std::string> everywhere = keys_of<T>();
  if constexpr (requires { set_defaults(value, document.root()); }) set_defaults(value, document.root());
  detail::Reader{unreadable, everywhere}.read(document.root(), value);
  detail::validate_tree(value, invalid);
  detail::throw_problems(document, unreadable, invalid);
  if constexpr (requires { expand(value); }) expand(value);
  return value;
}

template <class T>
boost::json::value to_json(const T& value) {
  return detail::dump(value);
}

template <class T>
boost::json::value schema_of() {
  boost::json::value schema = detail::schema<T>();
  schema.as_object()["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  return schema;
}

template <class T>
Digest digest_of_config(const T& value) {
  return digest_of(text_of(to_json(value), false));
}

}  // namespace argosy::config
