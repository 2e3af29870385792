#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/mp11/algorithm.hpp>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

/// Options that several tools have, and those whose values are enumerators.
namespace argosy::app {

/// Takes an enumerator by its name.
template <class E>
void take_names(CLI::Option* option) {
  std::map<std::string, E> names;
  std::vector<std::string> spelled;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<E>>([&](auto e) {
    names.emplace(e.name, e.value);
    spelled.emplace_back(e.name);
  });
  const auto to_number = [names, spelled](std::string& text) {
    const auto found = names.find(text);
    if (found == names.end()) return fmt::format("got {}, which is not one of {}", text, fmt::join(spelled, ", "));
    text = std::to_string(static_cast<std::underlying_type_t<E>>(found->second));
    return std::string{};
  };
  option->transform(CLI::Validator(to_number, ""))->type_name("NAME");
}

/// prefixes: of the source, what this tool does about them.
inline void add_task_option(CLI::App& cli, std::string& task, const std::string& prefixes) {
  cli.add_option("--task", task,
                 "of a model whose tasks have parts of their own (model.encoder.stacks, model.decoder.stacks): which "
                 "task, such as en-fr; also a pair of its languages for which it was not trained, if each stack has "
                 "the component of this pair (encoder.en, decoder.fr). " +
                     prefixes);
}

}  // namespace argosy::app
