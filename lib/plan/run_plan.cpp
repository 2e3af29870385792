#include "plan/run_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"
#include "plan/sharing.hpp"
#include "spec/model_spec.hpp"

namespace argosy::plan {

namespace {

constexpr std::int64_t stored_alignment = 1 << 20;  // of a dataset in a shard file (lib/checkpoint/FORMAT.md)

constexpr int most_nodes = 1024;  // that are tried

/// `nodes` nodes of the size of the largest one in `layout`.
partition::Layout nodes_like(const partition::Layout& layout, int nodes) {
  return partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), layout.slots()));
}

RunConfig with_sizes(RunConfig config, std::int64_t global_size, std::int64_t micro_size) {
  config.batch.global_size = global_size;
  config.batch.micro_size = micro_size;
  config.batch.accumulation.reset();
  return config;
}

/// The option that selects `scheme`, which is not stage_1.
std::string setting_of(Scheme scheme) {
  if (scheme == Scheme::hybrid) return "--set sharding.zero_stage=3 --set sharding.scope=hybrid";
  return fmt::format("--set sharding.zero_stage={}", scheme == Scheme::stage_2 ? 2 : 3);
}

/// The largest preset that fits in the configured scheme, with all other settings. None where weights are given.
std::optional<PresetPlan> largest_preset(const RunConfig& config, const spec::ModelSpec& spec,
                                         const PlanTarget& target) {
  std::optional<PresetPlan> largest;
  if (config.init_from || config.lora || !config.freeze.empty() || !spec::is_plain(config.model)) return largest;
  for (const spec::Preset preset : spec::presets_of(config.model.type)) {
    RunConfig other = config;
    other.model = spec::with_sizes(config.model, preset);
    const spec::ModelSpec sized = spec_of(other, spec.architecture.vocabulary.pieces);
    const SchemePlanner planner{other, sized, target};
    const SchemePlan plan = planner.memory(scheme_of(config.sharding));
    if (plan.total_bytes <= capacity_bytes(*target.gpu))
      largest = {boost::describe::enum_to_string(preset, ""), planner.spaces().parameters, plan.total_bytes};
  }
  return largest;
}

/// Activations grow with the micro-batch, state and scratch do not.
std::int64_t largest_micro_size(const RunPlan& plan, const RunConfig& config, const spec::ModelSpec& spec) {
  const StateMemory& state = plan.chosen().state;
  if (state.state() + state.translating > capacity_bytes(*plan.target.gpu)) return 0;
  const auto left = static_cast<double>(capacity_bytes(*plan.target.gpu) - state.state() - state.scratch);
  const auto fits = [&](std::int64_t micro_size) {
    return activations_of(config, spec, micro_batch_of(config, micro_size), plan.target.gpu).total() <= left;
  };
  std::int64_t fitting = 0, too_large = 1;
  while (fits(too_large)) {
    fitting = too_large;
    too_large *= 2;
  }
  while (too_large - fitting > 1) {
    const std::int64_t middle = fitting + (too_large - fitting) / 2;
    (fits(middle) ? fitting : too_large) = middle;
  }
  return fitting;
}

/// From one node to as many as leave each rank a micro-batch, doubling.
std::vector<LayoutPlan> plan_layouts(const RunConfig& config, const spec::ModelSpec& spec, const data::StepSizes& sizes,
                                     PlanTarget target) {
  std::vector<LayoutPlan> rows;
  const int most_ranks = std::max(sizes.micro_batches, target.layout.world());
  const bool is_placed = !target.placement.is_everywhere();  // on these ranks alone
  for (int nodes = is_placed ? target.layout.nodes() : 1; nodes <= most_nodes; nodes *= 2) {
    if (!is_placed) target.layout = nodes_like(target.layout, nodes);
    if (nodes > 1 && target.layout.world() > most_ranks) break;
    const SchemePlanner planner{config, spec, target};
    const SchemePlan plan = planner.plan(scheme_of(config.sharding));
    rows.push_back({.nodes = nodes,
                    .ranks = target.layout.world(),
                    .accumulation = planner.sizes().accumulation,
                    .idle_share = planner.sizes().idle_share,
                    .total_bytes = plan.total_bytes,
                    .fits = *plan.fits,
                    .step_s = *plan.step_s});
    if (is_placed) break;
  }
  return rows;
}

