#include <algorithm>

#include "config/config.hpp"

namespace argosy::config {

void Problems::add(std::string_view pointer, std::string_view wanted, std::string_view got, std::string_view remedy) {
  std::string whole = prefix_;
  if (!pointer.empty() && pointer.front() != '/') whole += '/';
  whole += pointer;
  const bool known = std::any_of(problems_.begin(), problems_.end(), [&](const Problem& p) {
    return p.pointer == whole && p.wanted == wanted && p.got == got;
  });
  if (!known) problems_.push_back({std::move(whole), std::string(wanted), std::string(got), std::string(remedy)});
}

Problems::Scope::Scope(Problems& problems, std::string_view key)
    : problems_(problems), size_before_(problems.prefix_.size()) {
  if (key.empty() || key.front() != '/') problems.prefix_ += '/';
  problems.prefix_ += key;
}

Problems::Scope::~Scope() { problems_.prefix_.resize(size_before_); }

}  // namespace argosy::config
