#include "train/trainer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <boost/json/value_from.hpp>
#include <cmath>

#include "comm/nccl_collectives.hpp"
#include "config/describe.hpp"
#include "core/error.hpp"
#include "kernels/gemm.hpp"
#include "kernels/tensor_memory.hpp"
#include "model/stored_spec.hpp"
#include "plan/micro_size.hpp"
#include "plan/plan_lines.hpp"
#include "plan/sharing.hpp"
#include "train/begin.hpp"
#include "train/init_weights.hpp"
#include "train/other_tasks.hpp"
#include "train/process.hpp"
#include "train/profile_report.hpp"
#include "train/progress.hpp"
#include "train/reading.hpp"
#include "train/run_parts.hpp"
#include "train/saver.hpp"
#include "train/start_agreement.hpp"
#include "train/step_plans.hpp"
#include "train/threads.hpp"
#include "train/validator.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

/// Whether a multiple of the period was reached between `before` and `after`.
bool is_due(const config::Period& period, const RunState& before, const RunState& after) {
  if (period.count <= 0) return false;
  return std::floor(before.position(period.unit) / period.count) <
         std::floor(after.position(period.unit) / period.count);
}

constexpr std::int64_t steps_to_peak = 3;  // later steps need no more memory: all workspaces exist by then

checkpoint::Verify verify_of(plan::Verify verify) {
  if (verify == plan::Verify::full) return checkpoint::Verify::full;
  return verify == plan::Verify::none ? checkpoint::Verify::none : checkpoint::Verify::touched;
}

class Trainer {
 public:
  /// Not collective.
  Trainer(comm::Context& context, const plan::RunConfig& config, const TrainOptions& options, Threads threads)
      : context_(context),
        config_(run_.config),
        options_(options),
        threads_(std::move(threads)),
        run_(context, config) {}

  /// Makes the run's parts and finds the state that it begins with. **Collective.**
  void set_up() {
    run_.open();
    begins_.emplace(context_, *run_.store, options_.from_scratch, options_.resume, options_.request);
    run_.set_up(kept());
    begin_or_resume();
    announce();
  }

  /// Trains from the state that set_up() has found to the run's end. **Collective.**
  TrainReport run() {
    data::Loader loader = make_loader();
    optim::SkipGuard guard(config_.optimizer.skip, state_.guard);
    const std::unique_ptr<optim::Optimizer> optimizer =
        optim::make_optimizer(config_.optimizer, plan::is_language_model(config_), plan::has_wide_master(config_));
    Runner runner(*run_.model, *run_.buffers, run_.groups(), *optimizer, optim::max_grad_norm_of(config_.optimizer),
                  guard, context_.clock, run_.device);
    StepPlans plans(run_);
    reading_.emplace(context_, *run_.shards);
    reading_->announce(loader, state_.cursor.pool.epoch + 1);
    progress_.emplace(
        context_,
        telemetry::Metrics::Setup{
            .config = config_.telemetry,
            .shape = plan::flop_shape(run_.model->spec()),
            .ranks = context_.topology.world_size(),
            .peak_flops = peak_flops(run_.device),
            .before = place_of(state_, run_.schedule),
            .corpora = reading_->corpora(),
            .components = plan::names_of_components(run_.model->spec()),
            .window = state_.window,
            .configuration = config::to_json(plan::with_micro_size(config_, run_.facts.sizes)).as_object()},
        run_.store->run_dir());
    Saver saver(context_, *run_.store, *run_.host, config_.checkpoint, run_.tokenizer->model_bytes(),
                [this](std::int64_t step, bool committed) { validator_->saved(step, committed); });
    kernels::reset_peak(run_.device);
    const double begin_s = context_.clock.monotonic_s();
    const RunState start = state_;
    const std::optional<bool> owed = state_.owes_validation ? validate(runner, plans) : false;
    settle_best(saver, owed.value_or(false));
    bool stopped = !owed, finished = is_finished() && !stopped;
    while (!finished && !stopped) {
      const RunState before = state_;
      const double step_begin_s = context_.clock.monotonic_s();
      double waited_s = loader.waited_s();
      const data::StepBatches batches = next_batches(loader);
      waited_s = loader.waited_s() - waited_s;
      const StepResult result = take_step(runner, plans, batches, guard, saver);
      const double step_s = context_.clock.monotonic_s() - step_begin_s;
      progress_->add(metrics_of(result, batches, state_, run_.schedule, step_s), result.times, waited_s);
      state_.window = progress_->window();
      validator_->poll_command(state_.step, *progress_);
      if (state_.step == start.step + steps_to_peak) memory_ = run_.compare_memory(state_.step);
      if (options_.after_step) options_.after_step(state_, result);
      stopped = result.stop && !has_its_length();
      if (stopped) context_.log.info("stopping after step {}: {}", state_.step, run_.stop->reason());
      if (std::floor(state_.epoch) > std::floor(before.epoch)) reading_->log_passes();
      state_.owes_validation = is_due(config_.validation.interval, before, state_) || has_its_length();
      const std::optional<bool> improved = state_.owes_validation && !stopped ? validate(runner, plans) : false;
      stopped = stopped || !improved;
      finished = is_finished() && !stopped;
      save_if_due(saver, before, {.stopped = stopped, .finished = finished, .improved = improved.value_or(false)});
      run_.stop->took(context_.clock.monotonic_s() - step_begin_s, saver.figures().longest_s);
    }
    if (finished && state_.step == start.step) export_if_missing(saver);
    return end(stopped, start, context_.clock.monotonic_s() - begin_s, saver.figures());
  }

