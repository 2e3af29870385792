#pragma once

#include <string>

#include "plan/scheme_plan.hpp"

/// What to change if a configuration does not fit a GPU. Pure.
namespace argosy::plan {

inline constexpr int most_nodes = 1024;  // that are tried
/// `nodes` nodes of the size of the largest one in `layout`.
[[nodiscard]] partition::Layout nodes_like(const partition::Layout& layout, int nodes);
[[nodiscard]] RunConfig with_sizes(RunConfig config, std::int64_t global_size, std::int64_t micro_size);
/// The option that selects `scheme`, which is not stage_1.
[[nodiscard]] std::string setting_of(Scheme scheme);

/// The single change that makes the run fit at the least cost in time; else the smallest number of nodes; else several
/// changes. Written as a user would type it. sizes: of a step, which the change keeps.
[[nodiscard]] std::string cheapest_cure(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target,
                                        const data::StepSizes& sizes);

}  // namespace argosy::plan
