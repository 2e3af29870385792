#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "comm/nccl_table.hpp"

/// Stands in for NCCL and a GPU on every rank: memory is that of the host, and messages travel by MPI. Writes down
/// every call. One object at a time.
/// - By default a stream does at once what it is given, and the end of a communicator waits for nobody.
/// - With `late`, a stream has a thread that takes so long for each operation, and a communicator waits in its
///   destruction and its abort until all of its ranks are in one of the two, for ever if need be, as NCCL may.
namespace argosy::comm::test {

inline std::int64_t bytes_of(int type) { return type == nccl_f32 ? 4 : type == nccl_bf16 ? 2 : 1; }

class StandInNccl {
 public:
  /// Messages travel over `world`, whose ranks are the ranks of NCCL.
  explicit StandInNccl(const Communicator& world, std::chrono::milliseconds late = {});
  /// Waits for all streams.
  ~StandInNccl();
  StandInNccl(const StandInNccl&) = delete;
  StandInNccl& operator=(const StandInNccl&) = delete;

  [[nodiscard]] const NcclTable& table() const { return table_; }
  /// As cudaDeviceSynchronize: returns when all streams have done everything.
  void synchronize() const;

  struct Call {
    std::string what;          // "send", "mark", …
    int stream = 0;            // from 1 in the order of their making; 0: none, -1: one of the test's
    std::int64_t count = 0;    // elements, or terms of a sum
    int type = -1, comm = -1;  // by number, in the order of their making: 0 is the world
    auto operator<=>(const Call&) const = default;
  };
  std::vector<Call> calls;
  std::int64_t allocated_bytes = 0;  // now
  /// The GPUs on which this process has a context: those that were current on a thread that called CUDA or NCCL.
  [[nodiscard]] std::set<int> contexts() const;

  // What goes wrong: operations given from then on never end; an error that NCCL reports; one that CUDA does; aborts,
  // or that of the world alone, neither free the device nor return.
  std::atomic<bool> hangs = false, abort_hangs = false, world_abort_hangs = false;
  std::atomic<int> async_error = 0, device_error = 0;
  std::atomic<int> aborted = 0, destroyed = 0;  // communicators, of these:
  [[nodiscard]] int made() const { return static_cast<int>(comms_.size()); }

 private:
  struct Comm;
  struct Message;
  class Stream;
  static StandInNccl* current;
  static thread_local int device;
  static NcclTable make_table();

  void write_down(std::string what, DeviceStream stream = nullptr, std::int64_t count = 0, int type = -1,
                  const Comm* comm = nullptr);
  /// The device of this thread has a context from now on.
  void touch_device();
  void give(DeviceStream stream, std::function<void()> work);
  void operate(DeviceStream stream, std::function<void()> work);  // what `hangs` stops
  int make_comm(NcclComm* made, const Comm& parent, int color, int key);
  void move(std::vector<Message> messages);  // those of a group
  void wait_for_peers(Comm& comm) const;

  const Communicator& world_;
  const std::chrono::milliseconds late_;
  NcclTable table_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Message> messages_;
  DeviceStream stream_of_group_ = nullptr;
  std::map<void*, std::int64_t> memory_;
  mutable std::mutex mutex_;
  std::set<int> contexts_;
  int groups_ = 0;
  std::atomic<bool> stuck_ = false;
};

}  // namespace argosy::comm::test
