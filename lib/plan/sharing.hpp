#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "plan/run_config.hpp"
#include "spec/model_spec.hpp"

/// Models with stacks that only some of the tasks share: a task is a corpus.
namespace argosy::plan {

/// What such a model asks of the other sections: a pair of languages for each corpus, a group for each language where
/// stacks are shared by groups, and no keys that it does not go with.
void validate_sharing(const RunConfig& config, config::Problems& problems);

/// The tasks and groups of such a model; of a plain one, nothing.
[[nodiscard]] spec::Sharing sharing_of(const RunConfig& config);

/// By component.
[[nodiscard]] std::vector<std::string> names_of_components(const spec::ModelSpec& spec);

/// By corpus, the route of its pairs; empty: there is one route.
[[nodiscard]] std::vector<std::uint32_t> routes_of(const RunConfig& config, const spec::ModelSpec& spec);

/// Components with their parameters and the tasks that have them, and the components of each task: what
/// train --print-tasks prints. Each with its ranks, where `placement` is not everywhere.
[[nodiscard]] std::vector<std::string> task_lines(const spec::ModelSpec& spec, const Placement& placement = {});
/// The components in one line; empty: there is one.
[[nodiscard]] std::string components_line(const spec::ModelSpec& spec, const Placement& placement = {}, int world = 1);
/// The components that exactly these ranks have: "encoder.fr", "encoder.fr and 2 more".
[[nodiscard]] std::string name_of_group(const spec::ModelSpec& spec, const Placement& placement,
                                        const std::vector<int>& members);
/// As the key `placement` is written: the ranks of each task; empty: everywhere.
[[nodiscard]] std::string text_of(const Placement& placement, const spec::ModelSpec& spec);
/// "0-3, 7".
[[nodiscard]] std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace argosy::plan
