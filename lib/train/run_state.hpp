#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "data/loader.hpp"
#include "optim/clip.hpp"
#include "plan/run_config.hpp"
#include "telemetry/metrics.hpp"

/// What a training run knows besides its tensors, and how that becomes the sections of a checkpoint and comes back.
/// Pure.
namespace argosy::train {

struct RunState {
  std::int64_t step = 0, updates = 0;  // done; a skipped step is no update
  data::Cursor cursor;                 // of the next step
  double epoch = 0;                    // finished, with the fraction
  std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  std::int64_t n_clips = 0;
  optim::SkipGuard::State guard;
  double best_loss = 0;  // of validation; best_step 0: none yet
  std::int64_t best_step = 0;
  bool owes_validation = false;  // due at this step, but the run was stopped first
  boost::json::object metrics;   // of the latest validation
  boost::json::object judged;    // Judge's
  telemetry::WindowSums window;  // steps that no log line has told of
  boost::json::array history;    // changes of configuration over the run's life

  /// How far the run is in a unit of periods.
  [[nodiscard]] double position(config::Period::Unit unit) const;
};

/// What a run is made of besides its configuration.
struct RunFacts {
  Digest tokenizer;
  Digest data;  // tokenizer, texts and transforms
  std::int64_t vocab_live = 0;
  data::StepSizes sizes;
  int world = 1;
};

/// Sections of a checkpoint: model, optimizer, schedule and data say what was trained how, counters and best how far.
[[nodiscard]] checkpoint::Sections sections_of(const plan::RunConfig& config, const RunFacts& facts,
                                               const RunState& state);

/// The inverse for what resuming needs. Throws Error{corrupt} for what sections_of() has not written.
[[nodiscard]] RunState state_of(const checkpoint::Reader& reader);

/// Compares what was saved with what is wanted now. A changed model or tokenizer, and a change in data, batch, seed,
/// precision, loss or optimizer.type that `allowed` does not name, is Error{config}. Other numbers of optimizer and
/// schedule are reported as texts, to be logged and kept in the history.
[[nodiscard]] std::vector<std::string> check_resumable(const checkpoint::Sections& saved,
                                                       const checkpoint::Sections& wanted,
                                                       std::span<const std::string> allowed, const std::string& where);

}  // namespace argosy::train
