#include "comm/mpi_links.hpp"

#include <algorithm>
#include <utility>

namespace argosy::comm {
namespace {

constexpr std::int64_t message_bytes = 64 << 20;  // a message's count is an int; shorter ones end sooner

/// Calls start(begin, count) for each message that `size_bytes` take.
template <class Start>
void each_part(std::int64_t size_bytes, Start start) {
  for (std::int64_t begin = 0; begin < size_bytes; begin += message_bytes)
    start(begin, static_cast<int>(std::min(message_bytes, size_bytes - begin)));
}

}  // namespace

Links::Links(const Topology& topology)
    : layout(topology.layout()),
      canonical_rank(topology.canonical_rank()),
      node(topology.node()),
      local_rank(topology.local_rank()),
      owned(layout.slots_of(canonical_rank)),
      node_comm(topology.node_comm().duplicate()),
      canonical_comm(topology.canonical_comm().duplicate()) {
  for (const Communicator& comm : topology.slot_comms()) slot_comms.push_back(comm.duplicate());
}

void Links::set_step(std::int64_t step) const {
  for (const Communicator* comm : all()) comm->impl().step = step;
}

void Links::abandon() const {
  for (const Communicator* comm : all()) comm->impl().abandon();
}

std::vector<const Communicator*> Links::all() const {
  std::vector<const Communicator*> comms{&node_comm, &canonical_comm};
  for (const Communicator& comm : slot_comms) comms.push_back(&comm);
  return comms;
}

void Messages::receive(const Communicator& from, int rank, std::byte* to, std::int64_t size_bytes) {
  each_part(size_bytes, [&](std::int64_t begin, int count) {
    receives_.push_back(requests_.size());
    start(from, [&](MPI_Comm comm, MPI_Request* request) {
      return MPI_Irecv(to + begin, count, MPI_BYTE, rank, 0, comm, request);
    });
  });
}

void Messages::send(const Communicator& to, int rank, const std::byte* from, std::int64_t size_bytes) {
  each_part(size_bytes, [&](std::int64_t begin, int count) {
    start(to, [&](MPI_Comm comm, MPI_Request* request) {
      return MPI_Isend(from + begin, count, MPI_BYTE, rank, 0, comm, request);
    });
    sent_bytes_ += count;
  });
}

void Messages::wait() {
  try {
    if (!requests_.empty()) impl_.wait(requests_, waiting_);
  } catch (...) {
    const std::lock_guard lock(impl_.session.mutex);
    for (const std::size_t i : receives_) {
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
    throw;
  }
  requests_.clear();
  receives_.clear();
}

std::int64_t Messages::take_sent_bytes() { return std::exchange(sent_bytes_, 0); }

}  // namespace argosy::comm
