#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/event.hpp"

/// A thread that does pieces of work in the order in which they were asked for: the host's counterpart of a device's
/// stream. What a piece throws reaches everyone who waits for its event; pieces after it are not done, and fail with
/// the same exception. Thread-safe.
namespace argosy::comm {

class HostStream {
 public:
  using Work = std::function<void()>;

  /// `abandon` makes a piece of work that is being done throw soon; called on destruction at most, from another thread.
  explicit HostStream(Work abandon);
  /// Begins nothing more; ends what is being done, by abandoning it where that takes more than two seconds. The events
  /// of what is left undone fail.
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
