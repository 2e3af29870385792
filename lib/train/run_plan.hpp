#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "data/data_config.hpp"
#include "model/model_config.hpp"
#include "partition/layout.hpp"
#include "train/run_config.hpp"

/// What a run will need, from shapes alone: parameters, memory, steps, learning rates, disk. Pure and torch-free;
/// printed by `train --dry-run` and at the start of every run.
namespace argosy::train {

struct RunPlan {
  std::int64_t parameters = 0;                                               // tied once
  std::int64_t padded_parameters = 0;                                        // with the gaps of the flat spaces
  std::int64_t weights_bytes = 0, gradients_bytes = 0, optimizer_bytes = 0;  // of the fullest rank
  std::int64_t checkpoint_bytes = 0;                                         // of all shards
  double activation_bytes_per_position = 0;  // kept over a micro-batch, a target position (matrix inputs, no logits)
  data::StepSizes sizes;
  std::vector<std::pair<double, double>> learning_rates;  // position, lr: 1, warm-up, half, decay_end
};

[[nodiscard]] RunPlan plan_run(const RunConfig& config, const model::ModelShape& shape,
                               const partition::Layout& layout);

/// The plan as lines for people.
[[nodiscard]] std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config,
                                                const model::ModelShape& shape, int world);
[[nodiscard]] boost::json::object json_of(const RunPlan& plan);

}  // namespace argosy::train
