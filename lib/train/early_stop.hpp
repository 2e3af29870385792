#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/run_config.hpp"

/// Decides from validations whether a run ends because a metric no longer improves, and which checkpoints are the best
/// so far and must be kept. It holds only values, the same on all ranks. Every checkpoint stores them, so a resumed run
/// continues with the patience that is left.
namespace argosy::train {

struct Best {
  double value = 0;
  std::int64_t step = 0;  // 0: none yet
  bool operator==(const Best&) const = default;
};

class ValidationHistory {
 public:
  /// Starts from a stored `state`, unless that is about another metric.
  explicit ValidationHistory(const plan::ValidationConfig& config, const boost::json::object& state = {});

  /// Adds the results of a validation of the first set at `step`, by metric. Returns true if the checkpoint of `step`
  /// should be saved: by a metric of keep_best, it is better than each step whose checkpoint is committed or being
  /// saved.
  bool take(std::int64_t step, const std::map<plan::Metric, double>& values);
  /// To be called when the save of `step` has ended. Only a committed checkpoint is kept, and only such a checkpoint is
  /// what later ones must improve on.
  void saved(std::int64_t step, bool committed);
  /// Whether the last `patience` validations did not improve on the best one by more than min_delta.
  [[nodiscard]] bool ends() const;
  /// The reason as text. Requires ends().
  [[nodiscard]] std::string reason() const;
  /// What the checkpoint of `step` stores in its section `best`. Its list `keep`, which retention reads, may contain
  /// `step` itself: it is read only once that checkpoint is committed.
  [[nodiscard]] boost::json::object state(std::int64_t step) const;
  static constexpr std::array<const char*, 3> state_keys{"early_stop", "kept", "keep"};

 private:
  std::optional<plan::EarlyStopConfig> early_stop_;
  Best waits_for_better_than_;
  std::int64_t stalled_ = 0;
  struct Kept {
    Best committed;
    std::vector<Best> waiting{};  // not committed yet; each is better than those before it
    [[nodiscard]] const Best& mark() const { return waiting.empty() ? committed : waiting.back(); }
  };
  std::map<plan::Metric, Kept> kept_;
};

}  // namespace argosy::train
