#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/session.hpp"

/// What the parts of the MPI backend share, for comm/ itself: its communicators, messages with a deadline, scratch
/// memory and the three ways to reduce.
namespace argosy::comm {

/// The place of a rank, and communicators that only this backend uses. **Collective.**
struct Links {
  explicit Links(const Topology& topology);

  /// The step that errors of operations on them name from now on.
  void set_step(std::int64_t step) const;
  /// Makes every wait for an operation on them throw. Call from any thread.
  void abandon() const;

  partition::Layout layout;
  int canonical_rank = 0, node = 0, local_rank = 0;
  std::vector<int> owned;  // slots
  Communicator node_comm, canonical_comm;
  std::vector<Communicator> slot_comms;  // by owned slot: every owner walks its slots upwards, or they would deadlock

 private:
  [[nodiscard]] std::vector<const Communicator*> all() const;
};

/// Messages of one phase, all started before the wait. If the wait fails, receives that are not complete are canceled,
/// so that nothing writes to memory that no longer exists.
class Messages {
 public:
  /// Over `comm`, or over communicators whose ranks are all in `comm`.
  Messages(const Communicator& comm, const std::string& operation, std::int64_t size_bytes)
      : impl_(comm.impl()), waiting_(impl_.waiting(operation, size_bytes)) {}

  void receive(const Communicator& from, int rank, std::byte* to, std::int64_t size_bytes);
  void send(const Communicator& to, int rank, const std::byte* from, std::int64_t size_bytes);
  /// Starts a non-blocking MPI operation: call(MPI_Comm, MPI_Request*) returns MPI's result.
  template <class Call>
  void start(const Communicator& over, Call call) {
    impl_.session.run(waiting_, [&] { return call(over.impl().comm, &requests_.emplace_back(MPI_REQUEST_NULL)); });
  }
  void wait();
  /// Payload that send() has passed to the network since the last call.
  [[nodiscard]] std::int64_t take_sent_bytes();

 private:
  const Communicator::Impl& impl_;
  Waiting waiting_;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> receives_;  // which of them
  std::int64_t sent_bytes_ = 0;
};

/// Memory that grows to the largest size asked for and is kept.
class Scratch {
 public:
  std::byte* at_least(std::int64_t size_bytes) {
    if (size_bytes > size_bytes_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size_bytes));
      size_bytes_ = size_bytes;
    }
    return bytes_.get();
  }
  float* floats(std::int64_t elements) { return reinterpret_cast<float*>(at_least(elements * 4)); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::int64_t size_bytes_ = 0;
};

/// One way to form the sums of a reduce-scatter. The caller checks sizes.
class Reducer {
 public:
  virtual ~Reducer() = default;
  /// Returns the payload sent.
  virtual Traffic::Bytes run(const partition::FlatSpace& space, BufferView flat, float* shard, ReduceCall call) = 0;
};

[[nodiscard]] std::unique_ptr<Reducer> make_exact_reducer(Links& links, const CollectivesOptions& options);
[[nodiscard]] std::unique_ptr<Reducer> make_fast_reducer(Links& links, const CollectivesOptions& options);
[[nodiscard]] std::unique_ptr<Reducer> make_elastic_reducer(Links& links, const CollectivesOptions& options);

}  // namespace argosy::comm
