#include <CLI/CLI.hpp>

#include "app.hpp"
#include "comm/launcher.hpp"
#include "dry_run.hpp"
#include "interchange/formats.hpp"
#include "interchange/source.hpp"
#include "plan/sharing.hpp"
#include "train/probe.hpp"
#include "train/trainer.hpp"

namespace {

using namespace argosy;

constexpr std::string_view examples =
    "  mpiexec -n 2 apps/train configs/tiny.json                          train; the same command again resumes\n"
    "  apps/train configs/mistral_7b.json --dry-run --ranks 128           forecasts memory, network traffic and time\n"
    "  mpiexec -n 2 apps/train configs/tiny.json --probe-memory           measures which batch.micro_size fits";

void print_tasks(const plan::RunConfig& config, const app::DryRun& dry_run, const comm::Context& context) {
  const auto counts = app::counts_of(config, context);
  const spec::ModelSpec spec = plan::spec_of(config, app::vocabulary_of(config, context));
  const plan::PlanTarget target =
      plan::placed(app::target_of(config, dry_run, context), config, spec, counts ? &*counts : nullptr);
  for (const std::string& line : plan::task_lines(spec, target.placement)) context.log.plain(line);
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    train::TrainOptions training;
    app::DryRun dry_run;
    CLI::App app{"Trains a model on token shards and saves checkpoints. The same command resumes."};
    app::add_config_options(app, options);
    app.add_option("--resume", training.resume, "auto (the newest checkpoint of run_dir) or a checkpoint's directory")
        ->capture_default_str();
    app.add_flag("--from-scratch", training.from_scratch, "start over; old checkpoints are moved aside");
    app.add_flag("--abandon-newer", training.abandon_newer,
                 "with --resume DIR: rename intact checkpoints newer than DIR to .old-…; if there are any and this "
                 "option is not given, train ends with code 2");
    app.add_option("--allow-change", training.allow_changes, "accept a changed key on resume; may be repeated")
        ->check(CLI::IsMember(train::changeable_keys))
        ->type_name("KEY")
        ->allow_extra_args(false);
    app.add_flag("--profile", training.profile, "at the end, print where the time of a step went (rank 0)");
    app::add_options(app, dry_run);
    bool probes = false;
    app.add_flag("--probe-memory", probes,
                 "take steps of full length with growing batch.micro_size, print measured and forecast memory and the "
                 "largest size that leaves 10 % of a rank's memory free, and exit; nothing is written");
    bool prints_tasks = false;
    app.add_flag(
        "--print-tasks", prints_tasks,
        "print the tasks of a model with stacks that only some of them share, its components and the ranks that have "
        "them, and exit; --ranks and --nodes: of that many");
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;
    training.request = comm::environment_variable("ARGOSY_REQUEST").value_or("");
    training.formats_for = interchange::formats_for;
    training.open_model = interchange::open_whole_source;
    training.open_adapters = interchange::open_adapters;
    const auto config = app::load_config<plan::RunConfig>(options, context);
    if (!config) return Exit::ok;
    if (prints_tasks) {
      print_tasks(*config, dry_run, context);
      return Exit::ok;
    }
    if (dry_run.asked) {
      app::print_plan(*config, dry_run, context);
      return Exit::ok;
    }
    if (probes) {
      context.print_result("train", train::probe_memory(context, *config, app::vocabulary_of(*config, context)));
      return Exit::ok;
    }
    const train::TrainReport report = train::run_training(context, *config, training);
    context.print_result("train", report.figures);
    return report.exit;
  });
}
