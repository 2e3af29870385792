#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.hpp"

/// The options of all tools with a configuration: CONFIG, --set, --print-config, --print-schema. Independent of the
/// command-line library, to which apps/app.hpp binds them.
namespace argosy::config {

struct Options {
  Path config{};                              // CONFIG
  std::vector<std::string> assignments{};     // --set a.b=c, in order
  std::optional<std::string> print_config{};  // JSON pointer or dotted path; empty: everything
  bool raw = false;                           // print a string without quotes and escapes
  bool print_schema = false;
};

/// The part of `whole` at a JSON pointer ("/batch/unit") or dotted path ("batch.unit"); all of it for an empty path.
/// Throws Error{usage} naming the first key that does not exist.
[[nodiscard]] const boost::json::value& part_of(const boost::json::value& whole, std::string_view path);

/// A part as --print-config prints it. Throws Error{usage} if `raw` is set and the part is not a string.
[[nodiscard]] std::string printed(const boost::json::value& part, bool raw);

/// What --print-schema or --print-config prints on stdout; nullopt if neither was given.
template <class T>
[[nodiscard]] std::optional<std::string> requested_text(const Options& options, const T& value) {
  if (options.print_schema) return text_of(schema_of<T>());
  if (options.print_config) return printed(part_of(to_json(value), *options.print_config), options.raw);
  return std::nullopt;
}

/// The document with the assignments applied, read into a T. Throws as Document::parse, Document::set and from_document
/// do.
template <class T>
[[nodiscard]] T from_document(Document document, const Options& options) {
  for (const std::string& assignment : options.assignments) document.set(assignment);
  return from_document<T>(document);
}

}  // namespace argosy::config
