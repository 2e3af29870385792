#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/run_config.hpp"

/// What validations decide about a run: that it ends since a metric no longer improves, and which checkpoints are the
/// best so far and must not be removed. Pure values, alike on all ranks; part of every checkpoint, so a resumed run has
/// the patience that is left.
namespace argosy::train {

/// Whether higher values of a metric are better.
[[nodiscard]] bool rises(plan::Metric metric);

struct Best {
  double value = 0;
  std::int64_t step = 0;  // 0: none yet
  bool operator==(const Best&) const = default;
};

class Judge {
 public:
  /// Goes on from `state`, unless it speaks of another metric.
  explicit Judge(const plan::ValidationConfig& config, const boost::json::object& state = {});

  /// Takes up what a validation of the first set has found at `step`, by metric. True: by a metric of keep_best no step
  /// whose checkpoint is committed or on its way is as good, and the checkpoint of this one is to be saved.
  bool take(std::int64_t step, const std::map<plan::Metric, double>& values);
  /// The checkpoint of `step` has been committed, or could not be: only a committed one is kept, and only that one sets
  /// the mark for those after it.
  void saved(std::int64_t step, bool committed);
  /// Whether `patience` validations in a row were not better than the best one by more than min_delta.
  [[nodiscard]] bool ends() const;
  /// Why, for people; only where ends().
  [[nodiscard]] std::string reason() const;
  /// What the checkpoint of `step` stores in `best`. `keep`, which retention goes by, names committed checkpoints and
  /// `step` itself: the list is read only where that one has been committed too.
  [[nodiscard]] boost::json::object state(std::int64_t step) const;
  static constexpr std::array<const char*, 3> state_keys{"early_stop", "kept", "keep"};

 private:
  std::optional<plan::EarlyStopConfig> early_stop_;
  Best waits_for_better_than_;
  std::int64_t stalled_ = 0;
  struct Kept {
    Best committed;
    std::vector<Best> waiting{};  // for their commits, each better than those before it
    [[nodiscard]] const Best& mark() const { return waiting.empty() ? committed : waiting.back(); }
  };
  std::map<plan::Metric, Kept> kept_;
};

}  // namespace argosy::train
