#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "comm/nccl_table.hpp"

/// Stands in for NCCL and a GPU on every rank: a stream does at once what it is given, on memory of the host, and
/// messages travel by MPI. Writes down every call. One object at a time.
namespace argosy::comm::test {

inline std::int64_t bytes_of(int type) { return type == nccl_f32 ? 4 : type == nccl_bf16 ? 2 : 1; }

class StandInNccl {
 public:
  /// Messages travel over `world`, whose ranks are the ranks of NCCL.
  explicit StandInNccl(const Communicator& world);
  ~StandInNccl();
  StandInNccl(const StandInNccl&) = delete;
  StandInNccl& operator=(const StandInNccl&) = delete;

  [[nodiscard]] const NcclTable& table() const { return table_; }

  struct Call {
    std::string what;          // "send", "mark", …
    int stream = 0;            // from 1 in the order of their making; 0: none, -1: one of the test's
    std::int64_t count = 0;    // elements, or terms of a sum
    int type = -1, comm = -1;  // by number, in the order of their making: 0 is the world
    auto operator<=>(const Call&) const = default;
  };
  std::vector<Call> calls;
  std::int64_t allocated_bytes = 0;  // now

  // What goes wrong: operations given from then on never end; an error that NCCL reports; one that CUDA does.
  std::atomic<bool> hangs = false;
  std::atomic<int> async_error = 0, device_error = 0;
  std::atomic<int> aborted = 0, destroyed = 0;  // communicators

 private:
  struct Comm;
  struct Message;
  static StandInNccl* current;
  static NcclTable make_table();

  void write_down(std::string what, DeviceStream stream = nullptr, std::int64_t count = 0, int type = -1,
                  const Comm* comm = nullptr);
  bool moves();  // whether operations do anything
  int make_comm(NcclComm* made, const Comm& parent, int color, int key);
  void move();  // the messages of a group

  const Communicator& world_;
  NcclTable table_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::vector<Message> messages_;
  std::map<void*, std::int64_t> memory_;
  int streams_ = 0, groups_ = 0;
  std::atomic<bool> stuck_ = false;
};

}  // namespace argosy::comm::test
