#include "train/trainer.hpp"

#include <algorithm>
#include <array>
#include <boost/json/value_from.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "comm/nccl_collectives.hpp"
#include "config/describe.hpp"
#include "core/error.hpp"
#include "model/stored_model.hpp"
#include "model/stored_spec.hpp"
#include "plan/plan_lines.hpp"
#include "train/begin.hpp"
#include "train/early_stop.hpp"
#include "train/evaluate.hpp"
#include "train/memory_count.hpp"
#include "train/process.hpp"
#include "train/progress.hpp"
#include "train/saver.hpp"
#include "train/start_agreement.hpp"
#include "train/stop_policy.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

/// Whether a period's next multiple was reached on the way from `before` to `after`.
bool is_due(const config::Period& period, const RunState& before, const RunState& after) {
  if (period.count <= 0) return false;
  return std::floor(before.position(period.unit) / period.count) <
         std::floor(after.position(period.unit) / period.count);
}

/// Rank 0's verdict for all: data that ranks read alike fails alike, files that only one can read do not hang the
/// others.
template <class F>
auto read_on_all(const comm::Context& context, F&& read) {
  std::optional<decltype(read())> value;
  comm::agree(context.world, [&] { value.emplace(read()); });
  return std::move(*value);
}

/// Takes the files of an earlier run out of the way: `checkpoints` becomes `checkpoints.old-<time>`.
void set_aside(const comm::Context& context, const Path& run_dir) {
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    for (const char* folder : {"checkpoints", "export"}) {
      if (!context.files.exists(run_dir / folder) || context.files.list(run_dir / folder).empty()) continue;
      const Path aside = run_dir / fmt::format("{}.old-{:.0f}", folder, context.clock.wall_s() * 1000);
      context.files.rename(run_dir / folder, aside);
      context.log.warn("{} set aside as {}", (run_dir / folder).string(), aside.string());
    }
    context.files.sync_folder(run_dir);
  });
}

constexpr std::int64_t kStepsToPeak = 3;  // later ones hold no more: lazily made workspaces are there

DType wire_type(plan::WireType type) { return type == plan::WireType::bf16 ? DType::bf16 : DType::f32; }

checkpoint::Verify verify_of(plan::Verify verify) {
  if (verify == plan::Verify::full) return checkpoint::Verify::full;
  return verify == plan::Verify::none ? checkpoint::Verify::none : checkpoint::Verify::touched;
}

plan::ReduceEvery reduce_every(const plan::RunConfig& config) {
  return config.sharding.reduction == plan::Reduction::elastic ? plan::ReduceEvery::micro_batch
                                                               : plan::ReduceEvery::step;
}

/// The run's plan. Throws Error{config} when this rank's device cannot run it, or has no memory for it.
plan::RunPlan affordable_plan(const comm::Context& context, const plan::RunConfig& config, std::int64_t vocab_live,
                              c10::Device device) {
  if (device.is_cuda() && config.sharding.reduction == plan::Reduction::elastic) {
    throw Error{Fault::config,
                {.wanted = "exact or fast on a GPU",
                 .got = "elastic",
                 .where = "sharding.reduction",
                 .remedy = "elastic sums, for tests, are formed on the host: set device to cpu"}};
  }
  plan::RunPlan plan = plan::plan_run(config, spec::resolve(config.model, vocab_live),
                                      {.layout = context.topology.layout(), .gpu = planned_gpu(device)});
  if (const auto memory = rank_memory_bytes(device, context.topology)) plan::require_state_fits(plan, *memory);
  return plan;
}

