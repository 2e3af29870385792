#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.hpp"

/// A step of a save that may fail on any rank without ending the run: all ranks learn whether it went well everywhere.
namespace argosy::checkpoint {

struct Ballot {
  std::optional<std::string> why_not;  // first failing rank and its error; the same on all ranks
  std::vector<std::string> results;    // on rank 0, where they were asked for and nobody failed: by world rank
};

enum class Results { dropped, gathered };

/// Runs `body`, which may take as long as it likes, and shares whether it went well; rank 0 gets what it returns
/// everywhere, if that is wanted. Errors of kind io, corrupt and data become `why_not`; any other is thrown on every
/// rank. **Collective.** Throws Error{comm}.
[[nodiscard]] Ballot vote(const comm::Communicator& world, Results wanted, const std::function<std::string()>& body);

}  // namespace argosy::checkpoint
