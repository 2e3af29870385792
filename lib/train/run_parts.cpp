#include "train/run_parts.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "comm/nccl_collectives.hpp"
#include "core/error.hpp"
#include "data/preprocess.hpp"
#include "kernels/tensor_memory.hpp"
#include "model/stored_model.hpp"
#include "model/stored_spec.hpp"
#include "plan/adapter_rank.hpp"
#include "plan/micro_size.hpp"
#include "plan/placement_plan.hpp"
#include "plan/plan_lines.hpp"
#include "plan/sharing.hpp"
#include "train/process.hpp"
#include "train/start_agreement.hpp"

namespace argosy::train {
namespace {

DType wire_type(plan::WireType type) { return type == plan::WireType::bf16 ? DType::bf16 : DType::f32; }

plan::ReduceEvery reduce_every(const plan::RunConfig& config) {
  return config.sharding.reduction == plan::Reduction::elastic ? plan::ReduceEvery::micro_batch
                                                               : plan::ReduceEvery::step;
}

/// The sizes of a step. Where batch.micro_size is auto: with `kept` if there is one, else with the largest that fits.
/// **Collective.** Throws Error{config}.
data::StepSizes sizes_of(const comm::Context& context, const plan::RunConfig& config, const spec::ModelSpec& spec,
                         const plan::PlanTarget& target, std::optional<std::int64_t> kept) {
  const int world = context.topology.world_size();
  if (!config.batch.micro_size.is_auto) return data::resolve_sizes(config.batch, world);
  if (!kept) {
    const plan::MicroSizeChoice choice = plan::choose_micro_size(config, spec, target);
    context.log.info("{}", plan::line_of(choice));
    return choice.sizes;
  }
  plan::RunConfig sized = config;
  sized.batch.micro_size = *kept;
  const data::StepSizes sizes = data::resolve_sizes(sized.batch, world);
  context.log.info("batch.micro_size auto: {}, as the run began; accumulation {}", *kept, sizes.accumulation);
  const std::int64_t forecast = plan::full_length_bytes(config, spec, target, sizes);
  if (context.is_root() && target.rank_bytes && forecast > *target.rank_bytes) {
    context.log.warn(
        "batch.micro_size {}, with which this run began, may need {:.1f} MiB per rank (estimate), but a rank has "
        "{:.1f} "
        "MiB; --allow-change batch chooses a size for this machine, and changes the order of the data",
        *kept, static_cast<double>(forecast) / (1 << 20), static_cast<double>(*target.rank_bytes) / (1 << 20));
  }
  return sizes;
}

/// The largest rank of adapters that fits. Throws Error{config}.
std::int64_t fitting_rank(const comm::Context& context, const plan::RunConfig& config, std::int64_t pieces,
                          const plan::PlanTarget& target, const data::ShardIndex& counts) {
  const plan::AdapterRankChoice choice = plan::choose_adapter_rank(config, pieces, target, &counts);
  context.log.info("{}", plan::line_of(choice));
  return choice.rank;
}

/// The run's plan. Throws Error{config} if this rank's device cannot run it or has too little memory for it.
plan::RunPlan affordable_plan(const comm::Context& context, const plan::RunConfig& config, const RunFacts& facts,
                              const plan::PlanTarget& target, const data::ShardIndex& counts, c10::Device device) {
  if (device.is_cuda() && config.sharding.reduction == plan::Reduction::elastic)
    throw_error(Fault::config, "sharding.reduction", "exact or fast on a GPU", "elastic, which needs device: cpu",
                "choose another reduction, or set device to cpu");
  plan::RunPlan plan = plan::plan_run(plan::with_micro_size(config, facts.sizes),
                                      plan::spec_of(config, facts.vocab_live), target, &counts);
  if (const auto memory = rank_memory_bytes(device, context)) plan::require_state_fits(plan, *memory);
  return plan;
}

}  // namespace

Kept kept_of(const checkpoint::Reader& reader, const plan::RunConfig& config, bool keeps_size, int world) {
  Kept kept;
  if (keeps_size) kept.micro_size = micro_size_of(reader, *config.batch.global_size);
  if (config.lora && (!config.lora->rank || !config.lora->train_embeddings)) {
    if (const auto lora = model::stored_lora(reader)) {
      kept.adapter_rank = lora->rank;
      kept.train_embeddings = lora->train_embeddings.value_or(false);
    }
  }
  if (config.placement.is_auto) {
    const RunState state = state_of(reader);
    const auto has_task = [&](const auto& placed) {
      return std::ranges::count(config.data.corpora, placed.first, &data::CorpusConfig::name) > 0;
    };
    if (state.threads.ranks == world && !state.placement.empty())
      kept.placement = plan::PlacementConfig::parse(state.placement).tasks;
    if (kept.placement.size() != config.data.corpora.size() || !std::ranges::all_of(kept.placement, has_task))
      kept.placement.clear();
  }
  return kept;
}

std::optional<std::int64_t> least_memory(const comm::Context& context, c10::Device device) {
  const auto own = read_on_all(context, [&] { return rank_memory_bytes(device, context); });
  std::int64_t least = own.value_or(0);
  context.world.all_reduce(std::span{&least, 1}, comm::Reduce::min);
  return least > 0 ? std::optional(least) : std::nullopt;
}

comm::CollectivesOptions collectives_options(const plan::RunConfig& config) {
  return {.reduction = config.sharding.reduction,
          .wire_inner = wire_type(config.precision.gradient_wire.inner),
          .wire_outer = wire_type(config.precision.gradient_wire.outer)};
}

RunParts::RunParts(comm::Context& of_context, const plan::RunConfig& of_config)
    : context(of_context),
      config(of_config),
      schedule(plan::schedule_of(config)),
      choices{.scheme = plan::scheme_of(config.sharding),
              .order = config.sharding.accumulation_order,
              .reduce_every = reduce_every(config)},
      loss{.label_smoothing = plan::label_smoothing_of(config),
           .z = config.loss.z,
           .error_norm_truncation = config.loss.error_norm_truncation,
           .chunk_bytes =
               config.loss.chunk_bytes > 0 ? config.loss.chunk_bytes : std::numeric_limits<std::int64_t>::max()} {}

void RunParts::open() {
  stop.emplace(context, config.stop);
  device = choose_device(config.device, context);
  store.emplace(context, config.run_dir,
                checkpoint::Store::Options{.max_checkpoints = config.checkpoint.max_checkpoints});
  if (config.telemetry.log_file && context.is_root()) {
    const Path path = store->run_dir() / "rank0.log";
    BestEffort(context.log, path.string()).attempt(0, [&] { context.log.copy_to(context.files.own().append(path)); });
  }
}

void RunParts::set_up(const Kept& kept) {
  if (config.data.mode == data::DataMode::online) {
    const data::PreprocessSettings settings{.data = config.data,
                                            .vocabulary = spec::vocabulary_rule(config.model),
                                            .cache = data::cache_folder(config.data, config.run_dir)};
    if (!data::is_preprocessed(context.world, context.files, context.log, settings))
      (void)data::run_preprocess(context.world, context.files, context.log, settings);
  }
  tokenizer = read_on_all(context, [&] {
    data::Tokenizer read = data::read_tokenizer(context.files, config.data, spec::vocabulary_rule(config.model));
    model::require_embeddings(Fault::config, read, spec::resolve(config.model, read.vocabulary().pieces),
                              "data.tokenizer");
    return read;
  });
  const std::vector<data::CountedCorpus> texts =
      data::online_corpora(context.world, context.files, context.log, config.data, config.run_dir);
  shards = read_on_all(context, [&] {
    auto opened = data::TokenShards::open(context.files, config.data, *tokenizer, data::Part::train, texts);
    if (opened.has_source()) opened.require_at_most(config.model.max_positions - config.model.position_shift_max);
    return opened;
  });
  static_cast<void>(same_on_all_ranks(context.world, tokenizer->digest(), "tokenizer", "data.tokenizer"));
  facts = {.tokenizer = data::digests_of(*tokenizer),
           .data = same_on_all_ranks(context.world, shards->fingerprint(), "token shards", "data.shards"),
           .vocab_live = tokenizer->vocabulary().pieces,
           .sizes = {},
           .world = context.topology.world_size()};
  if (config.lora && !config.lora->train_embeddings) {
    const bool trains = kept.train_embeddings ? *kept.train_embeddings : read_on_all(context, [&] {
      return plan::has_new_embeddings(context.files, config.init_from.value());
    });
    config.lora->train_embeddings = trains;
    if (trains) context.log.info("lora.train_embeddings auto: true, since init_from has new pieces or no embeddings");
  }
  if (!kept.placement.empty()) config.placement = {.tasks = kept.placement};
  plan::PlanTarget target{
      .layout = context.topology.layout(), .gpu = planned_gpu(device), .rank_bytes = least_memory(context, device)};
  const data::ShardIndex counts = read_on_all(context, [&] {
    data::ShardIndex read = data::read_shard_index(context.files, config.data.shards);
    if (config.lora && !config.lora->rank)
      config.lora->rank =
          kept.adapter_rank ? *kept.adapter_rank : fitting_rank(context, config, facts.vocab_live, target, read);
    target = plan::placed(target, config, plan::spec_of(config, facts.vocab_live), &read);
    return read;
  });
  placement = target.placement;
  facts.sizes = sizes_of(context, config, plan::spec_of(config, facts.vocab_live), target, kept.micro_size);
  choices.micro_batches = facts.sizes.accumulation;
  sets = read_on_all(context, [&] {
    const spec::ModelSpec spec = plan::spec_of(config, facts.vocab_live);
    std::vector<std::vector<int>> ranks;
    if (!placement.is_everywhere())
      for (const std::uint32_t route : routes_of_sets(config, spec)) ranks.push_back(placement.routes[route]);
    std::vector<EvaluationSet> read = evaluation_sets(context, config, *tokenizer, facts.sizes, texts, ranks);
    set_routes(read, config, spec);
    return read;
  });
  for (const EvaluationSet& set : sets) {
    if (set.ranks.empty() || !plan::translated_lines_of(config.validation).any() || translators.contains(set.ranks))
      continue;
    const int color = std::ranges::binary_search(set.ranks, context.topology.canonical_rank()) ? 1 : 0;
    translators.emplace(set.ranks, context.world.split(color, context.topology.canonical_rank()));
  }

  plan = read_on_all(context, [&] { return affordable_plan(context, config, facts, target, counts, device); });
  if (device.is_cpu()) kernels::reserve_tensor_memory(static_cast<std::size_t>(plan->chosen().total_bytes));
  make_model(facts.vocab_live);
}

void RunParts::make_model(std::int64_t vocab_live) {
  const spec::ModelSpec spec = plan::spec_of(config, vocab_live);
  const comm::Topology& all = context.topology;
  std::vector<partition::Layout> layouts;
  std::vector<int> ranks;
  for (std::size_t c = 0; c < spec.components.size(); ++c) {
    layouts.push_back(placement.layout_of(c, all.layout()));
    ranks.push_back(placement.rank_in(c, all.canonical_rank()));
  }
  model.emplace(spec, layouts);
  other_bytes = kernels::memory_of(device).bytes;
  buffers.emplace(
      *model, std::move(ranks),
      BufferChoices{.scheme = choices.scheme,
                    .reduce_every = choices.reduce_every,
                    .compute_type = config.precision.mode == plan::PrecisionMode::fp32 ? at::kFloat : at::kBFloat16,
                    .master_type = plan::has_wide_master(config) ? at::kFloat : at::kBFloat16,
                    .seed = config.seed,
                    .state = optim::state_of(config.optimizer),
                    .device = device});
  host.emplace(*model, *buffers, device, placement, all.world_size());
  state_bytes = kernels::memory_of(device).bytes - other_bytes;
  const auto collectives_of = [&](const comm::Topology& topology) {
    return comm::make_collectives(topology, collectives_options(config), device.is_cuda());
  };
  collectives = collectives_of(all);
  for (const std::vector<int>& members : placement.groups()) {
    std::optional<comm::Topology> topology = all.part(members, plan::name_of_group(spec, placement, members));
    if (!topology) continue;
    Part& part = parts.emplace(members, Part{std::move(*topology), nullptr}).first->second;
    part.collectives = collectives_of(part.topology);
  }
}

bool RunParts::computes(std::size_t route) const {
  return placement.is_everywhere() ||
         std::ranges::binary_search(placement.routes[route], context.topology.canonical_rank());
}

boost::json::object RunParts::compare_memory(std::int64_t step) const {
  const std::int64_t planned = plan->state_bytes[static_cast<std::size_t>(context.topology.canonical_rank())];
  std::array<std::int64_t, 4> bytes{state_bytes, kernels::memory_of(device).peak_bytes - other_bytes - state_bytes,
                                    host->size_bytes(), std::abs(state_bytes - planned)};
  context.world.all_reduce(std::span<std::int64_t>{bytes}, comm::Reduce::max);
  context.log.info("after step {}: {}", step, plan::memory_line(*plan, bytes[0], bytes[1]));
  return {{"state_bytes", bytes[0]},           {"planned_state_bytes", plan->chosen().state.state()},
          {"activation_bytes", bytes[1]},      {"planned_activation_bytes", plan->activations.total()},
          {"checkpoint_copy_bytes", bytes[2]}, {"planned_checkpoint_copy_bytes", plan->copy_bytes},
          {"state_off_plan_bytes", bytes[3]}};
}

std::vector<std::optional<comm::Group>> RunParts::groups() const {
  const auto group_of = [](const comm::Topology& topology, comm::Collectives& of) {
    return comm::Group{topology.layout(), topology.canonical_rank(), of};
  };
  std::vector<std::optional<comm::Group>> groups;
  for (std::size_t c = 0; c < model->spec().components.size(); ++c) {
    const std::vector<int>& members = placement.members(c);
    const auto part = parts.find(members);
    if (members.empty()) {
      groups.emplace_back(group_of(context.topology, *collectives));
    } else if (part == parts.end()) {
      groups.emplace_back();
    } else {
      groups.emplace_back(group_of(part->second.topology, *part->second.collectives));
    }
  }
  return groups;
}

}  // namespace argosy::train
