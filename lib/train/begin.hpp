#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/run_main.hpp"

/// What a job asks for at its start (--from-scratch, --resume DIR) is done once, although the scheduler starts it again
/// and again with the same words. The job has a name for it, the request. Each checkpoint of the run that then begins
/// has it in its history: the commit itself is the record, so that a job that dies at any moment either has such a
/// checkpoint to go on from, or does once more what it was asked for.
namespace argosy::train {

/// Notes in a run's history that it began anew at `step` on this request.
void add_request(boost::json::array& history, std::int64_t step, std::string_view request);
[[nodiscard]] bool names_request(const boost::json::array& history, std::string_view request);

/// Whether a checkpoint of the run directory, as far as its manifest can be read, comes from this request.
/// **Collective.** Throws Error{io}.
[[nodiscard]] bool is_carried_out(const comm::Context& context, const Path& run_dir, const std::string& request);

}  // namespace argosy::train
