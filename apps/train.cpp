#include <CLI/CLI.hpp>

#include "app.hpp"
#include "model/stored_model.hpp"
#include "train/run_plan.hpp"
#include "train/trainer.hpp"

namespace {

using namespace argosy;

constexpr std::string_view examples =
    "  mpiexec.mpich -n 2 apps/train configs/tiny.json                    train; the same command again resumes\n"
    "  apps/train configs/mistral_7b.json --dry-run --ranks 128           what it will need, without training";

/// Pieces of the vocabulary, as far as they are known before a tokenizer exists.
std::int64_t vocabulary_of(const train::RunConfig& config, const comm::Context& context) {
  std::int64_t pieces = config.model.vocab_size.value_or(0);
  comm::agree(context.world, [&] {
    if (pieces > 0) return;
    if (context.files.exists(config.data.tokenizer)) {
      pieces = data::Tokenizer::read(context.files, config.data.tokenizer, model::token_shape(config.model))
                   .vocabulary()
                   .live_size;
    } else if (config.data.tokenizer_training) {
      pieces = config.data.tokenizer_training->vocab_size;
    }
  });
  return pieces;
}

void print_plan(const train::RunConfig& config, int ranks, const comm::Context& context) {
  train::require_trainable(config);
  const model::ModelShape shape = model::resolve(config.model, vocabulary_of(config, context));
  const train::RunPlan plan = train::plan_run(config, shape, partition::Layout{{ranks}});
  for (const std::string& line : train::lines_of(plan, config, shape, ranks)) context.log.plain(line);
  context.print_result("train", train::json_of(plan));
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    train::TrainOptions training;
    bool dry_run = false;
    int ranks = context.topology.world_size();
    CLI::App app{"Trains a model on token shards and leaves checkpoints. The same command resumes."};
    app::add_config_options(app, options);
    app.add_option("--resume", training.resume, "auto (newest checkpoint of run_dir) or a checkpoint's directory")
        ->capture_default_str();
    app.add_flag("--from-scratch", training.from_scratch, "begin again; old checkpoints are set aside");
    app.add_option("--allow-change", training.allow_changes,
                   "accept a change on resume: data, batch, seed, precision, loss or optimizer.type; repeat as needed")
        ->type_name("KEY")
        ->allow_extra_args(false);
    app.add_flag("--dry-run", dry_run, "print what the run will need, and end");
    app.add_option("--ranks", ranks, "ranks to plan for with --dry-run")->check(CLI::PositiveNumber);
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;
    const auto config = app::load_config<train::RunConfig>(options, context);
    if (!config) return Exit::ok;
    if (dry_run) {
      print_plan(*config, ranks, context);
      return Exit::ok;
    }
    const train::TrainReport report = train::run_training(context, *config, training);
    context.print_result("train", report.figures);
    return report.exit;
  });
}