class Trainer {
 public:
  Trainer(comm::Context& context, const plan::RunConfig& config, const TrainOptions& options)
      : context_(context),
        config_(config),
        options_(options),
        stop_(context, config.stop),
        device_(choose_device(config.device, context)),
        store_(context, config.run_dir, {.max_checkpoints = config.checkpoint.max_checkpoints}),
        tokenizer_(read_on_all(context,
                               [&] {
                                 return data::Tokenizer::read(context.files, config.data.tokenizer,
                                                              spec::vocabulary_rule(config.model));
                               })),
        shards_(read_on_all(context,
                            [&] {
                              auto shards =
                                  data::TokenShards::open(context.files, config.data, tokenizer_, data::Part::train);
                              if (shards.has_source()) shards.require_at_most(config.model.max_positions, tokenizer_);
                              return shards;
                            })),
        schedule_(optim::resolve(config.schedule, plan::is_language_model(config))),
        facts_{.tokenizer = same_on_all_ranks(context.world, tokenizer_.digest(), "tokenizer", "data.tokenizer"),
               .data = same_on_all_ranks(context.world, shards_.fingerprint(), "token shards", "data.shards"),
               .vocab_live = tokenizer_.vocabulary().pieces,
               .sizes = data::resolve_sizes(config.batch, context.topology.world_size()),
               .world = context.topology.world_size()},
        plan_(read_on_all(context, [&] { return affordable_plan(context, config, facts_.vocab_live, device_); })),
        model_(spec::resolve(config.model, facts_.vocab_live), context.topology.layout()),
        choices_{.scheme = plan::scheme_of(config.sharding),
                 .order = config.sharding.accumulation_order,
                 .reduce_every = reduce_every(config),
                 .micro_batches = facts_.sizes.accumulation},
        other_bytes_(memory_of(device_).bytes),
        buffers_(model_, context.topology.canonical_rank(),
                 {.scheme = choices_.scheme,
                  .reduce_every = choices_.reduce_every,
                  .compute_type = config.precision.mode == plan::PrecisionMode::fp32 ? at::kFloat : at::kBFloat16,
                  .master_type = plan::has_wide_master(config) ? at::kFloat : at::kBFloat16,
                  .seed = config.seed,
                  .state = optim::state_of(config.optimizer),
                  .device = device_}),
        collectives_(comm::make_collectives(context.topology, collectives_options(config), device_.is_cuda())),
        sets_(read_on_all(context, [&] { return evaluation_sets(context, config, tokenizer_, facts_.sizes); })) {
    loss_.label_smoothing = plan::label_smoothing_of(config);
    loss_.z = config.loss.z;
    loss_.chunk_bytes =
        config.loss.chunk_bytes > 0 ? config.loss.chunk_bytes : std::numeric_limits<std::int64_t>::max();
  }

  TrainReport run() {
    begin_or_resume();
    announce();
    data::Loader loader = make_loader();
    optim::SkipGuard guard(config_.optimizer.skip, state_.guard);
    const std::unique_ptr<optim::Optimizer> optimizer =
        optim::make_optimizer(config_.optimizer, plan::is_language_model(config_), plan::has_wide_master(config_));
    Runner runner(model_, buffers_, *collectives_, context_.topology.layout(), context_.topology.canonical_rank(),
                  *optimizer, config_.optimizer.max_grad_norm, guard, context_.clock, device_);
    const plan::PlanShape shape = plan::plan_shape(model_.architecture(), context_.topology.layout());
    const plan::StepPlan plan = plan::plan_step(shape, choices_), forward = plan::plan_forward(shape, choices_.scheme);
    announce_epoch(loader.report());
    progress_.emplace(context_,
                      telemetry::Metrics::Setup{.config = config_.telemetry,
                                                .shape = plan::flop_shape(model_.architecture()),
                                                .ranks = context_.topology.world_size(),
                                                .peak_flops = peak_flops(device_),
                                                .before = place_of(state_, schedule_),
                                                .window = state_.window},
                      store_.run_dir());
    Saver saver(context_, store_, host_, config_.checkpoint, tokenizer_.model_bytes(),
                [this](std::int64_t step, bool committed) { judge_->saved(step, committed); });

    reset_peak(device_);
    const double begin_s = context_.clock.monotonic_s();
    const RunState start = state_;
    bool stopped = false;
    if (state_.owes_validation) settle_best(saver, validate(runner, forward));
    while (!finished() && !stopped) {
      const RunState before = state_;
      const double step_begin_s = context_.clock.monotonic_s();
      double waited_s = loader.waited_s();
      const data::StepBatches batches = loader.next();
      waited_s = loader.waited_s() - waited_s;
      const StepResult result = take_step(runner, plan, batches, guard, saver);
      const double step_s = context_.clock.monotonic_s() - step_begin_s;
      progress_->add(metrics_of(result, batches, state_, schedule_, step_s), result.times, waited_s);
      state_.window = progress_->window();
      if (state_.step == start.step + kStepsToPeak) compare_memory();
      if (options_.after_step) options_.after_step(state_, result);
      stopped = result.stop && !finished();
      if (stopped) context_.log.info("stopping after step {}: {}", state_.step, stop_.reason());
      state_.owes_validation = is_due(config_.validation.interval, before, state_) || finished();
      const bool improved = state_.owes_validation && !stopped && validate(runner, forward);
      save_if_due(saver, before, stopped, improved);
      stop_.took(context_.clock.monotonic_s() - step_begin_s, saver.figures().longest_s);
    }
    export_if_missing(saver, start);
    return end(stopped, start, context_.clock.monotonic_s() - begin_s, saver.figures());
  }

