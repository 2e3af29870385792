#pragma once

#include <functional>
#include <string>

#include "train/host_state.hpp"

/// A run's checkpoints, written while training goes on: the state is copied to host memory beside the next step's
/// forward and backward passes, written from there by a thread, and what came of it is told at the step that finds it
/// done. One save at a time. Borrows everything. One thread.
namespace argosy::train {

class Saver {
 public:
  /// What a checkpoint says beside its tensors. Asked for when no other save is on its way any more, so that it can
  /// tell of those before it.
  using Sections = std::function<checkpoint::Sections()>;

  /// `ended` is told the step of each save that has come to its end, and whether it was committed, on all ranks alike.
  Saver(const comm::Context& context, checkpoint::Store& store, HostState& state, const plan::CheckpointConfig& config,
        std::string tokenizer_model, std::function<void(std::int64_t step, bool committed)> ended);
  /// On the way out of a run that has failed: the thread at work reads what is about to go.
  ~Saver() { store_.abandon_save(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Once a step: logs a save that has come to its end. **Collective.** Throws Error{io} after max_failed_saves in a
  /// row.
  void poll();
  /// Begins to save. While another save is on its way a temporary checkpoint waits for it or is left out, as on_busy
  /// says; an export waits, and so does one that `must` be. **Collective.** Throws as poll().
  void begin(checkpoint::Kind kind, std::int64_t step, const Sections& sections, bool must = false);
  /// Saves what nothing comes after. **Collective.** Throws Error{io} when it fails.
  void save_last(checkpoint::Kind kind, std::int64_t step, const Sections& sections,
                 checkpoint::Tidy tidy = checkpoint::Tidy::now);
  /// To be called before weights and moments change.
  void before_update();

  struct Figures {
    std::int64_t saved = 0, failed = 0, left_out = 0;
    double seconds = 0;    // from begin to commit
    double longest_s = 0;  // of one of them, and of the tidying up that the next one waits for
    double held_up_s = 0;  // of these, those in which training stood still
    Path newest{};         // committed by this process
  };
  [[nodiscard]] const Figures& figures() const noexcept { return figures_; }

 private:
  void start(checkpoint::Kind kind, std::int64_t step, const Sections& sections);
  void take(const std::optional<checkpoint::SaveReport>& report, std::int64_t most_failures);

  const comm::Context& context_;
  checkpoint::Store& store_;
  HostState& state_;
  const plan::CheckpointConfig config_;
  const checkpoint::Attachment tokenizer_;
  const std::function<void(std::int64_t, bool)> ended_;
  std::int64_t step_ = 0;  // of the save on its way
  std::int64_t failures_in_a_row_ = 0;
  double held_up_s_ = 0;  // by the save on its way
  Figures figures_;
};

}  // namespace argosy::train
