#pragma once

#include <functional>
#include <string>

#include "train/host_state.hpp"

/// Writes a run's checkpoints while training continues. The state is copied to host memory during the forward and
/// backward passes of the next step, and a thread writes it from there. The first step after the save has ended logs
/// its result. One save at a time. Borrows everything. Call from one thread.
namespace argosy::train {

class Saver {
 public:
  /// Makes the sections of a checkpoint. Called when no other save is in progress, so that they can mention the earlier
  /// ones.
  using Sections = std::function<checkpoint::Sections()>;

  /// `ended` is called on all ranks when a save has ended, with its step and whether it was committed.
  Saver(const comm::Context& context, checkpoint::Store& store, HostState& state, const plan::CheckpointConfig& config,
        std::string tokenizer_model, std::function<void(std::int64_t step, bool committed)> ended);
  /// If the run has failed: stops the writing thread, which reads memory that is about to be freed.
  ~Saver() { store_.abandon_save(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// To be called once a step. Logs a save that has ended. **Collective.** Throws Error{io} after max_failed_saves
  /// failed saves in a row.
  void poll();
  /// Begins to save. If another save is in progress, on_busy decides whether a temporary checkpoint waits for it or is
  /// left out. An export always waits, and so does a checkpoint with `must`. **Collective.** Throws as poll().
  void begin(checkpoint::Kind kind, std::int64_t step, const Sections& sections, bool must = false);
  /// Saves and waits until the save has ended. **Collective.** Throws Error{io} if it fails.
  void save_last(checkpoint::Kind kind, std::int64_t step, const Sections& sections,
                 checkpoint::Tidy tidy = checkpoint::Tidy::now);
  /// To be called before weights and moments change.
  void before_update();

  struct Figures {
    std::int64_t saved = 0, failed = 0, left_out = 0;
    double seconds = 0;    // from begin to commit
    double longest_s = 0;  // the longest save, with the removal of old checkpoints that the next save waits for
    double held_up_s = 0;  // the part of `seconds` in which training waited
    Path newest{};         // the newest checkpoint that this process has committed
  };
  [[nodiscard]] const Figures& figures() const noexcept { return figures_; }

 private:
  /// Calls `wait` and adds the time that it takes to what the save has held up.
  void hold_up(const std::function<void()>& wait);
  void start(checkpoint::Kind kind, std::int64_t step, const Sections& sections);
  void take(const std::optional<checkpoint::SaveReport>& report, std::int64_t most_failures);

  const comm::Context& context_;
  checkpoint::Store& store_;
  HostState& state_;
  const plan::CheckpointConfig config_;
  const checkpoint::Attachment tokenizer_;
  const std::function<void(std::int64_t, bool)> ended_;
  std::int64_t step_ = 0;  // of the save in progress
  std::int64_t failures_in_a_row_ = 0;
  double held_up_s_ = 0;  // by the save in progress
  Figures figures_;
};

}  // namespace argosy::train
