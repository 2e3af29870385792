#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/comm.hpp"
#include "core/error.hpp"

/// MPI in this process, for comm/ itself: the mutex around every MPI call, and the one loop in which a rank waits for
/// an operation. Environment owns the one object of a process; communicators borrow it.
///
/// Near the deadline, a waiting rank asks the members of its operation what they are doing. Questions and answers use a
/// communicator of their own.
/// - A rank that waits answers from its loop, for all of its threads, with the operations it waits in.
/// - A rank that runs the body of agree() answers from its attendant that it is at work.
/// - A rank that computes elsewhere, is stopped or is dead does not answer.
/// If every member waits in this operation or is at work, and at least one is at work, the rank keeps waiting.
/// Otherwise the operation ends with an error.
///
/// In a large job only the first few members ask, and they tell the others the result. If these do not tell it in time,
/// the next members ask, twice as many in each round. So questions grow less than the square of the ranks.
namespace argosy::comm {

/// What a rank waits for, as errors and other ranks are told.
struct Waiting {
  std::string operation;                         // "barrier \"start\"", "reduce_scatter"
  std::int64_t size_bytes = 0;                   // of this rank's buffer
  std::span<const int> members;                  // world ranks that take part
  std::int64_t step = -1;                        // named in errors; -1: none yet
  const std::atomic<bool>* abandoned = nullptr;  // set: the wait ends with an error
};

/// "step 7: barrier of 8 bytes did not end: …". wanted: what follows "did not".
[[nodiscard]] Error failure(const Waiting& waiting, const std::string& wanted, const std::string& got,
                            const std::string& remedy);

class Session {
 public:
  /// Initializes MPI. Throws Error{comm} if MPI provides a lower thread level than SERIALIZED.
  Session(int& argc, char**& argv);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Tests `requests` until all are complete. Throws Error{comm}: operation, bytes, step, silent ranks.
  void wait(std::span<MPI_Request> requests, const Waiting& waiting);
  /// Runs `call`, an MPI function that does not block, under the mutex. Throws Error{comm} on an MPI error.
  template <class Call>
  void run(const Waiting& waiting, Call call) {
    const std::lock_guard lock(mutex);
    const Inside inside(waiting);
    check(call(), waiting);
  }
  /// While it runs, this thread answers other ranks that this rank is at work, so they keep waiting past their
  /// deadline. For work of any length that the others wait for. While a thread of this rank waits for an operation,
  /// that thread answers instead.
  [[nodiscard]] std::jthread attendant();
  /// The error of the operation that this thread is in, for a handler of SIGABRT: UCX aborts a process if a peer in
  /// shared memory has died. Empty if the thread is not in MPI.
  [[nodiscard]] static std::optional<Error> cut_short();
  /// Says that this rank ends with this error. If it has not begun to end within seconds, because a device holds a
  /// thread or the destructor of something, run_main ends the job. Does nothing without run_main. From any thread.
  void ends_in_time(const std::exception_ptr& error) const {
    if (on_failure) on_failure(error);
  }
  /// Keeps `memory` alive, because an operation that has been given up may still write to it.
  void abandon(std::vector<std::byte> memory);
  void count(std::int64_t sent_bytes, std::int64_t received_bytes) noexcept;
  [[nodiscard]] ControlTraffic control_traffic() const noexcept;