/// Of the tensors of every unit and rank, each dataset up to its alignment.
std::int64_t checkpoint_bytes(const spec::StateOf& state, const spec::ModelSpec& spec,
                              const partition::Layout& layout) {
  std::int64_t bytes = 0;
  for (const spec::Unit& unit : spec.units) {
    for (const spec::StateTensor& tensor : unit.kept(state)) {
      for (const spec::OwnedPart& part : spec::owned_parts({unit.flat(tensor), layout}, tensor)) {
        const std::int64_t size = part.size * static_cast<std::int64_t>(size_of(tensor.dtype));
        bytes += (size + stored_alignment - 1) / stored_alignment * stored_alignment;
      }
    }
  }
  return bytes;
}

std::optional<std::int64_t> disk_bytes(const RunConfig& config, const RunPlan& plan, const spec::ModelSpec& spec) {
  double exports = 1;  // at the end
  if (const config::Period& every = config.checkpoint.export_interval; every.count > 0) {
    if (!plan.steps || every.unit != config::Period::Unit::step) return std::nullopt;
    exports = std::ceil(*plan.steps / every.count);
  }
  spec::StateOf exported = optim::state_of(config.optimizer);
  if (config.checkpoint.export_state == ExportState::weights) {
    exported = [all = std::move(exported)](const spec::Unit& unit) {
      std::vector<spec::StateTensor> tensors = all(unit);
      std::erase_if(tensors, [](const spec::StateTensor& tensor) {
        return tensor.name != spec::weights_tensor && tensor.name != spec::mean_tensor;
      });
      return tensors;
    };
  }
  // In fp64: as many checkpoints as a setting may name are more bytes than 64 bits count.
  const double bytes =
      static_cast<double>(plan.checkpoint_bytes) * (static_cast<double>(config.checkpoint.max_checkpoints) + 1) +
      static_cast<double>(checkpoint_bytes(exported, spec, plan.target.layout)) * exports;
  return static_cast<std::int64_t>(std::min(bytes, 0x1p62));
}

constexpr Recompute recomputing[] = {Recompute::activation, Recompute::full, Recompute::block};
constexpr Scheme sharded_further[] = {Scheme::stage_2, Scheme::stage_3, Scheme::hybrid};

bool is_allowed(const RunConfig& config, Scheme scheme) {
  return scheme != Scheme::hybrid || config.sharding.reduction != Reduction::elastic;
}

RunConfig with_recompute(RunConfig config, Recompute level) {
  config.sharding.recompute = level;
  return config;
}
RunConfig with_scheme(RunConfig config, Scheme scheme) {
  config.sharding.zero_stage = scheme == Scheme::stage_2 ? 2 : 3;
  config.sharding.scope = scheme == Scheme::hybrid ? ShardingScope::hybrid : ShardingScope::world;
  return config;
}
std::string recompute_text(Recompute level) {
  return fmt::format("--set sharding.recompute={}", boost::describe::enum_to_string(level, ""));
}

/// Finds the single change that makes the run fit at the least cost in time; else the smallest number of nodes; else
/// several changes. Written as a user would type it.
class Cure {
 public:
  /// sizes: of a step, which the change keeps.
  Cure(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target, const data::StepSizes& sizes)
      : config_(config), spec_(spec), target_(target), sizes_(sizes) {}

