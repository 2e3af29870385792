#include "telemetry/status.hpp"

#include <cstdlib>

#include "config/config.hpp"

namespace argosy::telemetry {

Status::Status(const Files& files, const Path& run_dir, const Log& log, const Clock& clock, std::int64_t step,
               double fraction_done)
    : files_(files),
      path_(run_dir / "status.json"),
      writing_(log, path_.string()),
      clock_(&clock),
      begin_s_(clock.monotonic_s()),
      begin_fraction_(fraction_done),
      written_s_(begin_s_),
      step_(step),
      fraction_done_(fraction_done) {
  writing_.attempt(step_, [&] { files_.write_atomically(path_, text(State::running, "")); });
}

Status::~Status() {
  if (!over_) end(State::failed, step_, "an error; see the log");
}

void Status::running(std::int64_t step, double fraction_done) {
  constexpr double interval_s = 10;
  step_ = step;
  fraction_done_ = fraction_done;
  if (clock_->monotonic_s() < written_s_ + interval_s) return;
  written_s_ = clock_->monotonic_s();
  writing_.attempt(step_, [&] { files_.publish(path_, text(State::running, "")); });
}

void Status::stopped(std::int64_t step, std::string_view reason) { end(State::stopped, step, reason); }

void Status::done(std::int64_t step) { end(State::done, step, ""); }

void Status::end(State state, std::int64_t step, std::string_view reason) {
  step_ = step;
  over_ = true;
  writing_.attempt(step_, [&] { files_.write_atomically(path_, text(state, reason)); });
}

std::string Status::text(State state, std::string_view reason) const {
  boost::json::object object{{"state", boost::describe::enum_to_string(state, "?")},
                             {"step", step_},
                             {"fraction_done", fraction_done_},
                             {"time", timestamp_text(clock_->wall_s())}};
  const double advanced = fraction_done_ - begin_fraction_;
  if (state == State::running && advanced > 0)
    object["eta_s"] = (clock_->monotonic_s() - begin_s_) * (1 - fraction_done_) / advanced;
  if (const char* const job = std::getenv("SLURM_JOB_ID")) object["job"] = job;
  if (!reason.empty()) object["reason"] = reason;
  return config::text_of(object) + "\n";
}

}  // namespace argosy::telemetry