 private:
  /// By the schedule.
  [[nodiscard]] bool has_its_length() const { return state_.position(run_.schedule.unit) >= run_.schedule.length; }
  /// By the schedule, or because validations no longer improve. A validation may change it.
  [[nodiscard]] bool is_finished() const { return has_its_length() || validator_->history().ends(); }
  /// Of the run that goes on, where the configuration says auto. **Collective.**
  [[nodiscard]] Kept kept() const {
    const bool keeps_size = config_.batch.micro_size.is_auto && !options_.allows("batch");
    const bool keeps_lora = config_.lora && (!config_.lora->rank || !config_.lora->train_embeddings);
    const bool any = keeps_size || keeps_lora || config_.placement.is_auto;
    const std::optional<checkpoint::Reader> reader =
        any && !begins_->is_from_scratch() ? begins_->checkpoint() : std::nullopt;
    return reader ? kept_of(*reader, config_, keeps_size, context_.topology.world_size()) : Kept{};
  }

  /// **Collective.**
  void begin_or_resume() {
    std::optional<checkpoint::Reader> reader;
    std::vector<std::string> changes;
    if (begins_->is_from_scratch()) {
      set_aside(context_, run_.store->run_dir());
    } else {
      const checkpoint::Sections wanted = sections_of(config_, run_.facts, state_);
      checkpoint::LoadOptions how{.verify = verify_of(config_.checkpoint.verify),
                                  .abandon_newer = options_.abandon_newer && !begins_->goes_on()};
      how.from = begins_->resume_from();
      const bool keeps_optimizer = keeps_optimizer_of(wanted);
      how.may_lack_units = options_.allows("tasks");
      if (how.may_lack_units) run_.buffers->initialise(config_.seed);
      how.check = [&](const checkpoint::Reader& candidate) {
        model::require_own_parameters(candidate);
        if (begins_->goes_on()) require_from(candidate, begins_->request());
        changes = check_resumable(candidate.sections(), wanted, options_.allow_changes, candidate.directory().string());
        state_ = state_of(candidate);
        if (how.may_lack_units) {  // new components begin as they are; what a damaged checkpoint left here goes
          run_.host->begin_copy();
          run_.host->complete_copy();
          std::ranges::move(take_tasks(state_, model::stored_sharing(candidate), run_.model->spec()),
                            std::back_inserter(changes));
        }
        if (keeps_optimizer) return;
        state_.updates = 0;
        state_.component_updates.clear();
        changes.emplace_back("the optimizer, whose state begins anew");
      };
      reader = run_.store->load(run_.host->states(keeps_optimizer), how);
    }
    const std::string placement = plan::text_of(run_.placement, run_.model->spec());
    if (!reader) {
      begin_anew();
    } else {
      run_.host->load();
      keep_threads(changes);
      std::ranges::move(changes_of_bits(state_, instructions(), placement, run_.facts.world),
                        std::back_inserter(changes));
      for (const std::string& change : changes) {
        if (context_.is_root()) context_.log.warn("changed since step {}: {}", state_.step, change);
        state_.history.push_back(json::object{{"step", state_.step}, {"change", change}});
      }
      context_.log.info("resumed from {}", reader->directory().string());
    }
    state_.threads = {.count = threads_.count, .ranks = run_.facts.world};
    state_.instructions = instructions();
    state_.placement = placement;
    if (!begins_->request().empty() && !begins_->goes_on())
      add_request(state_.history, state_.step, begins_->request());
    validator_.emplace(run_, state_.validations);
    comm::set_exit_step(state_.step);
  }

