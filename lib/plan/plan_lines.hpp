#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/run_plan.hpp"

/// A plan for people and for programs. Pure.
namespace argosy::plan {

/// The plan as lines. formats: names of those that the model can be exported in.
[[nodiscard]] std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config,
                                                const std::vector<std::string>& formats = {});
/// What the run's owner had better know before it starts: ranks without work, memory that is not there.
[[nodiscard]] std::vector<std::string> warnings_of(const RunPlan& plan);
/// What the fullest rank has held beside what was planned: state and buffers, and the most that came on top.
[[nodiscard]] std::string memory_line(const RunPlan& plan, std::int64_t state_bytes, std::int64_t rest_bytes);
/// Every figure, bytes and seconds; what is not known is null.
[[nodiscard]] boost::json::object json_of(const RunPlan& plan);

}  // namespace argosy::plan