  std::mutex mutex;  // held during every MPI call
  static constexpr const char* timeout_variable = "ARGOSY_COMM_TIMEOUT_S";
  static constexpr double least_timeout_s = 0.1;
  std::atomic<double> timeout_s = 600;  // of one operation
  std::atomic<std::int64_t> step = -1;  // of operations whose communicator has none of its own
  std::vector<std::string> hosts;       // by world rank; empty before they are known
  int first_askers = 32;                // members that ask in the first round
  std::function<void(std::exception_ptr)> on_failure;
  std::atomic<bool> device_is_held = false;  // operations may run on it that no rank waits for

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Listed;
  struct Outgoing;
  /// The result of asking all members of an operation.
  struct Judgement {
    bool ends = false;  // the operation is given up, for the reason in `got`
    std::string got;
    TimePoint when;
  };
  /// While it lives, this thread is inside MPI for `waiting`.
  class Inside {
   public:
    explicit Inside(const Waiting& waiting) noexcept { in_mpi_now = &waiting; }
    ~Inside() { in_mpi_now = nullptr; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  void check(int mpi_result, const Waiting& waiting) const;
  /// The number of rounds in which others ask before this rank does.
  [[nodiscard]] int turn_of(const Waiting& waiting) const;
  void post(int world_rank, int kind, const std::string& operation, const std::string& got = "");
  /// Tells the result to members that wait in the same operation and do not ask in the first round.
  void tell(const Waiting& waiting, TimePoint asked, int kind, const std::string& got = "");
  /// The result that another member has told since then.
  [[nodiscard]] std::optional<Judgement> take_judgement(const Waiting& waiting, TimePoint since);
  /// Forgets notices that have been sent. Receives all notices: answers questions with what this rank's threads wait
  /// for, or that it is at work, and keeps answers and results.
  void answer_peers();
  /// The operations that a world rank has answered since then. An empty name: it is at work.
  [[nodiscard]] std::vector<std::string> told(int world_rank, TimePoint since);
  /// Whether every member has answered since then that it waits in the same operation or is at work, and at least one
  /// is at work.
  [[nodiscard]] bool is_worth_waiting(const Waiting& waiting, TimePoint asked);
  /// What the members are doing, for the error.
  [[nodiscard]] std::string doings_of(const Waiting& waiting, TimePoint asked);

  static inline thread_local const Waiting* in_mpi_now = nullptr;
  std::atomic<std::int64_t> calls_ = 0, sent_bytes_ = 0, received_bytes_ = 0;
  int self_ = 0;                    // world rank
  MPI_Comm watch_ = MPI_COMM_NULL;  // questions and answers between waiting ranks
  // Guarded by the mutex as well.
  std::vector<const Waiting*> waits_;                          // of threads inside wait()
  std::map<int, std::map<std::string, TimePoint>> last_told_;  // by world rank and operation
  std::list<Outgoing> outgoing_;
  std::map<std::string, Judgement> judgements_;  // by operation, as told by others
  std::list<std::vector<std::byte>> abandoned_;
};

struct Communicator::Impl {
  /// Takes over `owned`. `purpose` follows the names of operations in errors: " at the end of the run". What is made of
  /// this communicator has the same.
  Impl(Session& of, MPI_Comm owned, std::string purpose = "");
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Waiting waiting(const std::string& operation, std::int64_t size_bytes) const {
    return {operation + purpose_, size_bytes, world_ranks, step >= 0 ? step : session.step.load(), &abandoned_};
  }
  /// **Collective** over this communicator. Ranks of equal color, ordered by key; nothing for a negative color.
  [[nodiscard]] std::unique_ptr<Impl> split(int color, int key) const;
  /// **Collective.** Ranks that share memory, by rank.
  [[nodiscard]] std::unique_ptr<Impl> split_by_memory() const;
  /// **Collective.** A new communicator of the same ranks.
  [[nodiscard]] std::unique_ptr<Impl> duplicate() const;
  /// Session::wait for operations on this communicator. An operation that is given up leaves messages in the network.
  /// The communicator then stays until MPI ends, because a new one with its identity would receive them.
  void wait(std::span<MPI_Request> requests, const Waiting& waiting) const;
  /// Starts an operation by start(MPI_Request*), which returns MPI's result, and waits for it.
  template <class Start>
  void complete(const Waiting& waiting, Start start) const {
    MPI_Request request = MPI_REQUEST_NULL;
    session.run(waiting, [&] { return start(&request); });
    wait({&request, 1}, waiting);
  }
  /// Makes every wait for an operation on this communicator throw. Call from any thread.
  void abandon() const { abandoned_ = true; }
  void name(std::string purpose) { purpose_ = std::move(purpose); }
  [[nodiscard]] const std::string& purpose() const noexcept { return purpose_; }

  Session& session;
  MPI_Comm comm;
  int rank = 0, size = 1;
  std::vector<int> world_ranks;
  std::int64_t step = -1;             // of operations on it, if they run on a thread of their own; -1: the session's
  std::int64_t call_bytes = INT_MAX;  // of one call with texts; MPI counts them in an int

 private:
  /// What make(MPI_Comm*) makes, if anything. MPI blocks while it makes a communicator, so all ranks first meet in an
  /// operation with a deadline.
  template <class Make>
  [[nodiscard]] std::unique_ptr<Impl> made_together(const std::string& operation, Make make) const;

  std::string purpose_;
  mutable std::atomic<bool> given_up_ = false, abandoned_ = false;
};

}  // namespace argosy::comm
