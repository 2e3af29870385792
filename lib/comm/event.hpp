#pragma once

#include <memory>
#include <stop_token>
#include <utility>

/// The completion of an operation, passed from the operation that produces data to the one that waits for the data.
/// Work on a host thread completes a HostEvent; device backends define their own State. Thread-safe.
namespace argosy::comm {

class Event {
 public:
  /// What the events of a kind of stream share.
  struct State {
    virtual ~State() = default;
    /// Blocks the host until done or `stop` is asked for; rethrows the operation's Error.
    virtual void wait(const std::stop_token& stop) = 0;
    [[nodiscard]] virtual bool done() const noexcept = 0;
    /// Makes a stream of the device wait for it. An event of the host blocks the host instead.
    virtual void wait_on(void* /*stream*/) { wait({}); }
  };

  /// Already complete (host code that ran in order).
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks the host until done, or until `stop` is asked for; rethrows the operation's Error.
  void wait(const std::stop_token& stop = {}) const {
    if (state_) state_->wait(stop);
  }
  /// Makes later work on the device's `stream` wait until done. Only an event of the host blocks the host.
  void wait_on(void* stream) const {
    if (state_) state_->wait_on(stream);
  }
  [[nodiscard]] bool done() const noexcept { return !state_ || state_->done(); }
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace argosy::comm