  std::string find() {
    offer_smaller(config_, "");
    for (const Recompute level : recomputing) {
      if (level > config_.sharding.recompute) offer(with_recompute(config_, level), recompute_text(level));
    }
    for (const Scheme scheme : sharded_further) {
      if (scheme > scheme_of(config_.sharding) && is_allowed(config_, scheme))
        offer(with_scheme(config_, scheme), setting_of(scheme));
    }
    if (!best_.empty()) return best_;
    const int first = target_.placement.is_everywhere() ? 2 * target_.layout.nodes() : most_nodes + 1;
    for (int nodes = first; nodes <= most_nodes; nodes *= 2) {
      PlanTarget more = target_;
      more.layout = nodes_like(target_.layout, nodes);
      if (more.layout.world() > sizes_.micro_batches) break;
      if (*SchemePlanner(config_, spec_, more).memory(scheme_of(config_.sharding)).fits)
        return fmt::format("take {} nodes", nodes);
    }
    for (const Scheme scheme : sharded_further) {
      if (!is_allowed(config_, scheme)) continue;
      for (const Recompute level : recomputing) {
        const RunConfig both = with_recompute(with_scheme(config_, scheme), level);
        const std::string text = setting_of(scheme) + " and " + recompute_text(level);
        offer(both, text);
        offer_smaller(both, text + " and ");
      }
    }
    return best_.empty() ? RunPlan::more_gpus : best_;
  }

 private:
  /// Takes it if it fits and takes less time than the best. A forecast costs more than a sum of bytes.
  bool offer(const RunConfig& config, const std::string& text) {
    const SchemePlanner planner{config, spec_, target_};
    const Scheme scheme = scheme_of(config.sharding);
    if (!*planner.memory(scheme).fits) return false;
    const double step_s = *planner.plan(scheme).step_s;
    if (best_.empty() || step_s < worth_it * best_step_s_) {
      best_ = text;
      best_step_s_ = step_s;
    }
    return true;
  }
  /// The largest divisor of the micro-batch that fits: smaller ones take no less time.
  void offer_smaller(const RunConfig& config, const std::string& before) {
    for (std::int64_t parts = 2; parts <= std::min<std::int64_t>(sizes_.micro_size, 64); ++parts) {
      if (sizes_.micro_size % parts != 0) continue;
      const std::int64_t size = sizes_.micro_size / parts;
      const std::string text = fmt::format("{}--set batch.micro_size={}", before, size);
      if (offer(with_sizes(config, sizes_.global_size, size), text)) return;
    }
  }

  static constexpr double worth_it = 0.98;  // a later, larger change must save more than 2 % of a step

  const RunConfig& config_;
  const spec::ModelSpec& spec_;
  const PlanTarget& target_;
  const data::StepSizes& sizes_;
  std::string best_;
  double best_step_s_ = 0;
};

/// Options become a sentence.
std::string advice(const std::string& cure) { return cure.starts_with("--") ? "try " + cure : cure; }

}  // namespace

partition::Layout spread(int ranks, std::optional<int> nodes) {
  const int count = nodes.value_or((ranks + 7) / 8);
  if (count < 1 || count > ranks)
    throw_error(Fault::usage, "--nodes", fmt::format("1 to {} nodes for {} ranks", ranks, ranks),
                std::to_string(count));
  std::vector<int> sizes(static_cast<std::size_t>(count), ranks / count);
  for (int node = 0; node < ranks % count; ++node) ++sizes[static_cast<std::size_t>(node)];
  return partition::Layout(std::move(sizes));
}

void require_fits(const RunPlan& plan) {
  if (plan.cure.empty()) return;
  constexpr double gibi = 1 << 30;
  const std::string wanted = fmt::format("{:.1f} GiB per rank", static_cast<double>(plan.chosen().total_bytes) / gibi);
  const std::string got = fmt::format("{:.1f} GiB", static_cast<double>(capacity_bytes(*plan.target.gpu)) / gibi);
  throw_claim(Fault::config,
              fmt::format("the run needs {}, but the GPU ({}) has {}", wanted, plan.target.gpu->name, got), "memory",
              wanted, got, advice(plan.cure));
}

