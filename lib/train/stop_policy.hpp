#pragma once

#include <optional>
#include <string>

#include "comm/launcher.hpp"
#include "comm/run_main.hpp"
#include "plan/run_config.hpp"

/// Decides whether a run stops before the end of its schedule: on a signal, if the stop file exists, or before the end
/// of its allocation. There it keeps time for one more step and the last save. Each rank decides for itself; the runner
/// tells all ranks if one of them wants to stop. Borrows everything. Call from one thread.
namespace argosy::train {

class StopPolicy {
 public:
  /// Reads ARGOSY_DEADLINE (the end of the allocation, in seconds since 1970) and ARGOSY_STOP_NOTICE_S (how long before
  /// it the scheduler signals) from `variables`. **Collective.** Throws Error{usage} if one of them is not a number.
  /// Also throws it if the end is nearer than the time that is kept, or if the stop file exists: such a run would save
  /// and restart forever.
  StopPolicy(const comm::Context& context, const plan::StopConfig& config,
             const comm::Variables& variables = comm::environment_variable);

  /// To be called once a step.
  [[nodiscard]] bool wants_to_stop();
  /// Reports the duration of a round (step, validation and save together) and the longest save so far. The time that is
  /// kept grows with them.
  void took(double round_s, double save_s);
  /// Seconds kept before the end: stop.before_end_s, else the notice, else 60; at least the time of two rounds and
  /// saves.
  [[nodiscard]] double kept_s() const;
  /// Rank 0: whether the stop file has been seen, even if something else stopped the run. False on other ranks.
  [[nodiscard]] bool is_asked_by_file();
  /// Why the run stops, as text.
  [[nodiscard]] std::string reason() const;

 private:
  const comm::Context& context_;
  const plan::StopConfig& config_;
  std::optional<double> deadline_s_, notice_s_;
  double longest_round_s_ = 0, longest_save_s_ = 0;
  double looked_s_ = 0;
  bool warned_ = false, warned_of_file_ = false, saw_file_ = false;
  std::string reason_;
};

}  // namespace argosy::train
