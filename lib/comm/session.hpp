#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
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

/// MPI in this process, for comm/ itself: the mutex around every MPI call, and the one loop in which ranks wait. One
/// object a process, owned by Environment; communicators borrow it. Past the deadline the waiting rank asks its peers
/// what they are doing, over a communicator of its own. A rank answers from inside this loop, for all of its threads,
/// or by its Attendant while it is at work that others know to wait for; one that does not answer computes where it
/// should not, is stopped or dead. Of many ranks the first few ask, and tell the others what came of it; only where
/// these are silent do more ask, twice as many each time: questions never grow with the square of the ranks.
namespace argosy::comm {

/// What a rank waits for, as told to people and to peers.
struct Waiting {
  std::string operation;                         // "barrier \"start\"", "reduce_scatter"
  std::int64_t size_bytes = 0;                   // of this rank's buffer
  std::span<const int> members;                  // world ranks that take part
  std::int64_t step = -1;                        // named in errors; -1: none yet
  const std::atomic<bool>* abandoned = nullptr;  // set: the wait ends with an error
};

class Session {
 public:
  /// Initialises MPI. Throws Error{comm} when MPI gives less than SERIALIZED.
  Session(int& argc, char**& argv);
  ~Session();
  class Attendant;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Tests until all requests are complete. Throws Error{comm}: operation, bytes, step, silent ranks.
  void wait(std::span<MPI_Request> requests, const Waiting& waiting);
  /// Runs `call` (an MPI function that does not wait) under the mutex. Throws Error{comm} on an MPI error.
  template <class Call>
  void run(const Waiting& waiting, Call call) {
    const std::lock_guard lock(mutex);
    const Inside inside(waiting);
    check(call(), waiting);
  }
  /// The error of the operation this thread is in, for a handler of SIGABRT: UCX ends the process where it finds a peer
  /// in shared memory dead. Empty outside of MPI.
  [[nodiscard]] static std::optional<Error> cut_short();
  /// Keeps memory alive that an operation given up on may still write to.
  void abandon(std::vector<std::byte> memory);
  void count(std::int64_t sent_bytes, std::int64_t received_bytes) noexcept;
  [[nodiscard]] ControlTraffic control_traffic() const noexcept;

  std::mutex mutex;  // held round every MPI call
  static constexpr const char* timeout_variable = "ARGOSY_COMM_TIMEOUT_S";
  static constexpr double least_timeout_s = 0.1;
  std::atomic<double> timeout_s = 600;  // of one operation
  std::atomic<std::int64_t> step = -1;  // of operations whose communicator knows none of its own
  std::vector<std::string> hosts;       // by world rank; empty before they are known
  int first_askers = 32;                // of an operation's members, at a deadline

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Notice;
  struct Outgoing;
  /// What a rank that has asked all others makes of an operation.
  struct Judgement {
    bool ends = false;  // it is given up, for the reason in `got`
    std::string got;
    TimePoint when;
  };
  /// This thread is inside MPI for `waiting`.
  class Inside {
   public:
    explicit Inside(const Waiting& waiting) noexcept;
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };
  /// A thread of this rank waits for `waiting`.
  class Listed {
   public:
    Listed(Session& session, const Waiting& waiting);
    ~Listed();
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    Session& session_;
    const Waiting* waiting_;
  };

  void check(int mpi_result, const Waiting& waiting) const;
  [[nodiscard]] bool any_waits();
  /// How many rounds of askers come before this rank's.
  [[nodiscard]] int turn_of(const Waiting& waiting) const;
  void post(int world_rank, int kind, const std::string& operation, const std::string& got = "");
  /// Forgets notices that have gone.
  void drop_sent();
  /// Tells those who wait in the same operation and were not among the first to ask.
  void tell(const Waiting& waiting, TimePoint asked, int kind, const std::string& got = "");
  /// What another member has told since then.
  [[nodiscard]] std::optional<Judgement> take_judgement(const Waiting& waiting, TimePoint since);
  /// Tells asking peers what this rank's threads wait for (nothing: it is at work), and books what they answered.
  void answer_peers();
  /// Operations a world rank has told since then that it waits in; an empty one: it is at work.
  [[nodiscard]] std::vector<std::string> told(int world_rank, TimePoint since);
  /// Whether the operation a peer told, cut to a notice's room, is this one.
  [[nodiscard]] static bool is_same(const std::string& operation, const Waiting& waiting);
  /// Whether all ranks it waits for have told since then that they wait in the same operation or are at work on the way
  /// to it, at least one of them.
  [[nodiscard]] bool is_worth_waiting(const Waiting& waiting, TimePoint asked);
  /// What the ranks it waits for are doing, for people.
  [[nodiscard]] std::string doings_of(const Waiting& waiting, TimePoint asked);
  [[noreturn]] static void give_up(const Waiting& waiting, const std::string& got, double waited_s);

  std::atomic<std::int64_t> calls_ = 0, sent_bytes_ = 0, received_bytes_ = 0;
  int self_ = 0;                    // world rank
  MPI_Comm watch_ = MPI_COMM_NULL;  // questions and answers between waiting ranks
  // Guarded by the mutex, too.
  std::vector<const Waiting*> waits_;                          // of threads inside wait(), which answer for this rank
  std::map<int, std::map<std::string, TimePoint>> last_told_;  // by world rank and operation
  std::list<Outgoing> outgoing_;
  std::map<std::string, Judgement> judgements_;  // by operation, as told by others
  std::list<std::vector<std::byte>> abandoned_;
};

/// While it lives, a thread tells asking peers that this rank is at work, so that they wait on past their deadline. For
/// work of any length that the others wait for; while the rank waits for them, it answers with that instead.
class Session::Attendant {
 public:
  explicit Attendant(Session& session);

 private:
  std::jthread thread_;
};

struct Communicator::Impl {
  /// Takes over `owned`; `purpose` follows operations' names in sentences (" at the end of the run").
  Impl(Session& of, MPI_Comm owned, std::string purpose = "");
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Waiting waiting(const std::string& operation, std::int64_t size_bytes) const {
    return {operation + purpose_, size_bytes, world_ranks, step >= 0 ? step : session.step.load(), &abandoned_};
  }
  /// **Collective** over this communicator. Ranks of equal color by key; nothing for a negative color. Making a
  /// communicator blocks inside MPI, so all ranks meet under the deadline first.
  [[nodiscard]] std::unique_ptr<Impl> split(int color, int key) const;
  /// **Collective.** Ranks that share memory, by rank.
  [[nodiscard]] std::unique_ptr<Impl> split_by_memory() const;
  /// **Collective.** The same ranks in a communicator of its own.
  [[nodiscard]] std::unique_ptr<Impl> duplicate() const;
  /// Session::wait for operations on this communicator. One that gives up leaves messages under way, so the
  /// communicator then stays until MPI ends: another with its identity would receive them.
  void wait(std::span<MPI_Request> requests, const Waiting& waiting) const;
  /// Makes waits for operations on this communicator throw, from any thread.
  void abandon() const { abandoned_ = true; }

  Session& session;
  MPI_Comm comm;
  int rank = 0, size = 1;
  std::vector<int> world_ranks;
  std::int64_t step = -1;  // of the operations on it, where they run on a thread of their own; -1: the session's

 private:
  void meet(const std::string& operation) const;

  std::string purpose_;
  mutable std::atomic<bool> given_up_ = false, abandoned_ = false;
};

}  // namespace argosy::comm
