#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/run_plan.hpp"

/// A plan as text for people and as JSON for programs. Pure.
namespace argosy::plan {

/// Which sharding schemes the lines describe.
enum class Schemes { configured, all };
/// The plan as lines. formats: names of the formats that the model can be exported to.
[[nodiscard]] std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config, Schemes which,
                                                const std::vector<std::string>& formats = {});
/// What the user should know before the run starts: idle ranks, too little memory.
[[nodiscard]] std::vector<std::string> warnings_of(const RunPlan& plan);
/// Measured next to planned memory of the fullest rank: state and buffers, and the most that was used in addition.
[[nodiscard]] std::string memory_line(const RunPlan& plan, std::int64_t state_bytes, std::int64_t rest_bytes);
/// All numbers, in bytes and seconds; unknown ones are null.
[[nodiscard]] boost::json::object json_of(const RunPlan& plan);

}  // namespace argosy::plan
