#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "train/run_plan.hpp"

/// A plan for people and for programs. Pure.
namespace argosy::train {

/// The plan as lines.
[[nodiscard]] std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config,
                                                const model::ModelShape& shape);
/// Every figure, bytes and seconds; what is not known is null.
[[nodiscard]] boost::json::object json_of(const RunPlan& plan);

}  // namespace argosy::train
