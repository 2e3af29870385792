// A program outside the tree: links the installed library and fails the way it fails.
#include <cstdio>

#include "core/error.hpp"
#include "core/version.hpp"

int main() {
  try {
    throw argosy::Error{argosy::Fault::data, {.wanted = "a consumer"}};
  } catch (const argosy::Error& error) {
    std::printf("%.*s %s\n", static_cast<int>(argosy::version().size()), argosy::version().data(), error.what());
    return static_cast<int>(argosy::exit_code(error.fault()));
  }
}
