#pragma once

#include <string>

#include "config/describe.hpp"

/// The options all tools with a configuration share: CONFIG, --set, --print-config, --print-schema. Free of any command
/// line library; apps/app.hpp binds them to one.
namespace argosy::config {

struct Options {
  Path config{};                              // CONFIG
  std::vector<std::string> assignments{};     // --set a.b=c, in order
  std::optional<std::string> print_config{};  // JSON pointer or dotted path; empty: everything
  bool raw = false;                           // print a text's characters, without quotes and escapes
  bool print_schema = false;
};

/// The part of `whole` at a JSON pointer ("/batch/unit") or dotted path ("batch.unit"); everything for an empty one.
/// Throws Error{usage} naming the first step that does not exist.
[[nodiscard]] const boost::json::value& part_of(const boost::json::value& whole, std::string_view path);

/// A part as --print-config prints it. Throws Error{usage} when `raw` is asked for and it is no text.
[[nodiscard]] std::string printed(const boost::json::value& part, bool raw);

/// What --print-schema or --print-config asks to print on stdout, if one was given.
template <class T>
[[nodiscard]] std::optional<std::string> requested_text(const Options& options, const T& value) {
  if (options.print_schema) return text_of(schema_of<T>());
  if (options.print_config) return printed(part_of(to_json(value), *options.print_config), options.raw);
  return std::nullopt;
}

/// Document plus assignments, read into a T. Throws as Document::parse, Document::set and from_document do.
template <class T>
[[nodiscard]] T from_document(Document document, const Options& options) {
  for (const std::string& assignment : options.assignments) document.set(assignment);
  return from_document<T>(document);
}

}  // namespace argosy::config
