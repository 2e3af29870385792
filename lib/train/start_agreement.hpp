#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "comm/comm.hpp"
#include "core/hash.hpp"
#include "plan/run_config.hpp"

/// Checks that all ranks of a run have the same build, configuration and data, before any of them allocates memory.
/// Ranks compare digests; they exchange texts only if the digests differ. An error is the same sentence on all ranks.
/// It names rank 0, the lowest rank that differs from it, and the value of each. Torch-free.
namespace argosy::train {

/// Release and revision of this build.
[[nodiscard]] std::string code_version();

/// Requires the same build and the same effective configuration on all ranks. `command_line` holds the other options
/// that decide what a rank does.
/// **Collective** over `world`. Throws Error{config}.
void require_same_start(const comm::Communicator& world, const plan::RunConfig& config,
                        const boost::json::object& command_line, const std::string& code = code_version());

/// Returns `digest`, which every rank has computed from its own files, if it is the same on all ranks. For the error,
/// `what` says what the files are, and `key` which key of the configuration names them. **Collective** over `world`.
/// Throws Error{data}.
[[nodiscard]] Digest same_on_all_ranks(const comm::Communicator& world, const Digest& digest, std::string_view what,
                                       std::string_view key);

}  // namespace argosy::train
