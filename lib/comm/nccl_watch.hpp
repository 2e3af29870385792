#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <latch>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/event.hpp"
#include "comm/nccl_table.hpp"

/// Watches the operations on a device from a thread of its own. If NCCL reports an error, or an operation has not ended
/// within the deadline after it could start, every wait for an event and every later call throws an Error{comm} that
/// names operation, bytes and step. A thread that CUDA holds cannot throw: after a second the watch aborts the
/// communicators, which frees the device. If the rank has not begun to end by then, Session::ends_in_time ends the job.
///
/// NCCL may wait for peers in the destruction and in the abort of a communicator, and peers may be gone. So all
/// communicators end at the same time, on threads of their own, and nobody waits longer for them than a limit. A rank
/// that fails alone leaves NCCL as it is.
/// Call from one thread. Events may outlive the watch; the table outlives both, and all threads that NCCL holds.
namespace argosy::comm {

/// Throws Error{device} unless CUDA's `result` is success; `action` follows "cannot" in the error: "create a stream".
void check_cuda(const NcclTable& table, int result, const std::string& action);

/// A point on a device's stream.
class Mark {
 public:
  /// Where `stream` is now.
  Mark(const NcclTable& table, DeviceStream stream);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  /// CUDA's result: 0 if the device has come here, cuda_not_ready, or the error of the device.
  [[nodiscard]] int state() const noexcept { return table_.mark_query(mark_); }
  void hold(DeviceStream other) const;  // until the device has come here

 private:
  const NcclTable& table_;
  DeviceMark mark_ = nullptr;
};

/// An event that completes when the work given to `stream` so far has ended: computation that an operation waits for.
[[nodiscard]] Event record_event(const NcclTable& table, DeviceStream stream);

struct WatchFailure;

class Session;

class NcclWatch {
 public:
  struct Operation {
    std::string name;
    std::int64_t size_bytes = 0, step = -1;
  };

  /// For the device of the calling thread. The deadline is that of the session now.
  NcclWatch(const NcclTable& table, Session& session);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Ends the watch and, unless an operation has failed or an exception is on its way, the communicators: waits two
  /// seconds for running operations, then aborts them, else destroys the communicators. Returns whether nothing runs on
  /// the device any more, so that its memory can be freed. A second call does nothing.
  bool close();

  /// Makes a communicator by `make`, which returns it and may wait for peers, and takes it over. It has the deadline of
  /// an operation.
  template <class Make>
  NcclComm connect(const std::string& name, Make make) {
    const std::lock_guard lock(calls_);
    throw_failure();
    const Entry entry = announce({.name = name});
    NcclComm made = nullptr;
    try {
      made = make();
    } catch (...) {
      forget(entry);
      fail(std::current_exception());
    }
    throw_failure();
    forget(entry);
    if (made != nullptr) add(made);
    return made;
  }

  /// Gives `stream` an operation, by `enqueue`, that starts after `ready`. Returns the event of its end. After a
  /// failure, in `enqueue` or found by the watch, every call throws the same error.
  template <class Enqueue>
  [[nodiscard]] Event run(const Operation& operation, DeviceStream stream, const Event& ready, Enqueue enqueue) {
    const std::lock_guard lock(calls_);
    throw_failure();
    try {
      const auto entry = announce(operation);
      ready.wait_on(stream);
      const auto begin = std::make_shared<Mark>(table_, stream);
      enqueue();
      return follow(entry, begin, std::make_shared<Mark>(table_, stream));
    } catch (...) {
      fail(std::current_exception());
    }
    throw_failure();
    return {};
  }
  /// Throws the failure if there is one.
  void throw_failure() const;

 private:
  struct UnderWay {
    Operation operation;
    std::shared_ptr<Mark> begin, end;  // none until the device has been given all of it
    std::optional<std::chrono::steady_clock::time_point> begun;
  };
  using Entry = std::list<UnderWay>::iterator;

  void add(NcclComm comm);
  Entry announce(const Operation& operation);
  void forget(Entry entry);
  Event follow(Entry entry, std::shared_ptr<Mark> begin, std::shared_ptr<Mark> end);
  void fail(const std::exception_ptr& error);
  void watch(const std::stop_token& stop);
  /// Starts to end all communicators by `end`, a function of NCCL. Returns how many calls have not come back yet.
  [[nodiscard]] std::shared_ptr<std::latch> end_all(int (*end)(NcclComm));
  /// Forgets operations that have ended. Returns the error of the others, if there is one.
  [[nodiscard]] std::exception_ptr look();
  [[nodiscard]] std::exception_ptr problem_of(UnderWay& one) const;

  const NcclTable& table_;
  Session& session_;
  const double timeout_s_;
  const int exceptions_ = std::uncaught_exceptions();
  int device_ = 0;
  std::optional<bool> at_rest_;  // what close() has returned
  const std::shared_ptr<WatchFailure> failure_;
  std::timed_mutex calls_;  // held during calls to NCCL; an abort waits for it a second at most
  std::mutex lists_;
  std::vector<NcclComm> comms_;
  std::list<UnderWay> under_way_;
  std::jthread thread_;
};

}  // namespace argosy::comm
