#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "comm/run_main.hpp"
#include "config/config.hpp"
#include "core/version.hpp"

/// What the mains share: the command line, --version, and the options of every tool with a configuration. All ranks
/// parse the same words and come to the same result; rank 0 prints for all.
namespace argosy::app {

/// "argosy 0.1.0 (revision)" and a line for each library.
[[nodiscard]] inline std::string version_text() {
  std::string text = fmt::format("argosy {} ({})", version(), revision());
  for (const Component& component : built_with()) text += fmt::format("\n{:<9}{}", component.name, component.version);
  return text;
}

namespace detail {

inline constexpr std::string_view exit_codes =
    "Exit codes: 0 done; 2 usage or configuration; 3 data; 4 file or checkpoint; 5 communication or device; 6 NaN or\n"
    "divergence; 70 internal error, or three starts without progress; 75 stopped after saving, rerun to continue\n";

inline Error usage_error(const CLI::App& app, const std::string& tool, const std::string& why) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::string got = why, remedy = fmt::format("see `{} --help`", tool);
  if (const std::vector<std::string> words = app.remaining(); !words.empty()) {
    got = fmt::format("{} {}", words[0].starts_with('-') ? "unknown option" : "unexpected argument", words[0]);
    if (const auto hint = config::nearest(words[0].substr(0, words[0].find('=')), known))
      remedy = fmt::format("did you mean {}?", *hint);
  }
  return Error{Fault::usage, {.sentence = fmt::format("{}: {}; {}", tool, got, remedy), .got = got, .remedy = remedy}};
}

}  // namespace detail

/// Parses the command line into the variables bound to `app`. `examples`: command lines with a few words on each, shown
/// by --help. Returns false if --help or --version was given: `answer` is then what to print. Throws Error{usage}.
[[nodiscard]] inline bool parse(CLI::App& app, int argc, const char* const* argv, std::string_view examples,
                                std::string& answer) {
  const std::string tool = argc > 0 ? Path(argv[0]).filename().string() : "argosy";
  app.name(tool);
  app.footer(fmt::format("Examples:\n{}\n{}", examples, detail::exit_codes));
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
    throw detail::usage_error(app, tool, error.what());
  }
}

/// The same under run_main: rank 0 prints the answer. False: the tool is done.
[[nodiscard]] inline bool parse(CLI::App& app, int argc, const char* const* argv, std::string_view examples,
                                const comm::Context& context) {
  std::string answer;
  const bool continues = parse(app, argc, argv, examples, answer);
  if (!continues) context.print(answer);
  return continues;
}

/// Binds CONFIG, --set, --print-config and --print-schema to `options`.
inline void add_config_options(CLI::App& app, config::Options& options) {
  app.add_option("CONFIG", options.config, "configuration file (JSON; comments and trailing commas allowed)");
  app.add_option("--set", options.assignments, "set a key, as in --set batch.pool=5000; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--print-config", [&options](const std::string& part) { options.print_config = part; },
         "print the effective configuration, or the part at a key, and exit")
      ->type_name("[KEY]")
      ->expected(0, 1);
  app.add_flag("--raw", options.raw, "with --print-config KEY: print the string at KEY without quotes and escapes")
      ->needs("--print-config");
  app.add_flag("--print-schema", options.print_schema, "print the JSON Schema of the configuration and exit");
}

/// **Collective.** The configuration from defaults, file and --set: rank 0 reads the file, all ranks check it. nullopt
/// if --print-config or --print-schema was given and has been printed: the tool is done. Throws Error{usage, config}.
template <class T>
[[nodiscard]] std::optional<T> load_config(const config::Options& options, const comm::Context& context) {
  std::string text = "{}";
  std::string name = "the defaults";
  if (!options.config.empty()) {
    name = options.config.string();
    comm::at_root(context.world, [&] { text = config::read_source(context.files, options.config); });
    text = context.world.broadcast(std::move(text));
  } else if (!options.print_schema && !options.print_config) {
    throw Error{Fault::usage, {.sentence = "CONFIG is missing: give a configuration file; see configs/ for examples"}};
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
