#pragma once

#include <exception>
#include <memory>
#include <utility>

/// Completion of an operation on some stream, handed from the operation that produces data to the one that waits for
/// it. Host work that runs on a thread of its own completes a HostEvent; device backends bring their own State.
/// Thread-safe.
namespace argosy::comm {

class Event {
 public:
  /// What a stream's events have in common.
  struct State {
    virtual ~State() = default;
    /// Blocks the host until done; rethrows the operation's Error.
    virtual void wait() = 0;
    [[nodiscard]] virtual bool done() const noexcept = 0;
  };

  /// Already complete (host code that ran in order).
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks the host until done; rethrows the operation's Error.
  void wait() const {
    if (state_) state_->wait();
  }
  [[nodiscard]] bool done() const noexcept { return !state_ || state_->done(); }
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// The producing end of an event that a host thread completes.
class HostEvent {
 public:
  HostEvent();
  [[nodiscard]] Event event() const;
  /// Wakes all waiters; `error` is rethrown in each of them. Called once.
  void complete(std::exception_ptr error = nullptr);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace argosy::comm
