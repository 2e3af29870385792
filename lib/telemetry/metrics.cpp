#include "telemetry/metrics.hpp"

#include <cmath>
#include <limits>

namespace argosy::telemetry {
namespace {

constexpr double mebi = 1 << 20, tera = 1e12;
constexpr double clip_frac_to_warn = 0.2;
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

struct Mfu {
  std::optional<double> causal, full;
};

Mfu mfu_of(const Window::Report& report, const Metrics::Setup& setup) {
  if (!setup.peak_flops) return {};
  const double peak = *setup.peak_flops * setup.ranks;
  return {.causal = report.flops_per_s.causal / peak, .full = report.flops_per_s.full / peak};
}

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : std::string("unknown");
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
  loss += step.loss * tokens;
  nll += step.nll * tokens;
  tgt_tokens += tokens;
}

void Window::add(const StepMetrics& step) {
  ++timed_steps_;
  sums_.add(step);
  last_ = step;
  sum_.src_tokens += step.src_tokens;
  sum_.tgt_tokens += step.tgt_tokens;
  sum_.padded_tokens += step.padded_tokens;
  sum_.work += step.work;
  sum_.step_s += step.step_s;
  sum_.data_wait_s += step.data_wait_s;
}

Window::Report Window::report(const FlopShape& shape) const {
  Report report;
  report.last = last_;
  report.steps = sums_.steps;
  const double none = std::numeric_limits<double>::quiet_NaN();
  report.loss = sums_.tgt_tokens > 0 ? sums_.loss / sums_.tgt_tokens : none;
  report.nll = sums_.tgt_tokens > 0 ? sums_.nll / sums_.tgt_tokens : none;
  report.clip_frac = static_cast<double>(sums_.clipped) / static_cast<double>(sums_.steps);
  const auto steps = static_cast<double>(timed_steps_);
  const double s = sum_.step_s;
  report.src_tokens_per_s = static_cast<double>(sum_.src_tokens) / s;
  report.tgt_tokens_per_s = static_cast<double>(sum_.tgt_tokens) / s;
  report.padded_tokens_per_s = static_cast<double>(sum_.padded_tokens) / s;
  report.step_ms = 1e3 * s / steps;
  report.data_wait_ms = 1e3 * sum_.data_wait_s / steps;
  const Flops flops = flops_of(shape, sum_.work);
  report.flops_per_s = {.causal = flops.causal / s, .full = flops.full / s};
  const double advanced = last_.fraction_done - first_fraction_;
  if (advanced > 0) report.eta_s = s * (1 - last_.fraction_done) / advanced;
  return report;
}

std::string line_of(const Window::Report& r, const Metrics::Setup& setup) {
  const double ranks = setup.ranks;
  const Mfu mfu = mfu_of(r, setup);
  return fmt::format(
      "step {} {:.1f} % · loss {:.4f} · nll {:.4f} · ppl {:.2f} · lr {:.3e} · grad_norm {:.3f} · n_clips {} · skipped "
      "{} · "
      "src_tokens/s/rank {:.0f} · tgt_tokens/s/rank {:.0f} · padded_tokens/s/rank {:.0f} · TFLOP/s/rank {:.3f} · MFU "
      "{} (full {}) · "
      "memory {:.0f} MiB · data wait {:.1f} ms · step {:.1f} ms · ETA {}",
      r.last.step, 100 * r.last.fraction_done, r.loss, r.nll, std::exp(r.nll), r.last.lr, r.last.grad_norm,
      r.last.n_clips, r.last.n_skipped, r.src_tokens_per_s / ranks, r.tgt_tokens_per_s / ranks,
      r.padded_tokens_per_s / ranks, r.flops_per_s.causal / ranks / tera, percent(mfu.causal), percent(mfu.full),
      static_cast<double>(r.last.memory_bytes) / mebi, r.data_wait_ms, r.step_ms,
      r.eta_s ? duration_text(*r.eta_s) : "unknown");
}

boost::json::object json_of(const Window::Report& r, const Metrics::Setup& setup) {
  const double ranks = setup.ranks;
  const Mfu mfu = mfu_of(r, setup);
  const auto number = [](std::optional<double> value) {
    return value ? boost::json::value(*value) : boost::json::value(nullptr);
  };
  return {{"step", r.last.step},
          {"fraction_done", r.last.fraction_done},
          {"epoch", r.last.epoch},
          {"loss", r.loss},
          {"nll", r.nll},
          {"perplexity", std::exp(r.nll)},
          {"lr", r.last.lr},
          {"grad_norm", r.last.grad_norm},
          {"n_clips", r.last.n_clips},
          {"clip_frac", r.clip_frac},
          {"skipped", r.last.n_skipped},
          {"total_tgt_tokens", r.last.total_tgt_tokens},
          {"ranks", setup.ranks},
          {"src_tokens_per_s", r.src_tokens_per_s},
          {"tgt_tokens_per_s", r.tgt_tokens_per_s},
          {"padded_tokens_per_s", r.padded_tokens_per_s},
          {"tflops_per_rank", r.flops_per_s.causal / ranks / tera},
          {"mfu", number(mfu.causal)},
          {"mfu_full", number(mfu.full)},
          {"memory_bytes", r.last.memory_bytes},
          {"data_wait_ms", r.data_wait_ms},
          {"step_ms", r.step_ms},
          {"eta_s", number(r.eta_s)}};
}

Metrics::Metrics(const Setup& setup, const Files& files, const Path& run_dir, const Log& log, const Clock& clock)
    : setup_(setup),
      files_(files),
      run_dir_(run_dir),
      log_(&log),
      clock_(&clock),
      before_(setup_.before),
      window_(before_.fraction_done, setup_.window),
      resumed_step_(before_.step),
      writing_lines_(log, (run_dir / "metrics.jsonl").string()),
      writing_events_(log, (run_dir / "tensorboard").string()) {
  writing_lines_.attempt(before_.step, [&] { open_lines(); });
  if (setup_.config.tensorboard) writing_events_.attempt(before_.step, [&] { open_events(); });
}

void Metrics::open_lines() {
  if (!lines_) lines_.emplace(files_, run_dir_ / "metrics.jsonl", resumed_step_, *log_);
}

void Metrics::open_events() {
  if (!events_) events_.emplace(files_, run_dir_ / "tensorboard", *clock_, resumed_step_);
}

void Metrics::add(const StepMetrics& step) {
  window_.add(step);
  const bool due = fills_interval(setup_.config, before_, step);
  before_ = step;
  if (!due) return;
  write(window_.report(setup_.shape));
  window_ = Window{step.fraction_done};
}

void Metrics::write(const Window::Report& report) {
  log_->info("{}", line_of(report, setup_));
  if (!warned_of_clips_ && report.steps >= least_steps_to_warn && report.clip_frac > clip_frac_to_warn) {
    log_->warn("{:.0f} % of the last {} steps were clipped: consider a lower lr (said once)", 100 * report.clip_frac,
               report.steps);
    warned_of_clips_ = true;
  }
  const boost::json::object object = json_of(report, setup_);
  std::vector<Scalar> scalars;
  for (const auto& member : object) {
    if (member.value().is_number() && member.key() != "step")
      scalars.push_back({.tag = member.key(), .value = member.value().to_number<double>()});
  }
  keep(report.last.step, object, scalars);
}

void Metrics::keep(std::int64_t step, const boost::json::object& line, std::span<const Scalar> scalars) {
  writing_lines_.attempt(step, [&] {
    open_lines();
    lines_->append(line);
  });
  if (!setup_.config.tensorboard) return;
  writing_events_.attempt(step, [&] {
    open_events();
    events_->append(step, scalars);
  });
}

void Metrics::add_validation(std::int64_t step, const std::string& set, std::span<const Figure> figures) {
  std::string line = fmt::format("step {} · validation {}", step, set);
  boost::json::object values;
  std::vector<std::string> tags;
  std::vector<Scalar> scalars;
  tags.reserve(figures.size());
  for (const Figure& figure : figures) {
    line += fmt::format(" · {} {:.4f}", figure.name, figure.value);
    values[figure.name] = figure.value;
    tags.push_back(fmt::format("validation/{}/{}", set, figure.name));
    scalars.push_back({.tag = tags.back(), .value = figure.value});
  }
  log_->info("{}", line);
  keep(step, {{"step", step}, {"validation", set}, {"figures", std::move(values)}}, scalars);
}

}  // namespace argosy::telemetry
