#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "train/run_config.hpp"

/// What validations decide about a run: that it ends since a metric no longer improves, and which checkpoints are the
/// best so far and must not be removed. Pure values, alike on all ranks; part of every checkpoint, so a resumed run has
/// the patience that is left.
namespace argosy::train {

/// Whether higher values of a metric are better.
[[nodiscard]] bool rises(Metric metric);

struct Best {
  double value = 0;
  std::int64_t step = 0;  // 0: none yet
  bool operator==(const Best&) const = default;
};

class Judge {
 public:
  /// Goes on from `state`, unless it speaks of another metric.
  explicit Judge(const ValidationConfig& config, const boost::json::object& state = {});

  /// Takes up what a validation of the first set has found at `step`, by metric. True: a metric of keep_best has
  /// never been better.
  bool take(std::int64_t step, const std::map<Metric, double>& values);
  /// Whether `patience` validations in a row were not better than the best one by more than min_delta.
  [[nodiscard]] bool ends() const;
  /// Why, for people; only where ends().
  [[nodiscard]] std::string reason() const;
  /// What a checkpoint stores in `best`; `keep` is what retention goes by.
  [[nodiscard]] boost::json::object state() const;
  static constexpr std::array<const char*, 3> state_keys{"early_stop", "kept", "keep"};

 private:
  std::optional<EarlyStopConfig> early_stop_;
  Best waits_for_better_than_;
  std::int64_t stalled_ = 0;
  std::map<Metric, Best> kept_;
};

}  // namespace argosy::train
