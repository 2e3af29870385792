#include "train/stop_policy.hpp"

#include <string.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace argosy::train {
namespace {

constexpr double default_kept_s = 60;

}  // namespace

StopPolicy::StopPolicy(const comm::Context& context, const plan::StopConfig& config, const comm::Variables& variables)
    : context_(context), config_(config) {
  comm::agree(context.world, [&] {
    deadline_s_ = comm::seconds_in(variables, "ARGOSY_DEADLINE");
    notice_s_ = comm::seconds_in(variables, "ARGOSY_STOP_NOTICE_S");
    if (is_asked_by_file())
      throw_claim(
          Fault::usage,
          fmt::format("stop.file: the stop file {} exists, so the run would stop after one step", *config_.file),
          "stop.file", "no stop file at the start", *config_.file, "remove it to train");
    if (!deadline_s_ || !context.is_root()) return;
    const double left_s = *deadline_s_ - context.clock.wall_s();
    if (left_s <= kept_s())
      throw_claim(
          Fault::usage,
          fmt::format(
              "ARGOSY_DEADLINE: the allocation ends in {:.0f} s, but the run needs {:.0f} s for its last step and save",
              left_s, kept_s()),
          "ARGOSY_DEADLINE", fmt::format("more than the {:.0f} s for the last step and save", kept_s()),
          fmt::format("{:.0f} s until the allocation ends", left_s),
          "ask for a longer allocation, or lower stop.before_end_s");
    context.log.info(
        "the allocation ends in {}; the run saves and stops {:.0f} s before that, or earlier if steps and saves take "
        "longer",
        duration_text(left_s), kept_s());
  });
}

bool StopPolicy::wants_to_stop() {
  if (const auto signal = context_.stop.received()) {
    reason_ = fmt::format("SIG{}", sigabbrev_np(*signal));
    return true;
  }
  if (!context_.is_root()) return false;
  if (deadline_s_ && context_.clock.wall_s() + kept_s() >= *deadline_s_) {
    reason_ = fmt::format("the allocation ends in {:.0f} s", *deadline_s_ - context_.clock.wall_s());
    return true;
  }
  const double now_s = context_.clock.monotonic_s();
  if (now_s - looked_s_ < 1) return false;  // asking a network file system at each step would slow it down
  looked_s_ = now_s;
  if (!is_asked_by_file()) return false;
  reason_ = fmt::format("the stop file {} exists", *config_.file);
  return true;
}

bool StopPolicy::is_asked_by_file() {
  if (!context_.is_root() || !config_.file) return false;
  try {
    return saw_file_ = saw_file_ || context_.files.exists(*config_.file);
  } catch (const Error& error) {  // a temporary error of a network file system must not end the run
    if (!std::exchange(warned_of_file_, true)) context_.log.warn("stop.file: {}", error.what());
    return false;
  }
}

void StopPolicy::took(double round_s, double save_s) {
  longest_round_s_ = std::max(longest_round_s_, round_s);
  longest_save_s_ = std::max(longest_save_s_, save_s);
  if (warned_ || !notice_s_ || kept_s() <= std::max(*notice_s_, config_.before_end_s.value_or(0))) return;
  warned_ = true;
  if (context_.is_root()) {
    context_.log.warn(
        "two steps of {0:.0f} s and two saves of {1:.0f} s do not fit into the {2:.0f} s between the signal and the "
        "end of the job; submit with --signal=B:USR1@{3:.0f}, and set ARGOSY_STOP_NOTICE_S={3:.0f}",
        longest_round_s_, longest_save_s_, *notice_s_, kept_s());
  }
}

double StopPolicy::kept_s() const {
  return std::max(config_.before_end_s.value_or(notice_s_.value_or(default_kept_s)),
                  2 * (longest_round_s_ + longest_save_s_));
}

std::string StopPolicy::reason() const { return reason_.empty() ? "another rank was asked to stop" : reason_; }

}  // namespace argosy::train