 private:
  [[nodiscard]] bool finished() const { return state_.position(schedule_.unit) >= schedule_.length || judge_->ends(); }

  void begin_or_resume() {
    std::optional<checkpoint::Reader> reader;
    std::vector<std::string> changes;
    const bool asked = options_.from_scratch || options_.resume != "auto";
    const std::string request = context_.world.broadcast(asked ? options_.request : std::string{});
    const bool goes_on = !request.empty() && is_carried_out(context_, store_.run_dir(), request);
    if (goes_on) context_.log.info("{} has begun as it was asked to, and goes on from its newest checkpoint", request);
    if (options_.from_scratch && !goes_on) {
      set_aside(context_, store_.run_dir());
    } else {
      const checkpoint::Sections wanted = sections_of(config_, facts_, state_);
      checkpoint::LoadOptions how{.verify = verify_of(config_.checkpoint.verify),
                                  .abandon_newer = options_.abandon_newer && !goes_on};
      if (options_.resume != "auto" && !goes_on) how.from = options_.resume;
      how.check = [&](const checkpoint::Reader& candidate) {
        model::require_own_parameters(candidate);
        if (goes_on) require_from(candidate, request);
        changes = check_resumable(candidate.sections(), wanted, options_.allow_changes, candidate.directory().string());
        state_ = state_of(candidate);
      };
      reader = store_.load(host_.states(), how);
    }
    if (!reader) {
      buffers_.initialise(config_.seed);
    } else {
      host_.load();
      for (const std::string& change : changes) {
        if (context_.is_root()) context_.log.warn("changed since step {}: {}", state_.step, change);
        state_.history.push_back(json::object{{"step", state_.step}, {"change", change}});
      }
      context_.log.info("resumed from {}", reader->directory().string());
    }
    if (!request.empty() && !goes_on) add_request(state_.history, state_.step, request);
    judge_.emplace(config_.validation, state_.judged);
    comm::set_exit_step(state_.step);
  }

  /// Behind damaged checkpoints of this job may lie those of the run that it was told to leave.
  static void require_from(const checkpoint::Reader& candidate, const std::string& request) {
    if (names_request(candidate.sections().history, request)) return;
    throw Error{Fault::corrupt,
                {.wanted = fmt::format("a sound checkpoint that {} has made since it began", request),
                 .got = "an older one",
                 .where = candidate.directory().string(),
                 .remedy = "submit again, with the checkpoint to begin from"}};
  }

  void announce() {
    std::vector<std::string> formats;
    if (options_.formats_for) formats = options_.formats_for(model_.architecture());
    for (const std::string& line : plan::lines_of(plan_, config_, formats)) context_.log.info("{}", line);
    if (context_.is_root()) {
      for (const std::string& warning : plan::warnings_of(plan_)) context_.log.warn("{}", warning);
    }
    if (device_.is_cuda()) context_.log.info("NCCL {}", comm::nccl_version(comm::nccl_table()));
    if (schedule_.warmup == 0) context_.log.warn("no warm-up: the first steps of Adam are as large as any");
    for (const data::TokenShards::Corpus& corpus : shards_.corpora()) {
      context_.log.info("corpus {}: {} examples", corpus.name, corpus.size);
    }
  }

  /// What the first steps have held beside the plan, on the fullest rank.
  void compare_memory() {
    std::array<std::int64_t, 2> bytes{state_bytes_, memory_of(device_).peak_bytes - other_bytes_ - state_bytes_};
    context_.world.all_reduce(std::span<std::int64_t>{bytes}, comm::Reduce::max);
    context_.log.info("after step {}: {}", state_.step, plan::memory_line(plan_, bytes[0], bytes[1]));
    memory_ = {{"state_bytes", bytes[0]},
               {"planned_state_bytes", plan_.chosen().state.state()},
               {"activation_bytes", bytes[1]},
               {"planned_activation_bytes", plan_.activations.total()}};
  }

  data::Loader make_loader() {
    return read_on_all(context_, [&] {
      return data::Loader(shards_, tokenizer_.vocabulary(),
                          {.epoch = {.seed = config_.seed,
                                     .sizes = facts_.sizes,
                                     .batch = config_.batch,
                                     .temperature = config_.data.temperature},
                           .canonical_rank = context_.topology.canonical_rank(),
                           .world = context_.topology.world_size()},
                          state_.cursor);
    });
  }

