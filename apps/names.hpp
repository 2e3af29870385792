#pragma once

#include <CLI/CLI.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/mp11/algorithm.hpp>
#include <map>
#include <string>

/// Options whose values are enumerators.
namespace argosy::app {

/// Takes an enumerator by its name. Without the description CLI11 would print its number in --help.
template <class E>
void take_names(CLI::Option* option) {
  std::map<std::string, E> names;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<E>>([&](auto e) { names.emplace(e.name, e.value); });
  option->transform(CLI::Transformer(names).description(""))->type_name("NAME");
}

}  // namespace argosy::app
