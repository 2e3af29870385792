#include "telemetry/status.hpp"

#include "config/config.hpp"
#include "core/error.hpp"

namespace argosy::telemetry {

Status::Status(const Files& files, const Path& run_dir, const Clock& clock, std::int64_t step)
    : files_(files), path_(run_dir / "status.json"), clock_(&clock), step_(step) {
  write(State::running, step, "");
}

Status::~Status() {
  if (over_) return;
  try {
    write(State::failed, step_, "an error: see the log");
  } catch (const Error&) {
    // The error on its way out matters more than a full disk here.
  }
}

void Status::running(std::int64_t step) { write(State::running, step, ""); }

void Status::stopped(std::int64_t step, std::string_view reason) {
  write(State::stopped, step, reason);
  over_ = true;
}

void Status::done(std::int64_t step) {
  write(State::done, step, "");
  over_ = true;
}

void Status::write(State state, std::int64_t step, std::string_view reason) {
  step_ = step;
  boost::json::object object{{"state", boost::describe::enum_to_string(state, "?")},
                             {"step", step},
                             {"time", timestamp_text(clock_->wall_s())}};
  if (!reason.empty()) object["reason"] = reason;
  files_.write_atomically(path_, config::text_of(object) + "\n");
}

}  // namespace argosy::telemetry