  void announce_epoch(const data::EpochSource::Report& epoch) const {
    context_.log.info(
        "epoch {}: {} steps, {} examples, {:.1f} % of micro_size filled, {:.1f} % of target positions real",
        state_.cursor.epoch + 1, epoch.steps, epoch.examples, 100 * epoch.fill, 100 * epoch.target_efficiency);
    if (epoch.dropped_oversized > 0) {
      context_.log.warn("{} examples exceed batch.micro_size alone and are left out", epoch.dropped_oversized);
    }
  }

  StepResult take_step(Runner& runner, const plan::StepPlan& plan, const data::StepBatches& batches,
                       const optim::SkipGuard& guard, Saver& saver) {
    RunState next = state_;
    ++next.step;
    next.cursor = batches.next;
    next.epoch = batches.epochs_done;
    next.src_tokens += batches.src_tokens;
    next.tgt_tokens += batches.tgt_tokens;
    next.padded_tokens += batches.padded_tokens;
    const StepResult result = runner.run(plan, batches,
                                         {.step = next.step,
                                          .updates = state_.updates + 1,
                                          .lr = optim::learning_rate(schedule_, next.position(schedule_.unit)),
                                          .seed = config_.seed,
                                          .loss = loss_,
                                          .recompute = config_.sharding.recompute,
                                          .wants_to_stop = stop_.wants_to_stop(),
                                          .before_update = [&saver] { saver.before_update(); }});
    next.updates += result.skipped ? 0 : 1;
    next.n_clips += result.clipped ? 1 : 0;
    next.guard = guard.state();
    state_ = std::move(next);
    comm::set_exit_step(state_.step);
    return result;
  }

  /// Whether a metric of keep_best has never been better.
  [[nodiscard]] bool validate(Runner& runner, const plan::StepPlan& forward) {
    state_.owes_validation = false;
    bool improved = false;
    for (const EvaluationSet& set : sets_) {
      const Evaluation evaluation = evaluate_on(set, set.name, runner, forward);
      if (&set != &sets_.front()) continue;
      if (state_.best_step == 0 || evaluation.loss() < state_.best_loss) {
        state_.best_loss = evaluation.loss();
        state_.best_step = state_.step;
      }
      std::map<plan::Metric, double> values;
      for (const plan::Metric metric : config_.validation.metrics) values[metric] = evaluation.value_of(metric);
      improved = judge_->take(state_.step, values);
    }
    if (config_.optimizer.ema > 0) {
      buffers_.swap_ema();  // no save reads them now: the update before this waited for its copy
      for (const EvaluationSet& set : sets_) (void)evaluate_on(set, set.name + "/ema", runner, forward);
      buffers_.swap_ema();
    }
    return improved;
  }

  Evaluation evaluate_on(const EvaluationSet& set, const std::string& name, Runner& runner,
                         const plan::StepPlan& forward) {
    Evaluation evaluation = evaluate(
        context_, [&](const data::Batch& batch) { return runner.evaluate(forward, batch, loss_); }, model_, tokenizer_,
        set, config_.validation.metrics);
    json::object figures;
    std::vector<telemetry::Figure> reported;
    for (const plan::Metric metric : config_.validation.metrics) {
      const std::string metric_name(config::to_json(metric).as_string());
      reported.push_back({metric_name, evaluation.value_of(metric)});
      figures[metric_name] = evaluation.value_of(metric);
    }
    progress_->add_validation(state_.step, name, reported);
    state_.metrics[name] = std::move(figures);
    return evaluation;
  }

  /// What a checkpoint of this step says, judged by what has been committed so far.
  [[nodiscard]] checkpoint::Sections sections() {
    state_.judged = judge_->state(state_.step);
    return sections_of(config_, facts_, state_);
  }

  /// Whether there is a checkpoint of this step, as rank 0 sees it.
  [[nodiscard]] bool lies_there(checkpoint::Kind kind) {
    bool found = false;
    comm::agree(context_.world, [&] {
      if (context_.is_root()) found = context_.files.exists(store_.place_of(kind, state_.step));
    });
    return comm::any_of(context_.world, found);
  }

  /// A validation that the run before owed has found the best so far: its checkpoint lies there already, unless the run
  /// was begun from a checkpoint of another.
  void settle_best(Saver& saver, bool improved) {
    if (!improved) return;
    if (lies_there(checkpoint::Kind::temp) || lies_there(checkpoint::Kind::export_)) {
      judge_->saved(state_.step, true);
    } else {
      saver.save_last(checkpoint::Kind::temp, state_.step, [this] { return sections(); });
    }
  }