  /// Whether the checkpoint that the run resumes from has the state of its optimizer. --allow-change may have replaced
  /// that. **Collective.**
  [[nodiscard]] bool keeps_optimizer_of(const checkpoint::Sections& wanted) {
    if (!options_.allows("optimizer.type") && !options_.allows("optimizer.state")) return true;
    const std::optional<checkpoint::Reader> reader = begins_->checkpoint();
    return !reader || has_same_optimizer_state(reader->sections().optimizer, wanted.optimizer);
  }

  /// With random weights, or those of other models. **Collective.**
  void begin_anew() {
    const InitialWeights weights{
        context_, config_, run_.model->spec(), *run_.tokenizer, options_.open_model, options_.open_adapters};
    comm::agree(context_.world, [&] {
      run_.buffers->initialise([&](const spec::Parameter& parameter, std::int64_t begin, std::int64_t end,
                                   float* values) { weights.fill(parameter, begin, end, values); });
    });
    for (const std::string& line : weights.lines()) context_.log.info("{}", line);
    if (config_.init_from) state_.history.push_back(json::object{{"step", 0}, {"change", weights.summary()}});
  }

  [[nodiscard]] std::string instructions() const {
    return run_.device.is_cpu() ? kernels::cpu_instructions() : std::string{};
  }

  /// A run that resumes on the same number of ranks keeps its number of threads, unless OMP_NUM_THREADS sets another.
  void keep_threads(std::vector<std::string>& changes) {
    const auto [count, ranks] = state_.threads;
    if (count == 0 || count == threads_.count || ranks != run_.facts.world) return;
    if (threads_.is_asked) {
      changes.push_back(
          fmt::format("OMP_NUM_THREADS: {}, was {}; the last bits of results may differ", threads_.count, count));
      return;
    }
    context_.log.info("threads per rank: {}, as before the run was resumed", count);
    threads_.count = count;
    at::set_num_threads(count);
  }

  void announce() {
    std::vector<std::string> formats;
    if (options_.formats_for) formats = options_.formats_for(run_.model->architecture());
    for (const std::string& line : plan::lines_of(*run_.plan, config_, plan::Schemes::configured, formats))
      context_.log.info("{}", line);
    if (context_.is_root()) {
      for (const std::string& warning : plan::warnings_of(*run_.plan)) context_.log.warn("{}", warning);
      if (run_.device.is_cpu() && config_.precision.mode != plan::PrecisionMode::fp32) {
        const double fp32 = measure_product(at::kFloat, run_.device, 5);
        if (const std::string said = precision_advice(fp32, measure_product(at::kBFloat16, run_.device, 5));
            !said.empty())
          context_.log.warn("{}", said);
      }
    }
    if (config_.loss.normalise == plan::LossNormalisation::component)
      context_.log.info(
          "the gradient of each component is divided by the tokens of its own tasks (loss.normalise: component), so it "
          "is not that of the mean loss");
    if (run_.device.is_cuda()) context_.log.info("NCCL {}", comm::nccl_version(comm::nccl_table()));
  }

  data::Loader make_loader() {
    return read_on_all(context_, [&] {
      return data::Loader(*run_.shards, run_.tokenizer->vocabulary(),
                          {.pool = {.seed = config_.seed,
                                    .sizes = run_.facts.sizes,
                                    .batch = plan::batch_of(config_),
                                    .temperature = config_.data.temperature,
                                    .routes = plan::routes_of(config_, run_.model->spec()),
                                    .position_shift_max = config_.model.position_shift_max},
                           .canonical_rank = context_.topology.canonical_rank(),
                           .deal = {.world = context_.topology.world_size(),
                                    .ranks = run_.placement.routes,
                                    .in_order = config_.sharding.reduction == plan::Reduction::elastic},
                           .workers = static_cast<int>(config_.data.workers)},
                          state_.cursor);
    });
  }

  /// The totals of the step over all ranks. **Collective** where the plan does not know them.
  data::StepBatches next_batches(data::Loader& loader) const {
    data::StepBatches step = loader.next();
    if (!loader.is_exact()) {
      auto& [src_tokens, tgt_tokens, padded_tokens] = step.totals;
      std::array<std::int64_t, 3> sums{src_tokens, tgt_tokens, padded_tokens};
      context_.world.all_reduce(std::span<std::int64_t>{sums});
      step.totals = {.src_tokens = sums[0], .tgt_tokens = sums[1], .padded_tokens = sums[2]};
    }
    if (step.totals.tgt_tokens == 0)
      throw_error(Fault::data, fmt::format("step {}", state_.step + 1), "an id that bears loss", "none",
                  "raise batch.global_size, or leave out examples without answers");
    return step;
  }

