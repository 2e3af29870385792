#include "train/run_parts.hpp"

#include <limits>

#include "comm/nccl_collectives.hpp"
#include "core/error.hpp"
#include "data/preprocess.hpp"
#include "train/memory_count.hpp"
#include "train/process.hpp"
#include "train/start_agreement.hpp"

namespace argosy::train {
namespace {

DType wire_type(plan::WireType type) { return type == plan::WireType::bf16 ? DType::bf16 : DType::f32; }

plan::ReduceEvery reduce_every(const plan::RunConfig& config) {
  return config.sharding.reduction == plan::Reduction::elastic ? plan::ReduceEvery::micro_batch
                                                               : plan::ReduceEvery::step;
}

/// The run's plan. Throws Error{config} if this rank's device cannot run it or has too little memory for it.
plan::RunPlan affordable_plan(const comm::Context& context, const plan::RunConfig& config, std::int64_t vocab_live,
                              c10::Device device) {
  if (device.is_cuda() && config.sharding.reduction == plan::Reduction::elastic)
    throw_error(Fault::config, "sharding.reduction", "exact or fast on a GPU", "elastic, which needs device: cpu",
                "choose another reduction, or set device to cpu");
  const data::ShardIndex counts = data::read_shard_index(context.files, config.data.shards);
  plan::RunPlan plan = plan::plan_run(config, plan::spec_of(config, vocab_live),
                                      {.layout = context.topology.layout(), .gpu = planned_gpu(device)}, &counts);
  if (const auto memory = rank_memory_bytes(device, context.topology)) plan::require_state_fits(plan, *memory);
  return plan;
}

}  // namespace

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
           .chunk_bytes =
               config.loss.chunk_bytes > 0 ? config.loss.chunk_bytes : std::numeric_limits<std::int64_t>::max()} {}

void RunParts::set_up() {
  stop.emplace(context, config.stop);
  device = choose_device(config.device, context);
  store.emplace(context, config.run_dir,
                checkpoint::Store::Options{.max_checkpoints = config.checkpoint.max_checkpoints});
  if (config.telemetry.log_file && context.is_root()) {
    const Path path = store->run_dir() / "rank0.log";
    BestEffort(context.log, path.string()).attempt(0, [&] { context.log.copy_to(context.files.own().append(path)); });
  }

  if (config.data.mode == data::DataMode::online) {
    const data::PreprocessSettings settings{.data = config.data,
                                            .vocabulary = spec::vocabulary_rule(config.model),
                                            .cache = data::cache_folder(config.data, config.run_dir)};
    if (!data::is_preprocessed(context.world, context.files, context.log, settings))
      (void)data::run_preprocess(context.world, context.files, context.log, settings);
  }
  tokenizer = read_on_all(context, [&] {
    return data::Tokenizer::read(context.files, config.data.tokenizer, spec::vocabulary_rule(config.model));
  });
  shards = read_on_all(context, [&] {
    auto opened = data::TokenShards::open(context.files, config.data, *tokenizer, data::Part::train);
    if (opened.has_source()) opened.require_at_most(config.model.max_positions, *tokenizer);
    return opened;
  });
  facts = {.tokenizer = same_on_all_ranks(context.world, tokenizer->digest(), "tokenizer", "data.tokenizer"),
           .data = same_on_all_ranks(context.world, shards->fingerprint(), "token shards", "data.shards"),
           .vocab_live = tokenizer->vocabulary().pieces,
           .sizes = data::resolve_sizes(config.batch, context.topology.world_size()),
           .world = context.topology.world_size()};
  choices.micro_batches = facts.sizes.accumulation;
  sets = read_on_all(context, [&] { return evaluation_sets(context, config, *tokenizer, facts.sizes); });

  plan = read_on_all(context, [&] { return affordable_plan(context, config, facts.vocab_live, device); });

  model.emplace(plan::spec_of(config, facts.vocab_live), context.topology.layout());
  other_bytes = memory_of(device).bytes;
  buffers.emplace(
      *model, std::vector{context.topology.canonical_rank()},
      BufferChoices{.scheme = choices.scheme,
                    .reduce_every = choices.reduce_every,
                    .compute_type = config.precision.mode == plan::PrecisionMode::fp32 ? at::kFloat : at::kBFloat16,
                    .master_type = plan::has_wide_master(config) ? at::kFloat : at::kBFloat16,
                    .seed = config.seed,
                    .state = optim::state_of(config.optimizer),
                    .device = device});
  host.emplace(*model, *buffers, device);
  state_bytes = memory_of(device).bytes - other_bytes;
  collectives = comm::make_collectives(context.topology, collectives_options(config), device.is_cuda());
}

}  // namespace argosy::train
