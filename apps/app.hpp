#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "comm/run_main.hpp"
#include "config/options.hpp"
#include "core/built_with.hpp"
#include "core/version.hpp"

/// What the mains share: a command line that teaches, --version, and the options of every tool with a configuration.
/// All ranks parse the same words and come to the same verdict; rank 0 prints for all.
namespace argosy::app {

/// "argosy 0.1.0 (revision)" and a line for each library.
[[nodiscard]] inline std::string version_text() {
  std::string text = fmt::format("argosy {} ({})", version(), revision());
  for (const Component& component : built_with()) text += fmt::format("\n{:<9}{}", component.name, component.version);
  return text;
}

namespace detail {

/// The option nearest to the first word that nobody understood, as a remedy.
inline std::string remedy_for(const CLI::App& app, const std::string& tool) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const std::string& word : app.remaining()) {
    if (const auto hint = config::nearest(word.substr(0, word.find('=')), known))
      return fmt::format("did you mean {}?", *hint);
  }
  return fmt::format("`{} --help` explains them", tool);
}

}  // namespace detail

/// Parses the command line into the variables bound to `app`. `examples`: two command lines with a word on each, shown
/// by --help. Returns false when --help or --version was asked for: `answer` then says it. Throws Error{usage}.
[[nodiscard]] inline bool parse(CLI::App& app, int argc, const char* const* argv, std::string_view examples,
                                std::string& answer) {
  const std::string tool = argc > 0 ? Path(argv[0]).filename().string() : "argosy";
  app.name(tool);
  app.footer(fmt::format("Examples:\n{}", examples));
  app.set_version_flag("--version", version_text());
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& answered) {
    std::ostringstream text;
    app.exit(answered, text, text);
    answer = text.str();
    return false;
  } catch (const CLI::ParseError& error) {
    std::string got;
    for (const std::string& word : app.remaining()) got += (got.empty() ? "" : " ") + word;
    if (got.empty()) got = error.what();
    throw Error{Fault::usage,
                {.wanted = fmt::format("options of {}", tool), .got = got, .remedy = detail::remedy_for(app, tool)}};
  }
}

/// The same under run_main: rank 0 prints the answer. False: the tool is done.
[[nodiscard]] inline bool parse(CLI::App& app, int argc, const char* const* argv, std::string_view examples,
                                const comm::Context& context) {
  std::string answer;
  const bool goes_on = parse(app, argc, argv, examples, answer);
  if (!goes_on) context.print(answer);
  return goes_on;
}

/// Binds CONFIG, --set, --print-config and --print-schema to `options`.
inline void add_config_options(CLI::App& app, config::Options& options) {
  app.add_option("CONFIG", options.config, "configuration file (JSON; comments and trailing commas allowed)");
  app.add_option("--set", options.assignments, "override a key, as in --set batch.pool=5000; repeat as needed")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--print-config", [&options](const std::string& part) { options.print_config = part; },
         "print the effective configuration, or the part at a key or JSON pointer, and end")
      ->type_name("[KEY]")
      ->expected(0, 1);
  app.add_flag("--raw", options.raw, "with --print-config of a text: its characters, without quotes and escapes")
      ->needs("--print-config");
  app.add_flag("--print-schema", options.print_schema, "print the JSON Schema of the configuration and end");
}

/// **Collective.** The configuration as file, --set and defaults make it: rank 0 reads the file, all ranks check it.
/// nullopt when --print-config or --print-schema has been answered: the tool is done. Throws Error{usage, config}.
template <class T>
[[nodiscard]] std::optional<T> load_config(const config::Options& options, const comm::Context& context) {
  std::string text = "{}";
  std::string name = "the defaults";
  if (!options.config.empty()) {
    name = options.config.string();
    comm::agree(context.world, [&] {
      if (context.is_root()) text = config::read_source(context.files, options.config);
    });
    text = context.world.broadcast(std::move(text));
  } else if (!options.print_schema && !options.print_config) {
    throw Error{Fault::usage, {.wanted = "a CONFIG file", .got = "none", .remedy = "configs/ holds examples"}};
  }
  const auto answer = [&](const std::optional<std::string>& requested) {
    if (requested) context.print(*requested + "\n");
    return requested.has_value();
  };
  if (options.print_schema && answer(config::requested_text(options, T{}))) return std::nullopt;
  T value = config::from_document<T>(config::Document::parse(text, name), options);
  if (answer(config::requested_text(options, value))) return std::nullopt;
  return value;
}

}  // namespace argosy::app
