#include "telemetry/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace argosy::telemetry {
namespace {

constexpr double clip_frac_to_warn = 0.2;
constexpr double wait_to_warn = 0.05;  // of the time of steps
constexpr std::int64_t least_steps_to_warn = 10;

double place(const config::Period& period, const StepMetrics& at) {
  switch (period.unit) {
    case config::Period::Unit::step:
      return static_cast<double>(at.step);
    case config::Period::Unit::tgt_token:
      return static_cast<double>(at.total_tgt_tokens);
    case config::Period::Unit::epoch:
      break;
  }
  return at.epoch;
}

std::string memory_text(std::uint64_t bytes) {
  constexpr double mebi = 1 << 20, gibi = 1 << 30;
  const auto size_bytes = static_cast<double>(bytes);
  return size_bytes < gibi ? fmt::format("{:.0f} MiB", size_bytes / mebi)
                           : fmt::format("{:.1f} GiB", size_bytes / gibi);
}

/// What a person reads while a run trains; metrics.jsonl has the rest.
std::string line_of(const StepRecord& r) {
  std::string line = fmt::format(
      "step {} ({:.1f} %) · loss {:.4f} · ppl {:.2f} · lr {:.3e} · grad norm {:.3f} · tgt_tokens/s {:.0f}", r.last.step,
      100 * r.last.fraction_done, r.loss, std::exp(r.nll), r.last.lr, r.last.grad_norm, r.tgt_tokens_per_s);
  if (r.tflops_per_rank > 0) line += fmt::format(" · TFLOP/s/rank {:.3g}", r.tflops_per_rank);
  if (r.truncated_frac > 0) line += fmt::format(" · truncated {:.3g} %", 100 * r.truncated_frac);
  if (r.mfu) line += fmt::format(" · MFU {:.1f} %", 100 * *r.mfu);
  if (r.last.memory_bytes > 0) line += " · memory " + memory_text(r.last.memory_bytes);
  if (r.eta_s) line += " · ETA " + duration_text(*r.eta_s);
  return line;
}

std::string line_of(const ValidationRecord& record) {
  std::string line = fmt::format("step {} · validation {}", record.step, record.set);
  for (const Figure& figure : record.figures) line += fmt::format(" · {} {:.4f}", figure.name, figure.value);
  return line;
}

}  // namespace

bool fills_interval(const TelemetryConfig& config, const StepMetrics& before, const StepMetrics& after) {
  const auto passed = [&config](const StepMetrics& at) {
    return std::floor((place(config.log_interval, at) - static_cast<double>(config.log_offset)) /
                      config.log_interval.count);
  };
  return passed(after) > passed(before);
}

void WindowSums::add(const StepMetrics& step) {
  ++steps;
  clipped += step.clipped;
  if (step.skipped) return;
  const auto tokens = static_cast<double>(step.tgt_tokens);
  loss += step.loss * (tokens - step.truncated_tokens);
  nll += step.nll * tokens;
  tgt_tokens += tokens;
  truncated += step.truncated_tokens;
  if (corpora.size() != step.corpora.size()) corpora.assign(step.corpora.size(), {});  // a checkpoint had others
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    corpora[c].nll += step.corpora[c].nll;
    corpora[c].tgt_tokens += step.corpora[c].tgt_tokens;
  }
}

Metrics::Metrics(const Setup& setup, const Files& files, const Path& run_dir, const Log& log, const Clock& clock)
    : setup_(setup),
      files_(files),
      run_dir_(run_dir),
      log_(&log),
      clock_(&clock),
      before_(setup_.before),
      resumed_step_(before_.step),
      first_fraction_(before_.fraction_done),
      sums_(setup_.window) {
  for (const SinkKind& kind : sink_kinds()) {
    if (kind.is_wanted(setup_.config)) outputs_.push_back({&kind, BestEffort(log, (run_dir / kind.name).string())});
  }
  write_to_all(resumed_step_, [](Sink&) {});
  const Path path = run_dir / "run_config.json";
  BestEffort(log, path.string()).attempt(resumed_step_, [&] {
    files.write_atomically(path, config::text_of(setup_.configuration) + "\n");
  });
}

template <class Write>
void Metrics::write_to_all(std::int64_t step, Write&& write) {
  for (Output& output : outputs_) {
    output.writing.attempt(step, [&] {
      if (output.sink == nullptr) {
        const Path path = run_dir_ / output.kind->name;
        output.sink =
            output.kind->open({files_, path, resumed_step_, *log_, *clock_, setup_.config, setup_.configuration});
      }
      write(*output.sink);
    });
  }
}

