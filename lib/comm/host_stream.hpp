#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/event.hpp"

/// Work on host threads, with events like those of a device.
namespace argosy::comm {

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

/// A thread that does pieces of work in the order of the calls, as a stream does on a device. If a piece throws, every
/// wait for its event throws the same; later pieces are not run and fail with the same exception. Thread-safe.
class HostStream {
 public:
  using Work = std::function<void()>;

  /// `abandon` makes the running piece of work throw soon. Only the destructor calls it, from another thread.
  explicit HostStream(Work abandon);
  /// Starts nothing more and waits for the running piece, which it abandons after two seconds. The events of pieces
  /// that have not run fail.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Does `work` after `ready` and after all work before it. Returns at once.
  [[nodiscard]] Event run(Event ready, Work work);

 private:
  struct Piece {
    Event ready;
    Work work;
    HostEvent done;
  };
  void serve(const std::stop_token& stop);

  const Work abandon_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Piece> pieces_;
  bool ended_ = false;  // the thread does nothing more
  std::jthread thread_;
};

}  // namespace argosy::comm
