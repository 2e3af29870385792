#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/data_plan.hpp"
#include "plan/placement_plan.hpp"
#include "plan/scheme_plan.hpp"
#include "spec/model_spec.hpp"

/// What a run will need, from shapes alone: parameters, FLOPs, memory and traffic of every sharding scheme, whether it
/// fits, predicted time, steps, learning rates, disk. Pure and torch-free. `train --dry-run` and the start of every run
/// print it (plan_lines.hpp).
namespace argosy::plan {

/// Spreads `ranks` over `nodes` as evenly as possible, larger nodes first; absent: nodes of up to 8 ranks.
/// Throws Error{usage} if there are more nodes than ranks.
[[nodiscard]] partition::Layout spread(int ranks, std::optional<int> nodes);

/// The configured scheme on another number of nodes of the same size.
struct LayoutPlan {
  int nodes = 1, ranks = 1, accumulation = 1;
  double idle_share = 0;
  std::int64_t total_bytes = 0;
  bool fits = true;
  double step_s = 0;
};
BOOST_DESCRIBE_STRUCT(LayoutPlan, (), (nodes, ranks, accumulation, idle_share, total_bytes, fits, step_s))

/// A model of other sizes in the same run.
struct PresetPlan {
  std::string preset{};
  std::int64_t parameters = 0, total_bytes = 0;
};
BOOST_DESCRIBE_STRUCT(PresetPlan, (), (preset, parameters, total_bytes))

struct RunPlan {
  PlanTarget target;
  SpaceSizes spaces{};
  data::StepSizes sizes{};
  const char* position_name = "tgt_tokens";  // of a language model; else padded_tokens, both sides
  double positions_per_step = 0;
  spec::TrainedCount parameters{};
  std::string components{};                           // components_line()
  std::vector<std::string> tasks{};                   // task_lines(), of tasks that are placed
  std::vector<OtherPlacement> other_placements{};     // likewise
  std::vector<RankPlan> ranks{};                      // likewise, of the configured scheme
  std::vector<std::int64_t> state_bytes{};            // by rank, of the configured scheme
  std::optional<double> steps{}, positions_in_all{};  // if the length does not depend on the data, or that is known
  std::optional<DataPlan> data{};                     // with token shards
  telemetry::Flops flops{};                           // a position
  double exact_flops = 0;                 // a position, with the attention pairs of a causal row counted exactly
  ActivationMemory activations{};         // of one micro-batch
  Scheme scheme = Scheme::stage_1;        // configured
  std::vector<SchemePlan> schemes{};      // by Scheme; hybrid only if it may be configured
  std::vector<SchemePlan> comparisons{};  // schemes of other programs, if comparable
  std::vector<LayoutPlan> layouts{};      // with a GPU
  std::string cure{};                     // with a GPU, if the configured scheme does not fit: what to change
  std::optional<std::int64_t> largest_micro_size{};  // with a GPU: that fits with the configured state; 0: none
  std::optional<PresetPlan> largest_preset{};  // with a GPU: of those that fit, where the sizes are free to choose
  std::vector<std::string> advice{};           // on positions, sizes and learning rate
  std::string peak_line{};                     // of a schedule whose keys do not say its peak
  std::vector<std::pair<double, double>> learning_rates{};  // position, lr: 1, warm-up, half, decay_end
  std::int64_t adamw_state_bytes = 0;                       // of the fullest rank if it trained with AdamW in fp32
  std::int64_t checkpoint_bytes = 0;                        // of all shards
  std::int64_t copy_bytes = 0;  // host memory of a rank, for the copy of its state that checkpoints are written from
  std::optional<std::int64_t> disk_bytes{};  // checkpoints kept, the one being written, exports; if known
  static constexpr const char* more_gpus = "use more GPUs, or GPUs with more memory";  // cure if no tried change helps

  [[nodiscard]] const SchemePlan& chosen() const { return schemes[static_cast<std::size_t>(scheme)]; }
  /// Positions per second of one GPU, from the seconds of a step.
  [[nodiscard]] double positions_per_s(double step_s) const {
    return positions_per_step / step_s / target.layout.world();
  }
};

/// Throws Error{config} with the cheapest change if the configured scheme does not fit the plan's GPU, if it has one.
void require_fits(const RunPlan& plan);

/// Throws Error{config}, with a change that helps, if state, buffers and scratch space of the configured scheme need
/// more than `capacity_bytes` per rank; without a GPU, the copy for checkpoints counts as well. Activations do not
/// count, because their formula is for GPUs.
void require_state_fits(const RunPlan& plan, std::int64_t capacity_bytes);

/// target: with the placement of the tasks, or without: then it is made. shards: the index of the token shards, if
/// there are any. Throws Error{config} if the sizes of a step contradict each other, and what plan_data throws.
[[nodiscard]] RunPlan plan_run(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target,
                               const data::ShardIndex* shards = nullptr);

}  // namespace argosy::plan