void require_state_fits(const RunPlan& plan, std::int64_t capacity_bytes) {
  const auto bytes_of = [&](const StateMemory& state) {
    return state.state() + std::max(state.scratch, state.translating) + (plan.target.gpu ? 0 : plan.copy_bytes);
  };
  const std::int64_t needed = bytes_of(plan.chosen().state);
  if (needed <= capacity_bytes) return;
  const auto in_mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string remedy = plan.cure;
  for (std::size_t scheme = 1; scheme < plan.schemes.size() && remedy.empty(); ++scheme) {
    const std::int64_t then = bytes_of(plan.schemes[scheme].state);
    if (then <= capacity_bytes)
      remedy = fmt::format("{}, which needs {:.0f} MiB", setting_of(static_cast<Scheme>(scheme)), in_mib(then));
  }
  const bool some_fit = !remedy.empty();
  remedy = some_fit ? advice(remedy) : "use more nodes, or fewer ranks per node";
  const std::string wanted = fmt::format("{:.0f} MiB per rank", in_mib(needed));
  const std::string got = fmt::format("{:.0f} MiB", in_mib(capacity_bytes));
  const int nodes = plan.target.layout.nodes();
  throw_claim(Fault::config,
              fmt::format("sharding scheme {} on {} ranks ({} {}) needs {}, but a rank has {}{}",
                          boost::describe::enum_to_string(plan.scheme, ""), plan.target.layout.world(), nodes,
                          nodes == 1 ? "node" : "nodes", wanted, got,
                          some_fit ? "" : ", and no sharding scheme fits on these nodes"),
              "memory", wanted, got, remedy);
}

