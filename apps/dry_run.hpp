#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "data/tokenizer_files.hpp"
#include "interchange/formats.hpp"
#include "plan/adapter_rank.hpp"
#include "plan/micro_size.hpp"
#include "plan/placement_plan.hpp"
#include "plan/plan_lines.hpp"
#include "train/process.hpp"

/// `train --dry-run`: what a run would need, without a run.
namespace argosy::app {

/// Pieces of the vocabulary, 0 if they are not known before a tokenizer exists.
inline std::int64_t vocabulary_of(const plan::RunConfig& config, const comm::Context& context) {
  std::int64_t pieces = config.model.vocab_size.value_or(0);
  comm::agree(context.world, [&] {
    if (pieces > 0) return;
    if (data::has_tokenizer(context.files, config.data)) {
      pieces =
          data::read_tokenizer(context.files, config.data, spec::vocabulary_rule(config.model)).vocabulary().pieces;
    } else if (config.data.tokenizer_training) {
      pieces = config.data.tokenizer_training->vocab_size;
    }
  });
  return pieces;
}

/// What preprocess counted, if it has been run.
inline std::optional<data::ShardIndex> counts_of(const plan::RunConfig& config, const comm::Context& context) {
  std::optional<data::ShardIndex> index;
  comm::agree(context.world, [&] {
    const Path folder = config.data.shards;
    if (context.files.exists(data::shard_index_path(folder))) index = data::read_shard_index(context.files, folder);
  });
  return index;
}

/// The options of --dry-run.
struct DryRun {
  bool asked = false, json = false;
  std::optional<int> ranks, nodes;
  std::string gpu = "h100";
  std::optional<double> node_giga_bytes_per_s, positions_per_s;
};

inline constexpr int most_ranks = 1 << 20, most_nodes = most_ranks / 8;
inline void add_options(CLI::App& app, DryRun& dry_run) {
  app.add_flag("--dry-run", dry_run.asked, "print the plan (memory, traffic, time, disk) and exit");
  app.add_flag("--json", dry_run.json, "with --dry-run: print the plan as one JSON object on stdout and nothing else");
  app.add_option("--ranks", dry_run.ranks,
                 "with --dry-run or --print-tasks: number of ranks, one per GPU; default: 8 for each node")
      ->check(CLI::Range(1, most_ranks));
  app.add_option("--nodes", dry_run.nodes,
                 "with --dry-run or --print-tasks: number of nodes; default: one for every 8 of --ranks")
      ->check(CLI::Range(1, most_nodes));
  app.add_option("--gpu", dry_run.gpu, "with --dry-run: the GPU whose memory and speed are assumed")
      ->check(CLI::IsMember({"h100", "h200", "a100"}))
      ->capture_default_str();
  app.add_option("--node-gbs", dry_run.node_giga_bytes_per_s,
                 "with --dry-run: GB/s that a node can send; default: 45 for each GPU of the node (a100: 22.5)")
      ->check(CLI::PositiveNumber);
  app.add_option("--gpu-rate", dry_run.positions_per_s,
                 "with --dry-run: measured tgt_tokens/s (translation: padded_tokens/s) of a single GPU")
      ->check(CLI::PositiveNumber);
}

/// The ranks for which a run is planned.
inline plan::PlanTarget target_of(const plan::RunConfig& config, const DryRun& dry_run, const comm::Context& context) {
  plan::PlanTarget target{.layout = context.topology.layout(),
                          .gpu = config.device == "cpu" ? nullptr : plan::gpu_by_name(dry_run.gpu),
                          .gpu_positions_per_s = dry_run.positions_per_s};
  if (dry_run.ranks || dry_run.nodes)
    target.layout = plan::spread(dry_run.ranks.value_or(dry_run.nodes.value_or(1) * 8), dry_run.nodes);
  if (dry_run.node_giga_bytes_per_s) target.node_bytes_per_s = 1e9 * *dry_run.node_giga_bytes_per_s;
  target.rank_bytes = target.gpu != nullptr ? plan::capacity_bytes(*target.gpu)
                                            : train::host_memory_bytes(context.files, target.layout.slots());
  return target;
}

inline void print_plan(plan::RunConfig config, const DryRun& dry_run, const comm::Context& context) {
  plan::require_trainable(config);
  plan::PlanTarget target = target_of(config, dry_run, context);
  const std::optional<data::ShardIndex> counts = counts_of(config, context);
  const std::int64_t pieces = vocabulary_of(config, context);
  if (config.lora && !config.lora->train_embeddings)
    config.lora->train_embeddings = plan::has_new_embeddings(context.files, config.init_from.value());
  if (config.lora && !config.lora->rank) {
    const plan::AdapterRankChoice chosen =
        plan::choose_adapter_rank(config, pieces, target, counts ? &*counts : nullptr);
    if (!dry_run.json) context.log.plain(plan::line_of(chosen));
    config.lora->rank = chosen.rank;
  }
  const spec::ModelSpec spec = plan::spec_of(config, pieces);
  target = plan::placed(target, config, spec, counts ? &*counts : nullptr);
  std::optional<plan::MicroSizeChoice> choice;
  if (config.batch.micro_size.is_auto) choice = plan::choose_micro_size(config, spec, target);
  const plan::RunConfig sized = choice ? plan::with_micro_size(config, choice->sizes) : config;
  const plan::RunPlan plan = plan::plan_run(sized, spec, target, counts ? &*counts : nullptr);
  if (dry_run.json) {
    context.print(config::text_of(plan::json_of(plan)) + "\n");
  } else {
    if (choice) context.log.plain(plan::line_of(*choice));
    const std::vector<std::string> formats = interchange::formats_for(spec.architecture);
    for (const std::string& line : plan::lines_of(plan, sized, plan::Schemes::all, formats)) context.log.plain(line);
    for (const std::string& warning : plan::warnings_of(plan))
      if (context.is_root()) context.log.warn("{}", warning);
  }
  plan::require_fits(plan);
}

}  // namespace argosy::app