  StepResult take_step(Runner& runner, StepPlans& plans, const data::StepBatches& batches,
                       const optim::SkipGuard& guard, Saver& saver) {
    RunState next = state_;
    ++next.step;
    next.cursor = batches.next;
    next.epoch = batches.epochs_done;
    reading_->add(batches);
    next.src_tokens += batches.totals.src_tokens;
    next.tgt_tokens += batches.totals.tgt_tokens;
    next.padded_tokens += batches.totals.padded_tokens;
    std::optional<kernels::Profile::Recording> recording;
    if (options_.profile && ++steps_taken_ > steps_to_peak) recording.emplace(profiled_.profile, run_.device);
    model::LossOptions loss = run_.loss;
    if (next.step <= config_.loss.error_norm_truncation_after) loss.error_norm_truncation = 0;
    const double begin_s = context_.clock.monotonic_s();
    const UpdateCounts updates(run_.model->spec(), batches.routes);
    const StepResult result =
        runner.run(plans.of(batches), batches,
                   {.step = next.step,
                    .updates = updates.next(state_),
                    .lr = optim::learning_rate(run_.schedule, next.position(run_.schedule.unit)),
                    .seed = config_.seed,
                    .normalise_by_component = config_.loss.normalise == plan::LossNormalisation::component,
                    .loss = loss,
                    .recompute = config_.sharding.recompute,
                    .wants_to_stop = run_.stop->wants_to_stop(),
                    .before_update = [&saver] { saver.before_update(); }});
    if (recording) {
      recording.reset();
      ++profiled_.steps;
      profiled_.seconds += context_.clock.monotonic_s() - begin_s;
    }
    if (!result.skipped) updates.add(next);
    if (!result.skipped) validator_->trained(result.nll_sum, batches.totals.tgt_tokens);
    next.n_clips += result.clipped ? 1 : 0;
    next.guard = guard.state();
    state_ = std::move(next);
    comm::set_exit_step(state_.step);
    return result;
  }

  /// Whether a metric of keep_best has never been better; nullopt: the run stops instead. **Collective.**
  [[nodiscard]] std::optional<bool> validate(Runner& runner, const StepPlans& plans) {
    const EvaluatedModel model{
        .nll_of =
            [&](const data::Batch& batch) { return runner.evaluate(plans.forward(batch.route), batch, run_.loss); },
        .with_whole =
            [&](std::size_t route, const UseModel& use) {
              runner.with_whole_model(plans.forward(route), [&] {
                if (run_.computes(route)) with_route(*run_.model, route, use);
              });
            },
        .ranks_of = [&](std::size_t route) -> const comm::Communicator& {
          return run_.translators.at(run_.placement.routes[route]);
        },
        .stops = [&](const comm::Communicator& ranks) { return comm::any_of(ranks, run_.stop->wants_to_stop()); }};
    return validator_->validate(state_, model, reading_->passes(), *progress_);
  }

  /// The sections of a checkpoint of this step.
  [[nodiscard]] checkpoint::Sections sections() {
    state_.validations = validator_->state(state_.step);
    return sections_of(config_, run_.facts, state_);
  }

  /// Whether there is a checkpoint of this step, as rank 0 sees it.
  [[nodiscard]] bool lies_there(checkpoint::Kind kind) {
    bool found = false;
    comm::agree(context_.world, [&] {
      if (context_.is_root()) found = context_.files.exists(run_.store->place_of(kind, state_.step));
    });
    return comm::any_of(context_.world, found);
  }

  /// After the validation that a stopped run still owed: if it is the best so far, its checkpoint exists already,
  /// unless this run began from the checkpoint of another run.
  void settle_best(Saver& saver, bool improved) {
    if (!improved) return;
    if (lies_there(checkpoint::Kind::temp) || lies_there(checkpoint::Kind::export_)) {
      validator_->history().saved(state_.step, true);
    } else {
      saver.save_last(checkpoint::Kind::temp, state_.step, [this] { return sections(); });
    }
  }

  /// The outcome of a step and its validation.
  struct Outcome {
    bool stopped, finished, improved;
  };

  void save_if_due(Saver& saver, const RunState& before, const Outcome& outcome) {
    const bool last = outcome.stopped || outcome.finished;
    if (!last) saver.poll();
    const bool exports = outcome.finished || is_due(config_.checkpoint.export_interval, before, state_);
    const bool weights_only = config_.checkpoint.export_state == plan::ExportState::weights;
    // An export of the full state replaces the temporary checkpoint of its step.
    const bool temporary =
        (last || outcome.improved || is_due(config_.checkpoint.interval, before, state_)) && (!exports || weights_only);
    for (const auto& [kind, due] :
         {std::pair{checkpoint::Kind::temp, temporary}, {checkpoint::Kind::export_, exports}}) {
      if (!due) continue;
      const auto sections = [this] { return this->sections(); };
      // A job that must stop has no time to remove old checkpoints: the next start removes them.
      const checkpoint::Tidy tidy = outcome.stopped ? checkpoint::Tidy::at_next_load : checkpoint::Tidy::now;
      last ? saver.save_last(kind, state_.step, sections, tidy)
           : saver.begin(kind, state_.step, sections, outcome.improved);
    }
  }