namespace {

bool is_added(spec::Position position) {
  return position == spec::Position::sinusoidal || position == spec::Position::sinusoidal_fairseq ||
         position == spec::Position::learned;
}

/// Small encoders often fail to learn with a bias for each distance: after two minutes of the quickstart, t5 has 2
/// BLEU, sinusoids 30, and rope 38 (pre-norm; post-norm 32).
std::string position_warning(const spec::Architecture& shape, std::int64_t parameters) {
  constexpr std::int64_t enough = 250'000'000;
  const spec::Position position = shape.encoder_position;
  if (shape.type == spec::ModelType::decoder || is_added(position) || position == spec::Position::rope ||
      parameters >= enough)
    return {};
  return fmt::format(
      "model.encoder.position is {}, and the model has {:.1f} M parameters; below {} M, encoders often fail to learn "
      "with it; rope, sinusoidal and learned are safer",
      boost::describe::enum_to_string(position, ""), static_cast<double>(parameters) / 1e6, enough / 1'000'000);
}

/// Inputs with context are longer than most of the text.
std::string shift_warning(const RunConfig& config, const spec::Architecture& shape) {
  const bool has_context = std::ranges::any_of(config.data.corpora, [](const data::CorpusConfig& corpus) {
    return std::ranges::any_of(corpus.transforms, [](const data::TransformConfig& each) {
      return std::holds_alternative<data::Context>(each.value);
    });
  });
  if (!has_context || shape.position_shift_max > 0 || !is_added(shape.position(true)) ||
      !is_added(shape.position(false)))
    return {};
  return "with the transform context, few inputs reach the last positions; model.position_shift_max (SHAPE), such as "
         "100, trains all of them alike";
}

std::string noise_warning(const spec::Architecture& shape) {
  if (shape.neftune_alpha == 0) return {};
  return fmt::format(
      "model.neftune_alpha is {}: NEFTune often ruins models; compare the validations with those of a run without it",
      shape.neftune_alpha);
}

/// Of the schedules whose keys do not say their peak.
std::string peak_line(const optim::Schedule& schedule) {
  using Style = optim::ScheduleStyle;
  if (schedule.style != Style::noam && schedule.style != Style::rsqrt && schedule.style != Style::exponential_decay)
    return {};
  const double at = schedule.rises() ? schedule.warmup : 1;
  return fmt::format("the peak of schedule {} is {:.4g}, at {:.6g}",
                     boost::describe::enum_to_string(schedule.style, ""), optim::learning_rate(schedule, at), at);
}

std::string warmup_warning(const optim::OptimizerConfig& optimizer, const optim::Schedule& schedule) {
  if (schedule.rises() || optimizer.relative_step) return {};
  const std::string why =
      schedule.warmup == 0 && schedule.style != optim::ScheduleStyle::exponential_decay
          ? "schedule.warmup is 0"
          : fmt::format("schedule.style {} has no warm-up", boost::describe::enum_to_string(schedule.style, ""));
  return why + ": the first updates are full-size and training may diverge";
}

/// Kernels compute with vectors and tiles of 8 numbers or a multiple of it.
std::string size_warning(const spec::Architecture& shape) {
  constexpr std::int64_t tile = 8;
  std::vector<std::string> odd;
  for (const auto& [size, key] : {std::pair{shape.width, "width"},
                                  {shape.ff, "ff"},
                                  {shape.head_size, "head_size"},
                                  {shape.vocabulary.rows, "vocab_size, rounded up to model.vocab_multiple,"}}) {
    if (size % tile != 0) odd.push_back(fmt::format("model.{} is {}", key, size));
  }
  if (odd.empty()) return {};
  return fmt::format("{}; matrices are slow unless their sizes are multiples of {}: choose the next multiple",
                     fmt::join(odd, ", "), tile);
}

/// For the least loss at a given cost, a language model reads about 20 tokens for each of its parameters. Weights that
/// are trained already need fewer.
std::string tokens_warning(const RunConfig& config, const RunPlan& plan) {
  constexpr double usual = 20, few = usual / 20, many = usual * 100;
  if (!plan.positions_in_all || plan.spaces.parameters == 0) return {};
  const auto parameters = static_cast<double>(plan.spaces.parameters);
  const double each = *plan.positions_in_all / parameters;
  if (each <= many && (each >= few || config.init_from)) return {};
  const auto count = [](double number) {
    return number < 1e9 ? fmt::format("{:.3g} M", number / 1e6) : fmt::format("{:.3g} G", number / 1e9);
  };
  return fmt::format(
      "the run reads {} {} for {} parameters, {:.3g} for each; about {} are usual (arXiv:2203.15556), {}",
      count(*plan.positions_in_all), plan.position_name, count(parameters), each, usual,
      each < few ? "so the model is large for its training: raise schedule.length, or take a smaller model"
                 : "so a larger model would learn more from them: raise the sizes in model");
}

/// Of AdamW, and of Muon, whose updates are as large. Weights that are trained already may go on with any lower rate.
std::string lr_warning(const RunConfig& config, const optim::Schedule& schedule, const spec::ModelSpec& spec) {
  constexpr double far = 10;
  double parameters = 0;
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters)
      parameters += unit.is_block ? static_cast<double>(parameter.numel()) : 0;
  }
  if (config.optimizer.type == optim::OptimizerType::adafactor || parameters == 0) return {};
  const double peak = optim::learning_rate(schedule, schedule.rises() ? schedule.warmup : 1.0);
  const double usual = optim::usual_lr(parameters);
  if (peak <= far * usual && (peak >= usual / far || config.init_from)) return {};
  return fmt::format(
      "the peak of the learning rate is {:.3g}, which is unusually {} for a model of this size ({:.1f} M parameters in "
      "blocks); a usual schedule.lr is {:.1g}",
      peak, peak > usual ? "high" : "low", parameters / 1e6, usual);
}

}  // namespace

