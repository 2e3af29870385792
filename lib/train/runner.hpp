#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "comm/collectives.hpp"
#include "core/clock.hpp"
#include "data/loader.hpp"
#include "model/model.hpp"
#include "optim/clip.hpp"
#include "plan/step_plan.hpp"
#include "telemetry/flops.hpp"
#include "telemetry/sink.hpp"
#include "train/buffers.hpp"

/// Executes step plans. In the forward pass it calls the visits of a model in order and keeps the input of each. In the
/// backward pass it runs autograd on one visit at a time, and adds up the gradient of the encoder's output over the
/// decoder's blocks. Gathers and reductions run at the same time; an operation waits for those that the plan names.
/// Borrows everything. Call from one thread.
namespace argosy::train {

/// A micro-batch as the model takes it: views of the batch's memory on the CPU, copies on a GPU.
[[nodiscard]] model::Inputs inputs_of(const data::Batch& batch, c10::Device device);

struct StepOptions {
  std::int64_t step = 1;                 // of the run, from 1
  std::vector<std::int64_t> updates{1};  // optimizer updates, this one included, by component
  double lr = 0;
  std::uint64_t seed = 1;
  /// Divides the gradient of a component by the tokens of the routes that pass it, not by all tokens of the step.
  bool normalise_by_component = false;
  model::LossOptions loss;
  /// block: a visit keeps only its input and runs again before its backward pass. The other levels: what a block keeps.
  plan::Recompute recompute = plan::Recompute::none;
  bool wants_to_stop = false;  // this rank has been asked to
  /// Called after gradients are summed, and before weights and state change.
  std::function<void()> before_update{};
};

/// Seconds that this rank has spent in each phase.
struct StepTimes {
  double compute_s = 0, reduce_s = 0, norm_s = 0, update_s = 0, gather_s = 0;
  StepTimes& operator+=(const StepTimes& other);
};

/// The same on all ranks, except for the times.
struct StepResult {
  double nll_sum = 0, loss_sum = 0;  // unsmoothed over tgt_tokens; as optimized, without truncated tokens
  double truncated_tokens = 0;       // that loss.error_norm_truncation removed
  double grad_norm = 0;
  std::vector<double> component_norms{};         // grad_norm is that of them
  std::vector<double> kept_tokens{};             // by route: tgt_tokens that are not truncated
  std::vector<telemetry::CorpusSums> corpora{};  // where there are several
  bool clipped = false, skipped = false;
  bool stop = false;  // some rank has been asked to
  telemetry::Work work;
  StepTimes times;
};

class Runner {
 public:
  /// groups: by component, the ranks that share it; the first has all ranks, and one in which this rank has no part is
  /// absent.
  Runner(model::Model& model, Buffers& buffers, std::vector<std::optional<comm::Group>> groups,
         const optim::Optimizer& optimizer, double max_grad_norm, optim::SkipGuard& guard, const Clock& clock,
         c10::Device device);

  /// Runs one step. Its gradient is that of the sum of all ranks' losses, divided by batches.totals.tgt_tokens less the
  /// truncated tokens; see also StepOptions::normalise_by_component. A step that the guard skips, or that keeps no
  /// token, leaves weights and state unchanged. A plan that reduces every micro-batch with elastic collectives gives
  /// the same bits of weights for any number of ranks that divides the number of micro-batches.
  /// **Collective.** Throws Error{numeric} from the guard, Error{comm}.
  StepResult run(const plan::StepPlan& plan, const data::StepBatches& batches, const StepOptions& options);

  /// Σ nll of a batch, which may be empty, by a plan of the forward pass. Afterwards, units with their own buffers hold
  /// the weights of all ranks. **Collective.** Throws Error{comm}.
  double evaluate(const plan::StepPlan& plan, const data::Batch& batch, const model::LossOptions& loss);

  /// Calls `use` while the model is bound to the weights of all ranks, also of units that rotate: these have memory of
  /// their own until it returns or throws. plan: of the forward pass. `use` must fail on all ranks or on none.
  /// **Collective.** Throws Error{comm} and what `use` throws.
  void with_whole_model(const plan::StepPlan& plan, const std::function<void()>& use);

 private:
  struct MicroBatch;  // a micro-batch in flight
  struct Step;
  void execute(const plan::StepPlan& plan, Step& step);
  void begin(MicroBatch& micro, const data::Batch& batch, int slot, const Step& step) const;
  void forward(MicroBatch& micro, int visit);
  void backward(MicroBatch& micro, int visit);
  [[nodiscard]] comm::Event computed() const;
  void complete_frozen();
  [[nodiscard]] comm::Event gather(const plan::Op& op);
  [[nodiscard]] comm::Event reduce(const plan::Op& op, bool has_examples);
  [[nodiscard]] optim::Update update_of(const plan::Op& op, const StepOptions& options) const;
  [[nodiscard]] comm::Event to_owners(const plan::Op& op, const StepOptions& options);
  [[nodiscard]] comm::Event to_shards(const plan::Op& op);
  void set_all_squares(const std::set<std::size_t>& reduced, std::vector<double>& squares);
  void decide(const plan::StepPlan& plan, Step& step);

  model::Model& model_;
  Buffers& buffers_;
  [[nodiscard]] const comm::Group& all() const { return *groups_.front(); }
  const std::vector<std::optional<comm::Group>> groups_;
  const optim::Optimizer& optimizer_;
  const double max_grad_norm_;
  optim::SkipGuard& guard_;
  const Clock& clock_;
  const c10::Device device_;
  std::vector<at::Tensor> coefficients_;  // by component: [1] fp32
  std::vector<std::set<std::size_t>> components_of_routes_;
};

}  // namespace argosy::train
