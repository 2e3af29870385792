#include "comm/event.hpp"

#include <condition_variable>
#include <mutex>

namespace argosy::comm {

struct HostEvent::State : Event::State {
  void wait(const std::stop_token& stop) override {
    std::unique_lock lock(mutex);
    changed.wait(lock, stop, [this] { return complete; });
    if (error) std::rethrow_exception(error);
  }
  [[nodiscard]] bool done() const noexcept override {
    const std::lock_guard lock(mutex);
    return complete;
  }

  mutable std::mutex mutex;
  std::condition_variable_any changed;
  bool complete = false;
  std::exception_ptr error;
};

HostEvent::HostEvent() : state_(std::make_shared<State>()) {}

Event HostEvent::event() const { return Event{state_}; }

void HostEvent::complete(std::exception_ptr error) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->complete = true;
    state_->error = std::move(error);
  }
  state_->changed.notify_all();
}

}  // namespace argosy::comm
