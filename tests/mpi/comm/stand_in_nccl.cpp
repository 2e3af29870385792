#include "mpi/comm/stand_in_nccl.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "comm/mpi_links.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace argosy::comm::test {
namespace {

using Done = std::shared_ptr<std::atomic<bool>>;  // a CUDA event: whether its stream has come there

float value(const std::byte* from, std::int64_t i, int type) {
  return type == nccl_bf16 ? f32_from_bf16(reinterpret_cast<const std::uint16_t*>(from)[i])
                           : reinterpret_cast<const float*>(from)[i];
}
void put(std::byte* to, std::int64_t i, int type, float sum) {
  if (type == nccl_bf16) {
    reinterpret_cast<std::uint16_t*>(to)[i] = bf16_from_f32(sum);
  } else {
    reinterpret_cast<float*>(to)[i] = sum;
  }
}

/// The sum of equally long contributions, end to end.
void add_up(const std::vector<std::byte>& all, int ranks, std::int64_t count, int type, void* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(all.data() + rank * count * bytes_of(type), i, type);
    put(static_cast<std::byte*>(to), i, type, sum);
  }
}

}  // namespace

struct StandInNccl::Comm {
  std::vector<int> ranks;  // of the world
  int me = 0, number = 0;
  std::shared_ptr<Communicator> messages, ends;  // among all ranks of the world
  std::atomic<bool> is_aborted = false;
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

struct StandInNccl::Message {
  const std::byte* from = nullptr;  // or
  std::byte* to = nullptr;
  std::int64_t size_bytes = 0;
  int peer = 0;
  Comm* comm = nullptr;
};

/// A thread that does what it is given, in order, each piece late.
class StandInNccl::Stream {
 public:
  explicit Stream(std::chrono::milliseconds late)
      : thread_([this, late](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (changed_.wait(lock, stop, [&] { return !work_.empty(); })) {
            lock.unlock();
            std::this_thread::sleep_for(late);
            work_.front()();
            lock.lock();
            work_.pop_front();
            changed_.notify_all();
          }
        }) {}
  void give(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> work_;
  std::jthread thread_;
};

StandInNccl* StandInNccl::current = nullptr;
thread_local int StandInNccl::device = 0;

StandInNccl::StandInNccl(const Communicator& world, std::chrono::milliseconds late)
    : world_(world), late_(late), table_(make_table()) {
  current = this;
}
StandInNccl::~StandInNccl() {
  synchronize();
  streams_.clear();
  for (const auto& [memory, size_bytes] : memory_) ::operator delete(memory);  // left by a backend that has failed
  current = nullptr;
}

void StandInNccl::synchronize() const {
  for (const auto& stream : streams_) {
    if (stream) stream->finish();
  }
}

std::set<int> StandInNccl::contexts() const {
  const std::lock_guard lock(mutex_);
  return contexts_;
}

void StandInNccl::touch_device() {
  const std::lock_guard lock(mutex_);
  contexts_.insert(device);
}

void StandInNccl::write_down(std::string what, DeviceStream stream, std::int64_t count, int type, const Comm* comm) {
  const auto number = reinterpret_cast<std::intptr_t>(stream);
  touch_device();
  calls.push_back({std::move(what), number > std::ssize(streams_) ? -1 : static_cast<int>(number), count, type,
                   comm == nullptr ? -1 : comm->number});
}

void StandInNccl::operate(DeviceStream stream, std::function<void()> work) {
  if (hangs) stuck_ = true;
  give(stream, std::move(work));
}

void StandInNccl::give(DeviceStream stream, std::function<void()> work) {
  if (stuck_) return;
  const auto number = static_cast<std::size_t>(reinterpret_cast<std::intptr_t>(stream));
  if (late_.count() > 0 && number > 0 && number <= streams_.size()) {
    streams_[number - 1]->give(std::move(work));
  } else {
    work();
  }
}

int StandInNccl::make_comm(NcclComm* made, const Comm& parent, int color, int key) {
  touch_device();
  const auto world_size = static_cast<std::size_t>(world_.size()), me = static_cast<std::size_t>(world_.rank());
  std::vector<std::int64_t> told(2 * world_size, 0);  // colors, keys
  told[me] = color;
  told[world_size + me] = key;
  world_.all_reduce(std::span<std::int64_t>{told});
  auto comm = std::make_unique<Comm>();
  comm->messages = std::make_shared<Communicator>(world_.duplicate());
  comm->ends = std::make_shared<Communicator>(world_.duplicate());
  if (color == nccl_no_color) return 0;
  for (const int rank : parent.ranks)
    if (told[static_cast<std::size_t>(rank)] == color) comm->ranks.push_back(rank);
  std::sort(comm->ranks.begin(), comm->ranks.end(), [&](int a, int b) {
    return told[world_size + static_cast<std::size_t>(a)] < told[world_size + static_cast<std::size_t>(b)];
  });
  comm->me = static_cast<int>(std::find(comm->ranks.begin(), comm->ranks.end(), world_.rank()) - comm->ranks.begin());
  comm->number = static_cast<int>(comms_.size());
  *made = comms_.emplace_back(std::move(comm)).get();
  return 0;
}

/// Where a peer does not come, this lasts until the communicator is aborted.
void StandInNccl::move(std::vector<Message> messages) {
  if (messages.empty()) return;
  Comm& first = *messages.front().comm;
  std::vector<std::byte> sent;  // a copy, which peers may read after this rank has freed its buffers
  for (const Message& one : messages) {
    if (one.from != nullptr) sent.insert(sent.end(), one.from, one.from + one.size_bytes);
  }
  try {
    const std::byte* from = sent.data();
    Messages all{*first.messages, "a group of the stand-in", 0};
    for (const Message& one : messages) {
      const int peer = one.comm->ranks[static_cast<std::size_t>(one.peer)];
      if (one.to != nullptr) all.receive(*one.comm->messages, peer, one.to, one.size_bytes);
      if (one.from == nullptr) continue;
      all.send(*one.comm->messages, peer, from, one.size_bytes);
      from += one.size_bytes;
    }
    all.wait();
  } catch (const Error&) {
    first.messages->impl().session.abandon(std::move(sent));
    if (late_.count() == 0) throw;
    while (!first.is_aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void StandInNccl::wait_for_peers(Comm& comm) const {
  if (late_.count() == 0) return;
  try {
    std::vector<std::byte> others(comm.ranks.size());
    const std::byte mine{};
    Messages all{*comm.ends, "the end of a communicator", 1};
    for (int i = 0; i < comm.size(); ++i) {
      if (i == comm.me) continue;
      all.receive(*comm.ends, comm.ranks[static_cast<std::size_t>(i)], &others[static_cast<std::size_t>(i)], 1);
      all.send(*comm.ends, comm.ranks[static_cast<std::size_t>(i)], &mine, 1);
    }
    all.wait();
  } catch (const Error&) {  // nobody comes
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

NcclTable StandInNccl::make_table() {
  NcclTable table;
  table.get_version = [](int* version) { return *version = 22809, 0; };
  table.get_unique_id = [](NcclId* id) { return id->bytes[127] = 42, 0; };
  table.comm_init_rank = [](NcclComm* made, int ranks, NcclId id, int rank) {
    if (id.bytes[127] != 42 || ranks != current->world_.size()) return 5;
    Comm all;
    for (int other = 0; other < ranks; ++other) all.ranks.push_back(other);
    return current->make_comm(made, all, 0, rank);
  };
  table.comm_split = [](NcclComm comm, int color, int key, NcclComm* made, void*) {
    return current->make_comm(made, *static_cast<Comm*>(comm), color, key);
  };
  table.comm_destroy = [](NcclComm comm) {
    current->touch_device();
    current->wait_for_peers(*static_cast<Comm*>(comm));
    return ++current->destroyed, 0;
  };
  table.comm_abort = [](NcclComm comm) {
    auto* const ended = static_cast<Comm*>(comm);
    current->touch_device();
    while (current->abort_hangs || (ended->number == 0 && current->world_abort_hangs))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended->is_aborted = true;
    ended->messages->impl().abandon();
    current->wait_for_peers(*ended);
    return ++current->aborted, 0;  // the last use of the stand-in, which may be gone then
  };
  table.comm_get_async_error = [](NcclComm, int* error) {
    current->touch_device();
    return *error = current->async_error, 0;
  };
  table.nccl_error_text = [](int result) { return result == 6 ? "remote process exited" : "some error"; };
  table.group_start = [] {
    current->write_down("group");
    return ++current->groups_, 0;
  };
  table.group_end = [] {
    current->write_down("end");
    if (--current->groups_ > 0) return 0;
    current->operate(current->stream_of_group_,
                     [messages = std::exchange(current->messages_, {})] { current->move(messages); });
    return 0;
  };
  table.send = [](const void* from, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    current->stream_of_group_ = stream;
    const auto elements = static_cast<std::int64_t>(count);
    current->write_down("send", stream, elements, type, over);
    current->messages_.push_back({static_cast<const std::byte*>(from), nullptr, elements * bytes_of(type), peer, over});
    return 0;
  };
  table.recv = [](void* to, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    current->stream_of_group_ = stream;
    const auto elements = static_cast<std::int64_t>(count);
    current->write_down("recv", stream, elements, type, over);
    current->messages_.push_back({nullptr, static_cast<std::byte*>(to), elements * bytes_of(type), peer, over});
    return 0;
  };
  // Sums are in the order of ranks, which NCCL does not promise.
  table.reduce = [](const void* from, void* to, std::size_t count, int type, int, int root, NcclComm comm,
                    DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    const auto n = static_cast<std::int64_t>(count);
    current->write_down("reduce", stream, n, type, over);
    current->operate(stream, [=] {
      const std::int64_t bytes = n * bytes_of(type);
      const auto* const mine = static_cast<const std::byte*>(from);
      if (over->me != root) return current->move({{mine, nullptr, bytes, root, over}});
      std::vector<std::byte> all(static_cast<std::size_t>(over->size() * bytes));
      std::vector<Message> messages;
      for (int rank = 0; rank < over->size(); ++rank) {
        if (rank != root) messages.push_back({nullptr, all.data() + rank * bytes, bytes, rank, over});
      }
      current->move(messages);
      std::copy_n(mine, bytes, all.data() + root * bytes);
      add_up(all, over->size(), n, type, to);
    });
    return 0;
  };
  table.reduce_scatter = [](const void* from, void* to, std::size_t count, int type, int, NcclComm comm,
                            DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    const auto n = static_cast<std::int64_t>(count);
    current->write_down("reduce_scatter", stream, n, type, over);
    current->operate(stream, [=] {
      const std::int64_t bytes = n * bytes_of(type);
      const auto* const mine = static_cast<const std::byte*>(from);
      std::vector<std::byte> all(static_cast<std::size_t>(over->size() * bytes));
      std::vector<Message> messages;
      for (int rank = 0; rank < over->size(); ++rank) {
        if (rank == over->me) continue;
        messages.push_back({nullptr, all.data() + rank * bytes, bytes, rank, over});
        messages.push_back({mine + rank * bytes, nullptr, bytes, rank, over});
      }
      current->move(messages);
      std::copy_n(mine + over->me * bytes, bytes, all.data() + over->me * bytes);
      add_up(all, over->size(), n, type, to);
    });
    return 0;
  };
  table.all_gather = [](const void* from, void* to, std::size_t count, int type, NcclComm comm, DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    const std::int64_t bytes = static_cast<std::int64_t>(count) * bytes_of(type);
    current->write_down("all_gather", stream, static_cast<std::int64_t>(count), type, over);
    auto* const all = static_cast<std::byte*>(to);
    ARGOSY_CHECK(from == all + over->me * bytes, "a gather that is not in place");
    current->operate(stream, [=] {
      std::vector<Message> messages;
      for (int rank = 0; rank < over->size(); ++rank) {
        if (rank == over->me) continue;
        messages.push_back({nullptr, all + rank * bytes, bytes, rank, over});
        messages.push_back({all + over->me * bytes, nullptr, bytes, rank, over});
      }
      current->move(messages);
    });
    return 0;
  };

  table.cuda_error_text = [](int) { return "an illegal memory access"; };
  table.get_device = [](int* now) { return *now = device, 0; };
  table.set_device = [](int wanted) { return device = wanted, 0; };
  table.allocate = [](void** made, std::size_t size_bytes) {
    current->touch_device();
    *made = ::operator new(size_bytes);
    std::memset(*made, 0xff, size_bytes);  // NaN
    current->memory_[*made] = static_cast<std::int64_t>(size_bytes);
    current->allocated_bytes += static_cast<std::int64_t>(size_bytes);
    return 0;
  };
  table.free = [](void* memory) {
    current->touch_device();
    current->synchronize();
    if (memory != nullptr) current->allocated_bytes -= current->memory_.at(memory);
    current->memory_.erase(memory);
    ::operator delete(memory);
    return 0;
  };
  table.stream_create = [](DeviceStream* made) {
    current->touch_device();
    const bool has_thread = current->late_.count() > 0;
    current->streams_.push_back(has_thread ? std::make_unique<Stream>(current->late_) : nullptr);
    *made = reinterpret_cast<DeviceStream>(static_cast<std::intptr_t>(current->streams_.size()));
    return 0;
  };
  table.stream_destroy = [](DeviceStream) { return current->touch_device(), 0; };
  table.stream_wait = [](DeviceStream stream, DeviceMark mark) {
    current->write_down("wait", stream);
    current->give(stream, [done = *static_cast<Done*>(mark)] {
      while (!*done && !current->stuck_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    return 0;
  };
  table.mark_create = [](DeviceMark* made) {
    current->touch_device();
    *made = new Done(std::make_shared<std::atomic<bool>>(false));
    return 0;
  };
  table.mark_destroy = [](DeviceMark mark) { return delete static_cast<Done*>(mark), 0; };
  table.mark_record = [](DeviceMark mark, DeviceStream stream) {
    current->write_down("mark", stream);
    const Done done = *static_cast<Done*>(mark);
    *done = false;
    current->give(stream, [done] { *done = true; });
    return 0;
  };
  table.mark_query = [](DeviceMark mark) {
    if (current != nullptr) current->touch_device();
    const int broken = current == nullptr ? 0 : current->device_error.load();
    return broken != 0 ? broken : **static_cast<Done*>(mark) ? 0 : cuda_not_ready;
  };

  table.ordered_sum = [](DeviceTerms terms, float* out, std::int64_t elements, bool continues, DeviceStream stream) {
    current->write_down("sum", stream, terms.count);
    current->operate(stream, [=] {
      const int type = terms.bf16 ? nccl_bf16 : nccl_f32;
      for (std::int64_t i = 0; i < elements; ++i) {
        const auto term = [&](int k) {
          if (k == terms.own_index) return value(static_cast<const std::byte*>(terms.own), i, type);
          return value(static_cast<const std::byte*>(terms.others),
                       (k < terms.own_index ? k : k - 1) * terms.stride + i, type);
        };
        float sum = term(0);
        for (int k = 1; k < terms.count; ++k) sum += term(k);
        out[i] = continues ? out[i] + sum : sum;
      }
    });
    return 0;
  };
  table.round_to_bf16 = [](const float* from, std::uint16_t* to, std::int64_t elements, DeviceStream stream) {
    current->write_down("round", stream);
    current->operate(stream, [=] {
      for (std::int64_t i = 0; i < elements; ++i) to[i] = bf16_from_f32(from[i]);
    });
    return 0;
  };
  return table;
}

}  // namespace argosy::comm::test