void Metrics::add(const StepMetrics& step) {
  ++timed_steps_;
  skipped_steps_ += step.skipped ? 1 : 0;
  sums_.add(step);
  timed_.src_tokens += step.src_tokens;
  timed_.tgt_tokens += step.tgt_tokens;
  timed_.padded_tokens += step.padded_tokens;
  timed_.work += step.work;
  timed_.step_s += step.step_s;
  timed_.data_wait_s += step.data_wait_s;
  const bool is_due = fills_interval(setup_.config, before_, step);
  before_ = step;
  if (!is_due) {
    if (log_->is_on_terminal())
      log_->progress("training", step.fraction_done, 1,
                     fmt::format("step {} · loss {:.4f} · tgt_tokens/s {:.0f}", step.step, step.loss,
                                 static_cast<double>(timed_.tgt_tokens) / timed_.step_s));
    return;
  }
  const StepRecord done = record();
  log_->info("{}", line_of(done));
  if (skipped_steps_ > 0)
    log_->info(
        "{} of the steps since the last line were skipped, {} in all: their gradient norms were not finite, or above "
        "the limits of optimizer.skip",
        skipped_steps_, step.n_skipped);
  advise(done);
  write_to_all(step.step, [&done](Sink& sink) { sink.step(done); });
  first_fraction_ = step.fraction_done;
  sums_ = {};
  timed_ = {};
  timed_steps_ = skipped_steps_ = 0;
}

void Metrics::advise(const StepRecord& done) {
  judged_.steps += done.steps;
  judged_.clipped += sums_.clipped;
  judged_.wait_s += timed_.data_wait_s;
  judged_.step_s += timed_.step_s;
  if (judged_.steps < least_steps_to_warn) return;
  const auto [steps, clipped, wait_s, step_s] = std::exchange(judged_, {});
  const double clip_frac = static_cast<double>(clipped) / static_cast<double>(steps);
  if (clips_(clip_frac > clip_frac_to_warn))
    log_->warn("{:.0f} % of the last {} steps were clipped; consider a lower schedule.lr (this warning appears once)",
               100 * clip_frac, steps);
  if (waits_(wait_s > wait_to_warn * step_s))
    log_->warn(
        "training waited for data {:.0f} % of the time of the last {} steps; consider more data.workers, or data.mode "
        "prepared (this warning appears once)",
        100 * wait_s / step_s, steps);
}

StepRecord Metrics::record() const {
  constexpr double tera = 1e12;
  StepRecord record;
  record.last = before_;
  record.ranks = setup_.ranks;
  record.steps = sums_.steps;
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double tokens = sums_.tgt_tokens;
  record.loss = tokens > 0 ? sums_.loss / (tokens - sums_.truncated) : none;
  record.nll = tokens > 0 ? sums_.nll / tokens : none;
  record.truncated_frac = tokens > 0 ? sums_.truncated / tokens : none;
  record.clip_frac = static_cast<double>(sums_.clipped) / static_cast<double>(sums_.steps);
  const auto steps = static_cast<double>(timed_steps_);
  const double s = timed_.step_s, ranks = setup_.ranks;
  record.src_tokens_per_s = static_cast<double>(timed_.src_tokens) / s;
  record.tgt_tokens_per_s = static_cast<double>(timed_.tgt_tokens) / s;
  record.padded_tokens_per_s = static_cast<double>(timed_.padded_tokens) / s;
  record.step_ms = 1e3 * s / steps;
  record.data_wait_ms = 1e3 * timed_.data_wait_s / steps;
  const Flops flops = flops_of(setup_.shape, timed_.work);
  record.tflops_per_rank = flops.causal / s / ranks / tera;
  if (setup_.peak_flops) {
    record.mfu = flops.causal / s / (*setup_.peak_flops * ranks);
    record.mfu_full = flops.full / s / (*setup_.peak_flops * ranks);
  }
  const double advanced = before_.fraction_done - first_fraction_;
  if (advanced > 0) record.eta_s = s * (1 - before_.fraction_done) / advanced;
  // There are none, or those of a checkpoint, where all steps were skipped.
  for (std::size_t c = 0; c < std::min(sums_.corpora.size(), setup_.corpora.size()); ++c) {
    const CorpusSums& corpus = sums_.corpora[c];
    record.of_parts["nll/" + setup_.corpora[c]] = corpus.tgt_tokens > 0 ? corpus.nll / corpus.tgt_tokens : none;
    record.of_parts["share/" + setup_.corpora[c]] = tokens > 0 ? corpus.tgt_tokens / tokens : none;
  }
  for (std::size_t c = 0; c < before_.component_norms.size(); ++c)
    record.of_parts["grad_norm/" + setup_.components.at(c)] = before_.component_norms[c];
  return record;
}

void Metrics::add_validation(const ValidationRecord& record) {
  log_->info("{}", line_of(record));
  write_to_all(record.step, [&record](Sink& sink) { sink.validation(record); });
}

}  // namespace argosy::telemetry
