#include "comm/host_stream.hpp"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "core/error.hpp"

namespace argosy::comm {
namespace {

constexpr std::chrono::seconds end_limit{2};

}  // namespace

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

HostStream::HostStream(Work abandon)
    : abandon_(std::move(abandon)), thread_([this](const std::stop_token& stop) { serve(stop); }) {
  pthread_setname_np(thread_.native_handle(), "argosy_comm");
}

HostStream::~HostStream() {
  thread_.request_stop();
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, end_limit, [this] { return ended_; })) abandon_();
}

Event HostStream::run(Event ready, Work work) {
  const std::lock_guard lock(mutex_);
  Event done = pieces_.emplace_back(Piece{std::move(ready), std::move(work), {}}).done.event();
  changed_.notify_all();
  return done;
}

void HostStream::serve(const std::stop_token& stop) {
  std::exception_ptr failure;
  for (std::unique_lock lock(mutex_); changed_.wait(lock, stop, [this] { return !pieces_.empty(); }); lock.lock()) {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    try {
      if (!failure) piece.ready.wait(stop);
      if (!failure && stop.stop_requested()) {
        throw_claim(Fault::comm, "an operation was not started, because communication was shut down", "",
                    "an operation to begin", "the end of its collectives", "look for the first error in the log");
      }
      if (!failure) piece.work();
    } catch (...) {
      failure = std::current_exception();
    }
    piece.work = nullptr;  // before a waiting thread continues
    piece.done.complete(failure);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace argosy::comm
