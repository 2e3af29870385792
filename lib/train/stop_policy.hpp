#pragma once

#include <optional>
#include <string>

#include "comm/launcher.hpp"
#include "comm/run_main.hpp"
#include "plan/run_config.hpp"

/// When a run ends before its schedule does, and why: a signal, the stop file, or the end of its allocation, before
/// which it keeps time for one more round and its last save. Each rank asks for itself; what one of them wants the
/// runner lets all know. Borrows everything. One thread.
namespace argosy::train {

class StopPolicy {
 public:
  /// Takes ARGOSY_DEADLINE (the allocation's end, seconds since 1970) and ARGOSY_STOP_NOTICE_S (how long before it the
  /// scheduler signals) from `variables`. **Collective.** Throws Error{usage} when one of them is no number, or when
  /// the end is nearer than the time that is kept, or the stop file is there already: such a run would save and start
  /// for ever.
  StopPolicy(const comm::Context& context, const plan::StopConfig& config,
             const comm::Variables& variables = comm::environment_variable);

  /// Once a step.
  [[nodiscard]] bool wants_to_stop();
  /// Counts the time from one look to the next, and the longest save so far. The time that is kept grows with them.
  void took(double round_s, double save_s);
  /// Seconds kept before the end: stop.before_end_s, else the notice, else a minute; at least two rounds and saves.
  [[nodiscard]] double kept_s() const;
  /// Rank 0: whether a user's stop file has been there, whatever else stopped the run. False on the others.
  [[nodiscard]] bool is_asked_by_file();
  /// Why, for people.
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