  void save_if_due(Saver& saver, const RunState& before, bool stopped, bool improved) {
    const bool last = stopped || finished();
    if (!last) saver.poll();
    const bool exports = finished() || is_due(config_.checkpoint.export_interval, before, state_);
    const bool weights_only = config_.checkpoint.export_state == plan::ExportState::weights;
    // An export that holds everything stands for the temporary one of its step.
    const bool temporary =
        (last || improved || is_due(config_.checkpoint.interval, before, state_)) && (!exports || weights_only);
    for (const auto& [kind, due] :
         {std::pair{checkpoint::Kind::temp, temporary}, {checkpoint::Kind::export_, exports}}) {
      if (!due) continue;
      const auto sections = [this] { return this->sections(); };
      // A job that is told to stop has no time to remove old checkpoints: the next start does.
      const checkpoint::Tidy tidy = stopped ? checkpoint::Tidy::at_next_load : checkpoint::Tidy::now;
      last ? saver.save_last(kind, state_.step, sections, tidy) : saver.begin(kind, state_.step, sections, improved);
    }
  }

  /// A run that was killed between its last checkpoint and the export of its weights, or whose last validation was due
  /// when it was stopped.
  void export_if_missing(Saver& saver, const RunState& start) {
    if (state_.step != start.step || !finished()) return;
    if (lies_there(checkpoint::Kind::export_)) return;
    saver.save_last(checkpoint::Kind::export_, state_.step, [this] { return sections(); });
  }

  TrainReport end(bool stopped, const RunState& start, double seconds, const Saver::Figures& saves) {
    const std::int64_t steps = state_.step - start.step;
    progress_->log_times();
    if (stopped) {
      if (stop_.is_asked_by_file()) comm::set_exit_why("stop_file");
      progress_->stopped(state_.step, stop_.reason());
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
    if (!stopped && judge_->ends()) {
      report.figures["early_stop"] = judge_->reason();
      context_.log.info("the run has ended early: {}; with a larger validation.early_stop.patience it goes on",
                        judge_->reason());
    }
    if (!memory_.empty()) report.figures["memory"] = memory_;
    report.figures["saves"] = {{"saved", saves.saved},
                               {"failed", saves.failed},
                               {"left_out", saves.left_out},
                               {"seconds", saves.seconds},
                               {"held_up_s", saves.held_up_s}};
    if (!saves.newest.empty()) report.figures["checkpoint"] = saves.newest.string();
    if (steps == 0) context_.log.info("nothing left to do: the run ended at step {}", state_.step);
    return report;
  }

  comm::Context& context_;
  const plan::RunConfig& config_;
  const TrainOptions& options_;
  StopPolicy stop_;
  const c10::Device device_;
  checkpoint::Store store_;
  const data::Tokenizer tokenizer_;
  const data::TokenShards shards_;
  const optim::Schedule schedule_;
  const RunFacts facts_;
  const plan::RunPlan plan_;
  model::Model model_;
  const plan::PlanChoices choices_;
  const std::int64_t other_bytes_;  // of tensors that are there before the buffers
  Buffers buffers_;
  HostState host_{model_, buffers_, device_};
  const std::int64_t state_bytes_ = memory_of(device_).bytes - other_bytes_;
  const std::unique_ptr<comm::Collectives> collectives_;
  const std::vector<EvaluationSet> sets_;
  model::LossOptions loss_;
  std::optional<Progress> progress_;  // of the steps; from the first one on

  RunState state_;
  std::optional<Judge> judge_;  // once the state is there
  json::object memory_;         // measured and planned
};

}  // namespace

comm::CollectivesOptions collectives_options(const plan::RunConfig& config) {
  return {.reduction = config.sharding.reduction,
          .wire_inner = wire_type(config.precision.gradient_wire.inner),
          .wire_outer = wire_type(config.precision.gradient_wire.outer)};
}

TrainReport run_training(comm::Context& context, const plan::RunConfig& config, const TrainOptions& options) {
  require_same_start(context.world, config,
                     {{"--from-scratch", options.from_scratch},
                      {"--resume", options.resume},
                      {"--abandon-newer", options.abandon_newer},
                      {"--allow-change", json::value_from(options.allow_changes)}});
  plan::require_trainable(config);
  context.world.configure(config.comm);
  const int threads = set_up_threads_and_memory(context.topology);
  context.log.info("{} ranks on {} nodes, {} threads a rank", context.topology.world_size(),
                   context.topology.layout().nodes(), threads);
  return Trainer{context, config, options}.run();
}

}  // namespace argosy::train
