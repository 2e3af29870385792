#include <CLI/CLI.hpp>

#include "app.hpp"
#include "comm/launcher.hpp"
#include "interchange/formats.hpp"
#include "interchange/source.hpp"
#include "plan/plan_lines.hpp"
#include "train/trainer.hpp"

namespace {

using namespace argosy;

constexpr std::string_view examples =
    "  mpiexec -n 2 apps/train configs/tiny.json                          train; the same command again resumes\n"
    "  apps/train configs/mistral_7b.json --dry-run --ranks 128           forecasts memory, network traffic and time";

/// Pieces of the vocabulary, 0 if they are not known before a tokenizer exists.
std::int64_t vocabulary_of(const plan::RunConfig& config, const comm::Context& context) {
  std::int64_t pieces = config.model.vocab_size.value_or(0);
  comm::agree(context.world, [&] {
    if (pieces > 0) return;
    if (context.files.exists(config.data.tokenizer)) {
      pieces = data::Tokenizer::read(context.files, config.data.tokenizer, spec::vocabulary_rule(config.model))
                   .vocabulary()
                   .pieces;
    } else if (config.data.tokenizer_training) {
      pieces = config.data.tokenizer_training->vocab_size;
    }
  });
  return pieces;
}

/// What preprocess counted, if it has been run.
std::optional<data::ShardIndex> counts_of(const plan::RunConfig& config, const comm::Context& context) {
  std::optional<data::ShardIndex> index;
  comm::agree(context.world, [&] {
    const Path folder = config.data.shards;
    if (context.files.exists(data::shard_index_path(folder))) index = data::read_shard_index(context.files, folder);
  });
  return index;
}

/// The options of --dry-run.
struct Question {
  bool asked = false, json = false;
  std::optional<int> ranks, nodes;
  std::string gpu = "h100";
  std::optional<double> node_giga_bytes_per_s, positions_per_s;
};

constexpr int most_ranks = 1 << 20, most_nodes = most_ranks / 8;
void add_question(CLI::App& app, Question& question) {
  app.add_flag("--dry-run", question.asked, "print the plan (memory, traffic, time, disk) and exit");
  app.add_flag("--json", question.json, "with --dry-run: print the plan as one JSON object on stdout and nothing else");
  app.add_option("--ranks", question.ranks, "with --dry-run: number of ranks, one per GPU; default: 8 for each node")
      ->check(CLI::Range(1, most_ranks));
  app.add_option("--nodes", question.nodes, "with --dry-run: number of nodes; default: one for every 8 of --ranks")
      ->check(CLI::Range(1, most_nodes));
  app.add_option("--gpu", question.gpu, "with --dry-run: the GPU whose memory and speed are assumed")
      ->check(CLI::IsMember({"h100", "h200", "a100"}))
      ->capture_default_str();
  app.add_option("--node-gbs", question.node_giga_bytes_per_s,
                 "with --dry-run: GB/s that a node can send; default: 45 for each GPU of the node (a100: 22.5)")
      ->check(CLI::PositiveNumber);
  app.add_option("--gpu-rate", question.positions_per_s,
                 "with --dry-run: measured tgt_tokens/s (translation: padded_tokens/s) of a single GPU")
      ->check(CLI::PositiveNumber);
}

void print_plan(const plan::RunConfig& config, const Question& question, const comm::Context& context) {
  plan::require_trainable(config);
  const spec::Architecture shape = spec::resolve(config.model, vocabulary_of(config, context));
  plan::PlanTarget target{.layout = context.topology.layout(),
                          .gpu = config.device == "cpu" ? nullptr : plan::gpu_by_name(question.gpu),
                          .gpu_positions_per_s = question.positions_per_s};
  if (question.ranks || question.nodes)
    target.layout = plan::spread(question.ranks.value_or(question.nodes.value_or(1) * 8), question.nodes);
  if (question.node_giga_bytes_per_s) target.node_bytes_per_s = 1e9 * *question.node_giga_bytes_per_s;
  const std::optional<data::ShardIndex> counts = counts_of(config, context);
  const plan::RunPlan plan = plan::plan_run(config, shape, target, counts ? &*counts : nullptr);
  if (question.json) {
    context.print(config::text_of(plan::json_of(plan)) + "\n");
  } else {
    const std::vector<std::string> lines =
        plan::lines_of(plan, config, plan::Schemes::all, interchange::formats_for(shape));
    for (const std::string& line : lines) context.log.plain(line);
    for (const std::string& warning : plan::warnings_of(plan)) {
      if (context.is_root()) context.log.warn("{}", warning);
    }
  }
  plan::require_fits(plan);
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    train::TrainOptions training;
    Question question;
    CLI::App app{"Trains a model on token shards and saves checkpoints. The same command resumes."};
    app::add_config_options(app, options);
    app.add_option("--resume", training.resume, "auto (the newest checkpoint of run_dir) or a checkpoint's directory")
        ->capture_default_str();
    app.add_flag("--from-scratch", training.from_scratch, "start over; old checkpoints are moved aside");
    app.add_flag("--abandon-newer", training.abandon_newer,
                 "with --resume DIR: rename intact checkpoints newer than DIR to .old-…; if there are any and this "
                 "option is not given, train ends with code 2");
    app.add_option(
           "--allow-change", training.allow_changes,
           "accept a changed key on resume: data, batch, seed, precision, loss or optimizer.type; may be repeated")
        ->type_name("KEY")
        ->allow_extra_args(false);
    app.add_flag("--profile", training.profile, "at the end, print where the time of a step went (rank 0, CPU)");
    add_question(app, question);
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;
    training.request = comm::environment_variable("ARGOSY_REQUEST").value_or("");
    training.formats_for = interchange::formats_for;
    training.open_model = [](comm::Context& of, const std::string& name) { return interchange::open_source(of, name); };
    const auto config = app::load_config<plan::RunConfig>(options, context);
    if (!config) return Exit::ok;
    if (question.asked) {
      print_plan(*config, question, context);
      return Exit::ok;
    }
    const train::TrainReport report = train::run_training(context, *config, training);
    context.print_result("train", report.figures);
    return report.exit;
  });
}
