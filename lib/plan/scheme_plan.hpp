#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/data_config.hpp"
#include "partition/flat_space.hpp"
#include "plan/placement.hpp"
#include "plan/run_config.hpp"
#include "plan/time_model.hpp"
#include "plan/traffic_model.hpp"

/// What one configuration needs on one layout, by sharding scheme: memory, traffic, seconds of a step. Traffic and
/// seconds come from the step plan that training would execute, replayed on a virtual clock. Pure.
namespace argosy::plan {

/// Positions per sentence, on each side, with which translation is planned, since the data are not read.
inline constexpr std::int64_t assumed_sentence = 32;

struct PlanTarget {
  partition::Layout layout;
  const Gpu* gpu = nullptr;                     // absent: fit and time are unknown
  std::optional<double> node_bytes_per_s{};     // out of a node; absent: as many NICs as GPUs
  std::optional<double> gpu_positions_per_s{};  // measured on a single GPU, update included; absent: estimated
  Placement placement{};                        // of the tasks on the ranks of `layout` (placed())
  std::vector<double> route_shares{};           // of the micro-batches of a step, by route; with a placement
  std::optional<std::int64_t> rank_bytes{};     // memory of a rank; absent: the GPU's
};

struct SchemePlan {
  std::string name{};  // stage_1, …, ddp
  StateMemory state{};
  std::int64_t total_bytes = 0;  // most at one time on the fullest rank; activations are an estimate
  std::optional<bool> fits{};    // with a GPU
  StepTraffic traffic{};
  std::optional<double> step_s{}, exposed_s{};  // with a GPU, estimates; exposed: beyond the time of computing alone
};

/// What a rank of a placed run has.
struct RankPlan {
  std::vector<std::string> tasks{};
  std::int64_t state_bytes = 0, sent_inner_bytes = 0, sent_outer_bytes = 0;
  double idle_share = 0;  // of its slots: those without a micro-batch
  bool operator==(const RankPlan&) const = default;
};
BOOST_DESCRIBE_STRUCT(RankPlan, (), (tasks, state_bytes, sent_inner_bytes, sent_outer_bytes, idle_share))

/// A micro-batch of a rank under `config`.
[[nodiscard]] MicroBatch micro_batch_of(const RunConfig& config, std::int64_t micro_size);
/// gpu: nullptr for CPUs, and for a GPU that is not in the table.
[[nodiscard]] ActivationMemory activations_of(const RunConfig& config, const spec::ModelSpec& spec,
                                              const MicroBatch& batch, const Gpu* gpu = nullptr);

/// Plans one configuration on one layout. Keeps references to `config` and `spec`.
class SchemePlanner {
 public:
  /// Throws Error{config} if the sizes of a step contradict each other.
  SchemePlanner(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target);

  /// The rank whose state is most, in a checkpoint, and what it holds.
  [[nodiscard]] int fullest_rank() const { return unlike_[fullest_].rank; }
  [[nodiscard]] const SpaceSizes& spaces() const { return unlike_[fullest_].sizes; }
  [[nodiscard]] const data::StepSizes& sizes() const noexcept { return sizes_; }
  [[nodiscard]] const MicroBatch& micro_batch() const noexcept { return batch_; }
  [[nodiscard]] const ActivationMemory& activations() const noexcept { return activations_; }

  /// Plans memory alone.
  [[nodiscard]] SchemePlan memory(Scheme scheme) const;
  /// Plans everything. There is no plan for hybrid with elastic sums, which have no levels.
  [[nodiscard]] SchemePlan plan(Scheme scheme) const;
  [[nodiscard]] SchemePlan plan(Comparison other) const;
  /// By canonical rank; empty where all ranks have all tasks.
  [[nodiscard]] std::vector<RankPlan> ranks(Scheme scheme) const;
  /// Bytes of the state of each rank.
  [[nodiscard]] std::vector<std::int64_t> state_bytes(Scheme scheme) const;

 private:
  /// Of the step plan of a rank.
  [[nodiscard]] PlanChoices choices_of(Scheme scheme, int canonical_rank) const;
  /// What each rank of a placed run sends in a step.
  [[nodiscard]] std::vector<comm::Traffic::Bytes> sent_by_rank(Scheme scheme, std::optional<Comparison> other) const;
  [[nodiscard]] SchemePlan with_memory(std::string name, const StateMemory& state) const;
  void forecast(SchemePlan& plan, Scheme scheme, std::optional<Comparison> other) const;

  const RunConfig& config_;
  const spec::ModelSpec& spec_;
  PlanTarget target_;
  data::StepSizes sizes_;
  struct Holder {
    int rank;
    SpaceSizes sizes;
  };
  std::vector<double> idle_shares_;  // by rank of a placed run
  std::vector<Holder> unlike_;       // of the ranks that own as much of each component: the one that keeps most
  std::vector<std::size_t> alike_;   // by rank: which of these
  std::vector<std::int64_t> kept_;   // by rank: kept_bytes()
  std::size_t fullest_ = 0;          // of unlike_
  MicroBatch batch_;
  PlanShape units_;
  std::vector<partition::FlatSpace> spaces_;
  ActivationMemory activations_;
  StateChoices state_;
  CostInputs costs_;
};

}  // namespace argosy::plan
