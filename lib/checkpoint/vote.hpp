#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.hpp"

/// A step of a save that may fail on any rank without ending the run: all ranks learn whether it went well everywhere.
namespace argosy::checkpoint {

struct Ballot {
  std::optional<std::string> why_not;  // first failing rank and its error
  std::vector<std::string> results;    // by world rank; empty where a rank failed
};

/// Runs `body`, which may take as long as it likes, and shares what it returns. Errors of kind io, corrupt and data
/// become `why_not`; any other is thrown on every rank. **Collective.** Throws Error{comm}.
[[nodiscard]] Ballot vote(const comm::Communicator& world, const std::function<std::string()>& body);

}  // namespace argosy::checkpoint
