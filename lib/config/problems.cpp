#include <fmt/format.h>

#include "config/config.hpp"

namespace argosy::config {

void Problems::add(std::string_view pointer, std::string_view wanted, std::string_view got, std::string_view remedy) {
  std::string whole = prefix_;
  if (!pointer.empty() && pointer.front() != '/') whole += '/';
  whole += pointer;
  if (!known_.insert(fmt::format("{}\n{}\n{}", whole, wanted, got)).second) return;
  problems_.push_back({std::move(whole), std::string(wanted), std::string(got), std::string(remedy)});
}

Problems::Scope::Scope(Problems& problems, std::string_view key)
    : problems_(problems), size_before_(problems.prefix_.size()) {
  if (key.empty() || key.front() != '/') problems.prefix_ += '/';
  problems.prefix_ += key;
}

Problems::Scope::~Scope() { problems_.prefix_.resize(size_before_); }

}  // namespace argosy::config
