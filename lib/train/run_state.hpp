#pragma once

#include <array>
#include <boost/json/array.hpp>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "data/loader.hpp"
#include "optim/clip.hpp"
#include "plan/run_config.hpp"
#include "telemetry/metrics.hpp"

/// The state of a training run besides its tensors. Writes it into the sections of a checkpoint and reads it back. Has
/// no side effects.
namespace argosy::train {

struct RunState {
  std::int64_t step = 0, updates = 0;                     // done; a skipped step is not an update
  std::map<std::string, std::int64_t> component_updates;  // of each but the first: in a step without its tasks, none
  data::Cursor cursor;                                    // of the next step
  double epoch = 0;                                       // epochs done, with the fraction
  std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  std::int64_t n_clips = 0;
  optim::SkipGuard::State guard;
  double best_loss = 0;  // of validations; best_step 0: none yet
  std::int64_t best_step = 0;
  bool owes_validation = false;  // a validation is due at this step, but the run stopped first
  boost::json::object metrics;   // of the latest validation
  /// Threads per rank, and ranks: the last bits of a step depend on them. count 0: not recorded.
  struct {
    int count = 0, ranks = 0;
  } threads;
  std::string instructions;         // kernels::cpu_instructions(), which they depend on as well; empty: not recorded
  std::string placement;            // plan::text_of(), which they depend on as well; empty: everywhere
  boost::json::object validations;  // the state of Validator
  telemetry::WindowSums window;     // of steps after the last log line
  boost::json::array history;       // changes of the configuration since the run began

  /// How far the run is, in this unit of periods.
  [[nodiscard]] double position(config::Period::Unit unit) const;
};

/// Facts about a run that its configuration does not contain.
struct RunFacts {
  boost::json::value tokenizer;  // data::digests_of
  Digest data;                   // tokenizer, texts and transforms
  std::int64_t vocab_live = 0;
  data::StepSizes sizes;
  int world = 1;
};

/// What is no longer as it was in `before`, of that on which the last bits of results depend on this many ranks.
[[nodiscard]] std::vector<std::string> changes_of_bits(const RunState& before, const std::string& instructions,
                                                       const std::string& placement, int ranks);

/// Whether checkpoints with these optimizer sections hold the same tensors of an optimizer.
[[nodiscard]] bool has_same_optimizer_state(const boost::json::object& a, const boost::json::object& b);

/// The sections of a checkpoint. model, optimizer, schedule and data describe the run; counters and best, its progress.
[[nodiscard]] checkpoint::Sections sections_of(const plan::RunConfig& config, const RunFacts& facts,
                                               const RunState& state);

/// Reads back what resuming needs. Throws Error{corrupt} for sections that sections_of() cannot have written.
[[nodiscard]] RunState state_of(const checkpoint::Reader& reader);

/// The micro_size of the run that wrote the checkpoint. Absent if its steps had another global_size. Throws
/// Error{corrupt}.
[[nodiscard]] std::optional<std::int64_t> micro_size_of(const checkpoint::Reader& reader, std::int64_t global_size);

/// The sizes of a step; where micro_size is auto, with that of the run that wrote the checkpoint. Throws Error{config,
/// corrupt}.
[[nodiscard]] data::StepSizes sizes_with(data::BatchConfig batch, const checkpoint::Reader& reader, int world);

/// Keys that may change on resume where a user says so. `tasks`: those of a model with stacks.
inline constexpr std::array changeable_keys{"data",           "batch",           "seed", "precision", "loss",
                                            "optimizer.type", "optimizer.state", "tasks"};

/// Compares the saved settings with those of the present run. Throws Error{config} if the model or tokenizer has
/// changed, or if one of changeable_keys has and `allowed` does not name it. Returns all other changes of optimizer and
/// schedule, and the allowed ones, as texts for the log and the history.
[[nodiscard]] std::vector<std::string> check_resumable(const checkpoint::Sections& saved,
                                                       const checkpoint::Sections& wanted,
                                                       std::span<const std::string> allowed, const std::string& where);

}  // namespace argosy::train