  /// For a run that was killed between its last checkpoint and the export of its weights, or that stopped before its
  /// last validation.
  void export_if_missing(Saver& saver) {
    if (lies_there(checkpoint::Kind::export_)) return;
    saver.save_last(checkpoint::Kind::export_, state_.step, [this] { return sections(); });
  }

  TrainReport end(bool stopped, const RunState& start, double seconds, const Saver::Figures& saves) {
    const std::int64_t steps = state_.step - start.step;
    progress_->log_times();
    validator_->finish_command(state_.step, stopped, *progress_);
    if (stopped) {
      if (run_.stop->is_asked_by_file()) comm::set_exit_why("stop_file");
      progress_->stopped(state_.step, run_.stop->reason());
    } else {
      progress_->done(state_.step);
    }
    TrainReport report{.exit = stopped ? Exit::stopped : Exit::ok, .figures = {}};
    const double rate = seconds > 0 ? static_cast<double>(state_.tgt_tokens - start.tgt_tokens) / seconds : 0;
    report.figures = {{"status", stopped ? "stopped" : "ok"},
                      {"step", state_.step},
                      {"steps", steps},
                      {"seconds", seconds},
                      {"tgt_tokens", state_.tgt_tokens},
                      {"tgt_tokens_per_s", rate},
                      {"n_clips", state_.n_clips},
                      {"skipped", state_.guard.skipped},
                      {"validation", state_.metrics}};
    if (!stopped && validator_->history().ends()) {
      report.figures["early_stop"] = validator_->history().reason();
      context_.log.info("the run has ended early: {}; to continue it, raise validation.early_stop.patience",
                        validator_->history().reason());
    }
    if (!memory_.empty()) report.figures["memory"] = memory_;
    report.figures["saves"] = {{"saved", saves.saved},
                               {"failed", saves.failed},
                               {"left_out", saves.left_out},
                               {"seconds", saves.seconds},
                               {"held_up_s", saves.held_up_s}};
    if (!saves.newest.empty()) report.figures["checkpoint"] = saves.newest.string();
    if (profiled_.steps > 0) {
      const DeviceRates rates =
          measure_rates(config_.precision.mode == plan::PrecisionMode::fp32 ? at::kFloat : at::kBFloat16, run_.device);
      for (const std::string& line : lines_of(profiled_, rates)) context_.log.plain(line);
      report.figures["profile"] = json_of(profiled_, rates);
    }
    reading_->add_figures(report.figures);
    if (steps == 0 && !stopped) context_.log.info("nothing to do: the run has already ended at step {}", state_.step);
    return report;
  }

  comm::Context& context_;
  const plan::RunConfig& config_;
  const TrainOptions& options_;
  Threads threads_;
  RunParts run_;
  RunState state_;
  std::optional<Validator> validator_;
  std::optional<Beginning> begins_;
  std::optional<Progress> progress_;  // of the steps; from the first one on
  json::object memory_;               // measured and planned
  ProfiledSteps profiled_;            // with --profile: those after the first few
  std::int64_t steps_taken_ = 0;
  std::optional<Reading> reading_;
};

}  // namespace

TrainReport run_training(comm::Context& context, const plan::RunConfig& config, const TrainOptions& options) {
  require_same_start(context.world, config,
                     {{"--from-scratch", options.from_scratch},
                      {"--resume", options.resume},
                      {"--abandon-newer", options.abandon_newer},
                      {"--allow-change", json::value_from(options.allow_changes)}});
  plan::require_trainable(config);
  context.world.configure(config.comm);
  kernels::keep_tensor_memory();
  const Threads threads = set_up_threads(context);
  context.log.info("ranks: {}, nodes: {}, threads per rank: {} ({}), CPU instructions: {}",
                   context.topology.world_size(), context.topology.layout().nodes(), threads.count, threads.why,
                   kernels::cpu_instructions());
  Trainer trainer{context, config, options, threads};
  TrainReport report;
  comm::ends_in_time(context, [&] {
    trainer.set_up();
    report = trainer.run();
  });
  return report;
}

}  // namespace argosy::train