RunPlan plan_run(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& wanted,
                 const data::ShardIndex* shards) {
  const PlanTarget target = wanted.route_shares.empty() ? placed(wanted, config, spec, shards) : wanted;
  const spec::Architecture& shape = spec.architecture;
  const SchemePlanner planner{config, spec, target};
  RunPlan plan{.target = target, .spaces = planner.spaces(), .sizes = planner.sizes()};
  plan.position_name = is_language_model(config) ? "tgt_tokens" : "padded_tokens";
  const MicroBatch& batch = planner.micro_batch();
  const double positions = batch.source_positions + batch.target_positions;
  plan.positions_per_step = positions * plan.sizes.micro_batches;
  plan.parameters = spec::trained_count(spec);
  plan.components = components_line(spec, target.placement, target.layout.world());
  if (!target.placement.is_everywhere()) {
    plan.tasks = task_lines(spec, target.placement);
    plan.other_placements = other_placements(config, spec, target, plan.sizes.micro_batches);
    plan.ranks = planner.ranks(scheme_of(config.sharding));
  }
  plan.state_bytes = planner.state_bytes(scheme_of(config.sharding));
  const config::Period& length = config.schedule.length;
  if (length.unit == config::Period::Unit::step) plan.steps = length.count;
  if (length.unit == config::Period::Unit::tgt_token && is_language_model(config))
    plan.steps = std::ceil(length.count / plan.positions_per_step);
  if (shards != nullptr) plan.data = plan_data(config, plan.sizes, *shards);
  if (!plan.steps && plan.data) plan.steps = std::ceil(plan.data->steps);
  if (plan.steps) plan.positions_in_all = *plan.steps * plan.positions_per_step;

  telemetry::Work work = work_of(shape, batch);
  plan.flops = telemetry::flops_of(flop_shape(spec), work);
  plan.flops = {.causal = plan.flops.causal / positions, .full = plan.flops.full / positions};
  const auto width = static_cast<std::int64_t>(batch.target_width);
  work.decoder_pairs = batch.target_positions / batch.target_width * telemetry::exact_pairs(width, shape.window);
  plan.exact_flops = telemetry::flops_of(flop_shape(spec), work).causal / positions;

  plan.activations = planner.activations();
  plan.scheme = scheme_of(config.sharding);
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
    if (is_allowed(config, scheme)) plan.schemes.push_back(planner.plan(scheme));
  }
  if (config.sharding.reduction != Reduction::elastic)
    plan.comparisons = {planner.plan(Comparison::ddp), planner.plan(Comparison::hsdp)};
  if (target.gpu != nullptr) {
    const RunConfig same_step = with_sizes(config, plan.sizes.global_size, plan.sizes.micro_size);
    plan.layouts = plan_layouts(same_step, spec, plan.sizes, target);
    plan.largest_micro_size = largest_micro_size(plan, config, spec);
    plan.largest_preset = largest_preset(same_step, spec, target);
    if (!*plan.chosen().fits) plan.cure = Cure(same_step, spec, target, plan.sizes).find();
  }
  const optim::Schedule schedule = schedule_of(config);
  for (const double at : {1.0, schedule.warmup, schedule.decay_end / 2, schedule.decay_end}) {
    if (at > 0) plan.learning_rates.emplace_back(at, optim::learning_rate(schedule, at));
  }
  plan.adamw_state_bytes = space_sizes(spec, target.layout, optim::state_of({.ema = config.optimizer.ema}),
                                       target.placement, planner.fullest_rank())
                               .state.owned;
  if (!config.optimizer.relative_step) plan.peak_line = peak_line(schedule);
  for (std::string& warning :
       std::array{position_warning(shape, plan.spaces.parameters), warmup_warning(config.optimizer, schedule),
                  lr_warning(config, schedule, spec), tokens_warning(config, plan), size_warning(shape),
                  noise_warning(shape), shift_warning(config, shape)})
    if (!warning.empty()) plan.advice.push_back(std::move(warning));
  plan.checkpoint_bytes = checkpoint_bytes(optim::state_of(config.optimizer), spec, target.layout);
  plan.copy_bytes = copied_bytes(plan.spaces);
  plan.disk_bytes = disk_bytes(config, plan, spec);
  return plan;
}

}  // namespace argosy::plan
