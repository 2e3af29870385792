#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "comm/comm.hpp"
#include "core/hash.hpp"
#include "plan/run_config.hpp"

/// What all ranks of a run must have in common before any of them allocates: code, configuration, data. Ranks are
/// compared by digests; only where these differ do texts travel. Refusals are one sentence, the same on all ranks, that
/// names rank 0, the lowest rank that differs from it, and what each of them has. Torch-free.
namespace argosy::train {

/// This build, as ranks compare it: release and revision.
[[nodiscard]] std::string code_version();

/// Ranks of one build and one effective configuration; `command_line`: what else decides what a rank does, by option.
/// **Collective** over `world`. Throws Error{config}.
void require_same_start(const comm::Communicator& world, const plan::RunConfig& config,
                        const boost::json::object& command_line, const std::string& code = code_version());

/// `digest`, which every rank has computed from its own files; `what` and `key` say of what and where they stand.
/// **Collective** over `world`. Throws Error{data}.
[[nodiscard]] Digest same_on_all_ranks(const comm::Communicator& world, const Digest& digest, std::string_view what,
                                       std::string_view key);

}  // namespace argosy::train
