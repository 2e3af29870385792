#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/data_config.hpp"
#include "partition/layout.hpp"
#include "plan/run_config.hpp"
#include "plan/time_model.hpp"
#include "plan/traffic_model.hpp"
#include "spec/model_config.hpp"

/// What a run will need, from shapes alone: parameters, FLOPs, memory and traffic of every sharding scheme side by
/// side, whether it fits, predicted time, steps, learning rates, disk. Pure and torch-free; printed (plan_lines.hpp) by
/// `train --dry-run` and at the start of every run.
namespace argosy::plan {

/// A sentence pair's positions on each side are not known without data; translation is planned by rows of these.
inline constexpr std::int64_t kAssumedSentence = 32;

struct PlanTarget {
  partition::Layout layout;
  const Gpu* gpu = nullptr;                     // absent: nothing is said about fitting and time
  std::optional<double> node_bytes_per_s{};     // out of a node; absent: as many NICs as GPUs
  std::optional<double> gpu_positions_per_s{};  // what one GPU computes by itself, update included; absent: predicted
};

/// `ranks` over `nodes`, as evenly as can be, larger nodes first; absent: nodes of up to 8.
/// Throws Error{usage} when there are more nodes than ranks.
[[nodiscard]] partition::Layout spread(int ranks, std::optional<int> nodes);

/// What the schedule does that training executes: units that stay in their buffers are not moved again.
struct Scheduled {
  StepTraffic traffic{};
  std::optional<double> step_s{}, exposed_s{};  // with a GPU; the latter: longer than computing alone
};

struct SchemePlan {
  Scheme scheme = Scheme::stage_1;
  StateMemory state{};
  std::int64_t total_bytes = 0;  // state, scratch and activations of the fullest rank
  std::optional<bool> fits{};
  StepTraffic traffic{};                          // of the formulas: every unit every time
  std::optional<double> step_s{}, flat_step_s{};  // of the formulas
  std::optional<Scheduled> scheduled{};           // where training knows the scheme
};

/// The configured scheme on another number of nodes like the first.
struct LayoutPlan {
  int nodes = 1, ranks = 1, accumulation = 1;
  double idle_share = 0;
  std::int64_t total_bytes = 0;
  bool fits = true;
  double step_s = 0;
};

struct RunPlan {
  PlanTarget target;
  SpaceSizes spaces{};
  data::StepSizes sizes{};
  const char* position_name = "tgt_tokens";  // of a language model; else padded_tokens, both sides
  double positions_per_step = 0;
  std::optional<double> steps{}, positions_in_all{};  // where the length does not depend on the data
  telemetry::Flops flops{};                           // a position
  double exact_flops = 0;                             // a position, attention pairs of a causal row counted one by one
  ActivationMemory activations{};                     // of one micro-batch
  Scheme scheme = Scheme::stage_1;                    // configured
  std::vector<SchemePlan> schemes{};                  // by Scheme
  std::vector<LayoutPlan> layouts{};                  // with a GPU
  std::string cure{};                                 // with a GPU and where the configured scheme does not fit
  std::optional<std::int64_t> largest_micro_size{};   // with a GPU: that fits beside the configured state; 0: none
  std::vector<std::pair<double, double>> learning_rates{};  // position, lr: 1, warm-up, half, decay_end
  std::int64_t checkpoint_bytes = 0;                        // of all shards
  std::int64_t copy_bytes = 0;  // host memory of a rank, for the copy of its state that checkpoints are written from
  std::optional<std::int64_t> disk_bytes{};  // checkpoints kept, the one being written, exports; where these are known

  [[nodiscard]] const SchemePlan& chosen() const { return schemes[static_cast<std::size_t>(scheme)]; }
  /// Of one GPU, from a step's seconds.
  [[nodiscard]] double positions_per_s(double step_s) const {
    return positions_per_step / step_s / target.layout.world();
  }
};

/// Throws Error{config} with the shortest cure when the configured scheme does not fit the plan's GPU, if it has one.
void require_fits(const RunPlan& plan);

/// Throws Error{config}, saying what is wanted and what would help, when state, buffers and scratch of the configured
/// scheme alone, and where there is no GPU the copy for checkpoints, are more than `capacity_bytes` of a rank.
/// Activations do not count: their formula is a GPU's.
void require_state_fits(const RunPlan& plan, std::int64_t capacity_bytes);

/// Throws Error{config} where the sizes of a step contradict each other.
[[nodiscard]] RunPlan plan_run(const RunConfig& config, const spec::Architecture& shape, const PlanTarget& target);

}  // namespace argosy::plan
