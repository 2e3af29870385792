#include "train/progress.hpp"

#include <algorithm>
#include <array>

#include "train/process.hpp"

namespace argosy::train {

telemetry::StepMetrics place_of(const RunState& state, const optim::Schedule& schedule) {
  telemetry::StepMetrics at;
  at.step = state.step;
  at.fraction_done = std::min(1.0, state.position(schedule.unit) / schedule.length);
  at.epoch = state.epoch;
  at.total_tgt_tokens = state.tgt_tokens;
  return at;
}

telemetry::StepMetrics metrics_of(const StepResult& result, const data::StepBatches& batches, const RunState& state,
                                  const optim::Schedule& schedule, double step_s) {
  const auto tgt_tokens = static_cast<double>(std::max<std::int64_t>(1, batches.totals.tgt_tokens));
  telemetry::StepMetrics step = place_of(state, schedule);
  step.loss = result.loss_sum / std::max(1.0, tgt_tokens - result.truncated_tokens);
  step.nll = result.nll_sum / tgt_tokens;
  step.truncated_tokens = result.truncated_tokens;
  step.lr = optim::learning_rate(schedule, state.position(schedule.unit));
  step.grad_norm = result.grad_norm;
  step.clipped = result.clipped;
  step.skipped = result.skipped;
  step.n_clips = state.n_clips;
  step.n_skipped = state.guard.skipped;
  step.src_tokens = batches.totals.src_tokens;
  step.tgt_tokens = batches.totals.tgt_tokens;
  step.padded_tokens = batches.totals.padded_tokens;
  step.work = result.work;
  step.corpora = result.corpora;
  if (result.component_norms.size() > 1) step.component_norms = result.component_norms;
  step.step_s = step_s;
  return step;
}

Progress::Progress(const comm::Context& context, const telemetry::Metrics::Setup& setup, const Path& run_dir)
    : context_(context), config_(setup.config), before_(setup.before), window_(setup.window) {
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    metrics_.emplace(setup, context.files, run_dir, context.log, context.clock);
    status_.emplace(context.files, run_dir, context.log, context.clock, setup.before.step, setup.before.fraction_done);
  });
}

void Progress::add(telemetry::StepMetrics step, const StepTimes& times, double waited_s) {
  ++steps_;
  times_ += times;
  waited_s_ += waited_s;
  window_.add(step);
  if (telemetry::fills_interval(config_, before_, step)) {
    std::array<double, 2> worst{waited_s_, static_cast<double>(peak_memory_bytes())};
    context_.world.all_reduce(std::span<double>{worst}, comm::Reduce::max);
    step.data_wait_s = worst[0];
    step.memory_bytes = static_cast<std::uint64_t>(worst[1]);
    waited_s_ = 0;
    window_ = {};
  }
  before_ = step;
  if (metrics_) metrics_->add(step);
  if (status_) status_->running(step.step, step.fraction_done);
}

void Progress::add_validation(const telemetry::ValidationRecord& record) {
  if (metrics_) metrics_->add_validation(record);
}

void Progress::stopped(std::int64_t step, const std::string& reason) {
  if (status_) status_->stopped(step, reason);
}

void Progress::done(std::int64_t step) {
  if (status_) status_->done(step);
}

void Progress::log_times() const {
  if (steps_ == 0) return;
  const auto ms = [&](double spent_s) { return 1e3 * spent_s / static_cast<double>(steps_); };
  context_.log.info(
      "mean time of a step on this rank, in ms: compute {:.2f}, reduce {:.2f}, norm {:.2f}, update {:.2f}, gather "
      "{:.2f}",
      ms(times_.compute_s), ms(times_.reduce_s), ms(times_.norm_s), ms(times_.update_s), ms(times_.gather_s));
}

}  // namespace argosy::train
