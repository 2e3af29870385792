#pragma once

#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "comm/collectives.hpp"
#include "comm/run_main.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer_files.hpp"
#include "model/model.hpp"
#include "optim/schedule.hpp"
#include "plan/run_plan.hpp"
#include "plan/step_plan.hpp"
#include "train/buffers.hpp"
#include "train/evaluate.hpp"
#include "train/host_state.hpp"
#include "train/run_state.hpp"
#include "train/stop_policy.hpp"

/// The parts of a training run. They are made in stages, because each stage needs the earlier ones, and all ranks must
/// enter a stage together: device and run directory; tokenizer, token shards and validation sets, which must be the
/// same on all ranks; the plan, which this machine must be able to run; model, buffers, host memory and collectives.
namespace argosy::train {

/// What a run began with where the configuration says auto; absent: it begins now, or chooses again.
struct Kept {
  std::optional<std::int64_t> micro_size, adapter_rank;
  std::optional<bool> train_embeddings;
  std::map<std::string, std::vector<int>> placement{};  // on as many ranks; empty: none
};
/// Of a checkpoint. keeps_size: of micro-batches. Another size would change the order of the data, another rank the
/// adapters, another placement the order of sums.
[[nodiscard]] Kept kept_of(const checkpoint::Reader& reader, const plan::RunConfig& config, bool keeps_size, int world);

struct RunParts {
  /// Not collective.
  RunParts(comm::Context& of_context, const plan::RunConfig& of_config);
  /// The first stage. **Collective.** Throws Error{usage} if another job owns run_dir, Error{device}, Error{io}.
  void open();
  /// The others. Puts a number in place of `lora.rank: auto`. **Collective.** Throws Error{config}, Error{data},
  /// Error{io}.
  void set_up(const Kept& kept);
  /// The last stage, for a vocabulary of `vocab_live` pieces. Needs the device alone. **Collective.**
  void make_model(std::int64_t vocab_live);
  /// Whether this rank computes a route.
  [[nodiscard]] bool computes(std::size_t route) const;
  /// By component of the model, the ranks that have it; absent where this rank does not.
  [[nodiscard]] std::vector<std::optional<comm::Group>> groups() const;
  /// Says how the memory of the steps up to `step` compares with the plan, on the fullest rank, and returns the
  /// figures; state_off_plan_bytes is that of the rank whose state differs most from its own plan. **Collective.**
  [[nodiscard]] boost::json::object compare_memory(std::int64_t step) const;

  comm::Context& context;
  plan::RunConfig config;
  const optim::Schedule schedule;
  plan::PlanChoices choices;
  const model::LossOptions loss;

  // Made in this order.
  std::optional<StopPolicy> stop;
  c10::Device device = c10::kCPU;
  std::optional<checkpoint::Store> store;
  std::optional<data::Tokenizer> tokenizer;
  std::optional<data::TokenShards> shards;
  std::vector<EvaluationSet> sets;
  RunFacts facts;
  std::optional<plan::RunPlan> plan;
  plan::Placement placement;
  std::optional<model::Model> model;
  std::optional<Buffers> buffers;
  std::optional<HostState> host;
  std::int64_t other_bytes = 0, state_bytes = 0;  // of tensors: made before the buffers; the buffers
  std::unique_ptr<comm::Collectives> collectives;
  /// Some of the ranks, this one among them, that share components.
  struct Part {
    comm::Topology topology;
    std::unique_ptr<comm::Collectives> collectives;
  };
  std::map<std::vector<int>, Part> parts;  // by their canonical ranks
  /// Those that compute a route, where not all do and validations translate.
  std::map<std::vector<int>, comm::Communicator> translators;
};

/// Calls `read` on every rank and returns its value. If it throws on one rank, every rank throws that error, so that no
/// rank waits for another. **Collective.**
template <class F>
auto read_on_all(const comm::Context& context, F&& read) {
  std::optional<decltype(read())> value;
  comm::agree(context.world, [&] { value.emplace(read()); });
  return std::move(*value);
}

/// The memory of the rank that has least. Absent: that of a rank is unknown. **Collective.** Throws Error{usage}.
[[nodiscard]] std::optional<std::int64_t> least_memory(const comm::Context& context, c10::Device device);

/// How ranks add up gradients, from sharding.reduction and precision.gradient_wire.
[[nodiscard]] comm::CollectivesOptions collectives_options(const plan::RunConfig& config);

}  // namespace argosy::train
