#pragma once

#include <boost/describe.hpp>
#include <string>
#include <vector>

#include "data/shard_index.hpp"
#include "plan/placement.hpp"
#include "plan/run_config.hpp"
#include "plan/scheme_plan.hpp"

/// Places the tasks of a run on its ranks, by what a step costs. Pure.
namespace argosy::plan {

/// By route, its share of the micro-batches of a step. shards: their counts decide together with weights and
/// temperature; without them, weights alone.
[[nodiscard]] std::vector<double> shares_of_routes(const RunConfig& config, const spec::ModelSpec& spec,
                                                   const data::ShardIndex* shards);

/// What a step costs. Without a GPU, computing and links have the rates of an ordinary node with CPUs: only their
/// proportion counts.
[[nodiscard]] PlacementCosts placement_costs(const RunConfig& config, const spec::ModelSpec& spec,
                                             const PlanTarget& target, const std::vector<double>& shares);

/// The target with what config.placement says for its ranks. Throws Error{config} if that does not fit them, or if a
/// rank would share components with too many sets of ranks.
[[nodiscard]] PlanTarget placed(PlanTarget target, const RunConfig& config, const spec::ModelSpec& spec,
                                const data::ShardIndex* shards);

/// A placement next to the one that was chosen.
struct OtherPlacement {
  std::string name{};
  double step_ratio = 1, bytes_ratio = 1;  // of the time of a step, and of the memory of the fullest rank; rough
  double idle_share = 0;
};
BOOST_DESCRIBE_STRUCT(OtherPlacement, (), (name, step_ratio, bytes_ratio, idle_share))
/// Everywhere and round robin. target: placed.
[[nodiscard]] std::vector<OtherPlacement> other_placements(const RunConfig& config, const spec::ModelSpec& spec,
                                                           const PlanTarget& target, int micro_batches);

}  // namespace argosy::plan
