#include "app.hpp"
#include "core/file_name.hpp"
#include "plan/run_config.hpp"
#include "telemetry/run_report.hpp"

namespace {

using namespace argosy;

constexpr std::string_view examples =
    "  apps/status configs/mt_base.json                       progress of the run: jobs, step, ETA, last validation, "
    "disk\n"
    "  apps/status runs/mt_base/train --print checkpoints     its committed checkpoints, one per step, oldest first";

/// RUN itself if it is a directory, else run_dir of the configuration RUN.
Path run_dir_of(const Files& files, const config::Options& options) {
  if (const auto facts = files.stat(options.config); facts && facts->is_directory) {
    if (options.assignments.empty()) return options.config;
    throw Error{Fault::usage, {.sentence = "--set: expected a configuration file as RUN, got a run directory"}};
  }
  const auto config = config::from_document<plan::RunConfig>(
      config::Document::parse(config::read_source(files, options.config), options.config.string()), options);
  if (!config.run_dir.empty()) return config.run_dir;
  throw Error{Fault::config, {"", "run_dir", "no value", options.config.string(), "add it, or use --set run_dir=PATH"}};
}

telemetry::Queue queue_of(const std::vector<std::string>& words) {
  telemetry::Queue queue;
  for (const std::string& word : words) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string job = word.substr(0, equals);
    if (!count_in(job) || equals == word.size())
      throw_error(Fault::usage, "--queue", "JOB=STATE REASON", fmt::format("\"{}\"", word));
    queue[job] = word.substr(equals + 1);
  }
  return queue;
}

/// What a job script asks about its own job: one name and value per line. Unknown values are left out.
std::string job_lines(telemetry::RunFiles& run, const std::string& number, std::optional<std::int64_t> restart) {
  const telemetry::JobReport job = run.job(number, restart);
  const std::int64_t newest = run.newest_step();
  std::string text = fmt::format("newest {}\nstarts {}\nfruitless {}\n", newest, job.starts.size(),
                                 telemetry::fruitless(job.starts, newest));
  if (!job.starts.empty()) text += fmt::format("first {}\n", job.starts.front().time_s);
  if (!job.exit) return text;
  text += fmt::format("code {}\nstep {}\n", job.exit->code, job.exit->step);
  if (!job.exit->why.empty()) text += fmt::format("why {}\n", job.exit->why);
  return text;
}

std::string stage_lines(telemetry::RunFiles& run, const telemetry::Queue& queue) {
  std::string text;
  for (const telemetry::ChainJob& entry : run.chain()) {
    const auto exit = entry.job.empty() ? std::nullopt : run.job(entry.job).exit;
    text += fmt::format("{} {} {}\n", entry.stage, entry.job.empty() ? "-" : entry.job,
                        telemetry::state_of(entry.job, exit, queue));
  }
  return text;
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_alone(argc, argv, [&](const Log& log) {
    config::Options options;
    std::vector<std::string> queue_words;
    std::string print, job;
    std::optional<std::int64_t> restart;
    CLI::App app{"Shows the progress of a run and the state of its jobs. Changes nothing; does not start MPI."};
    app.add_option("RUN", options.config, "configuration file or run directory")->required();
    app.add_option("--set", options.assignments, "set a key of the configuration; may be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    app.add_option("--queue", queue_words,
                   "state of a job in squeue, as '17=PENDING Priority'; '17=': no longer queued")
        ->allow_extra_args(false);
    app.add_option("--print", print, "for scripts: print only this, as plain lines")
        ->check(CLI::IsMember({"run_dir", "checkpoints", "job", "stages"}));
    CLI::Option* const number = app.add_option("--job", job, "with --print job: the number of the job");
    app.add_option("--restart", restart,
                   "with --job: which restart to read; default: the last one that recorded its exit code")
        ->check(CLI::NonNegativeNumber)
        ->needs(number);
    const Files files = Files::system();
    if (std::string answer; !app::parse(app, argc, argv, examples, answer)) {
      files.print(answer);
      return Exit::ok;
    }
    if ((print == "job") != count_in(job).has_value())
      throw Error{Fault::usage, {.sentence = "--print job and --job NUMBER must be given together"}};

    const Path run_dir = run_dir_of(files, options);
    const telemetry::Queue queue = queue_of(queue_words);
    telemetry::RunFiles run(files, run_dir);
    if (print.empty()) {
      telemetry::RunReport report = telemetry::report_of(files, Clock{}, run_dir, queue);
      files.print(lines_of(report.lines));
      const auto& problems = report.figures.at("problems").as_array();
      for (const auto& problem : problems) log.warn("{}", std::string_view(problem.as_string()));
      log.flush();
      const Exit code = problems.empty() ? Exit::ok : Exit::io;
      if (code != Exit::ok) report.figures["status"] = "damaged";
      comm::print_result(log, "status", std::move(report.figures));
      return code;
    }
    if (print == "run_dir") files.print(run_dir.string() + "\n");
    if (print == "job") files.print(job_lines(run, job, restart));
    if (print == "stages") files.print(stage_lines(run, queue));
    if (print == "checkpoints") files.print(lines_of(run.checkpoints()));
    for (const std::string& problem : run.problems()) log.warn("{}", problem);
    return Exit::ok;
  });
}
