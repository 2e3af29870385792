#include "mpi/comm/stand_in_nccl.hpp"

#include <algorithm>
#include <cstring>

#include "comm/mpi_links.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace argosy::comm::test {
namespace {

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
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

struct StandInNccl::Message {
  const std::byte* from = nullptr;  // or
  std::byte* to = nullptr;
  std::int64_t size_bytes = 0;
  int peer = 0;
  const Comm* comm = nullptr;
};

StandInNccl* StandInNccl::current = nullptr;

StandInNccl::StandInNccl(const Communicator& world) : world_(world), table_(make_table()) { current = this; }
StandInNccl::~StandInNccl() { current = nullptr; }

void StandInNccl::write_down(std::string what, DeviceStream stream, std::int64_t count, int type, const Comm* comm) {
  const auto number = reinterpret_cast<std::intptr_t>(stream);
  calls.push_back({std::move(what), number > streams_ ? -1 : static_cast<int>(number), count, type,
                   comm == nullptr ? -1 : comm->number});
}

bool StandInNccl::moves() {
  if (hangs) stuck_ = true;
  return !stuck_;
}

int StandInNccl::make_comm(NcclComm* made, const Comm& parent, int color, int key) {
  const auto world_size = static_cast<std::size_t>(world_.size()), me = static_cast<std::size_t>(world_.rank());
  std::vector<std::int64_t> told(2 * world_size, 0);  // colors, keys
  told[me] = color;
  told[world_size + me] = key;
  world_.all_reduce(std::span<std::int64_t>{told});
  if (color == nccl_no_color) return 0;
  auto comm = std::make_unique<Comm>();
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

void StandInNccl::move() {
  Messages all{world_, "a group of the stand-in", 0};
  for (const Message& one : std::exchange(messages_, {})) {
    const int peer = one.comm->ranks[static_cast<std::size_t>(one.peer)];
    if (one.to != nullptr) all.receive(world_, peer, one.to, one.size_bytes);
    if (one.from != nullptr) all.send(world_, peer, one.from, one.size_bytes);
  }
  all.wait();
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
  table.comm_destroy = [](NcclComm) { return ++current->destroyed, 0; };
  table.comm_abort = [](NcclComm) { return ++current->aborted, 0; };
  table.comm_get_async_error = [](NcclComm, int* error) { return *error = current->async_error, 0; };
  table.nccl_error_text = [](int result) { return result == 6 ? "remote process exited" : "some error"; };
  table.group_start = [] {
    current->write_down("group");
    return ++current->groups_, 0;
  };
  table.group_end = [] {
    current->write_down("end");
    if (--current->groups_ == 0 && current->moves()) current->move();
    return 0;
  };
  table.send = [](const void* from, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) {
    const auto* const over = static_cast<Comm*>(comm);
    const auto elements = static_cast<std::int64_t>(count);
    current->write_down("send", stream, elements, type, over);
    current->messages_.push_back({static_cast<const std::byte*>(from), nullptr, elements * bytes_of(type), peer, over});
    return 0;
  };
  table.recv = [](void* to, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) {
    const auto* const over = static_cast<Comm*>(comm);
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
    if (!current->moves()) return 0;
    const std::int64_t bytes = n * bytes_of(type);
    std::vector<std::byte> all(static_cast<std::size_t>(over->size() * bytes));
    for (int rank = 0; rank < over->size(); ++rank) {
      if (rank == over->me || over->me != root) continue;
      current->messages_.push_back({nullptr, all.data() + rank * bytes, bytes, rank, over});
    }
    if (over->me != root)
      current->messages_.push_back({static_cast<const std::byte*>(from), nullptr, bytes, root, over});
    current->move();
    if (over->me != root) return 0;
    std::memcpy(all.data() + root * bytes, from, static_cast<std::size_t>(bytes));
    add_up(all, over->size(), n, type, to);
    return 0;
  };
  table.reduce_scatter = [](const void* from, void* to, std::size_t count, int type, int, NcclComm comm,
                            DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    const auto n = static_cast<std::int64_t>(count);
    current->write_down("reduce_scatter", stream, n, type, over);
    if (!current->moves()) return 0;
    const std::int64_t bytes = n * bytes_of(type);
    const auto* const mine = static_cast<const std::byte*>(from);
    std::vector<std::byte> all(static_cast<std::size_t>(over->size() * bytes));
    for (int rank = 0; rank < over->size(); ++rank) {
      if (rank == over->me) continue;
      current->messages_.push_back({nullptr, all.data() + rank * bytes, bytes, rank, over});
      current->messages_.push_back({mine + rank * bytes, nullptr, bytes, rank, over});
    }
    current->move();
    std::copy_n(mine + over->me * bytes, bytes, all.data() + over->me * bytes);
    add_up(all, over->size(), n, type, to);
    return 0;
  };
  table.all_gather = [](const void* from, void* to, std::size_t count, int type, NcclComm comm, DeviceStream stream) {
    auto* const over = static_cast<Comm*>(comm);
    const std::int64_t bytes = static_cast<std::int64_t>(count) * bytes_of(type);
    current->write_down("all_gather", stream, static_cast<std::int64_t>(count), type, over);
    if (!current->moves()) return 0;
    auto* const all = static_cast<std::byte*>(to);
    ARGOSY_CHECK(from == all + over->me * bytes, "a gather that is not in place");
    for (int rank = 0; rank < over->size(); ++rank) {
      if (rank == over->me) continue;
      current->messages_.push_back({nullptr, all + rank * bytes, bytes, rank, over});
      current->messages_.push_back({all + over->me * bytes, nullptr, bytes, rank, over});
    }
    current->move();
    return 0;
  };

  table.cuda_error_text = [](int) { return "an illegal memory access"; };
  table.allocate = [](void** made, std::size_t size_bytes) {
    *made = ::operator new(size_bytes);
    std::memset(*made, 0xff, size_bytes);  // NaN
    current->memory_[*made] = static_cast<std::int64_t>(size_bytes);
    current->allocated_bytes += static_cast<std::int64_t>(size_bytes);
    return 0;
  };
  table.free = [](void* memory) {
    if (memory != nullptr) current->allocated_bytes -= current->memory_.at(memory);
    current->memory_.erase(memory);
    ::operator delete(memory);
    return 0;
  };
  table.stream_create = [](DeviceStream* made) {
    *made = reinterpret_cast<DeviceStream>(static_cast<std::intptr_t>(++current->streams_));
    return 0;
  };
  table.stream_destroy = [](DeviceStream) { return 0; };
  table.stream_wait = [](DeviceStream stream, DeviceMark) { return current->write_down("wait", stream), 0; };
  table.mark_create = [](DeviceMark* made) { return *made = new bool(false), 0; };
  table.mark_destroy = [](DeviceMark mark) { return delete static_cast<bool*>(mark), 0; };
  table.mark_record = [](DeviceMark mark, DeviceStream stream) {
    current->write_down("mark", stream);
    return *static_cast<bool*>(mark) = !current->stuck_, 0;
  };
  table.mark_query = [](DeviceMark mark) {
    const int broken = current == nullptr ? 0 : current->device_error.load();
    return broken != 0 ? broken : *static_cast<bool*>(mark) ? 0 : cuda_not_ready;
  };

  table.ordered_sum = [](DeviceTerms terms, float* out, std::int64_t elements, bool continues, DeviceStream stream) {
    current->write_down("sum", stream, terms.count);
    const int type = terms.bf16 ? nccl_bf16 : nccl_f32;
    if (!current->moves()) return 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto term = [&](int k) {
        if (k == terms.own_index) return value(static_cast<const std::byte*>(terms.own), i, type);
        return value(static_cast<const std::byte*>(terms.others), (k < terms.own_index ? k : k - 1) * terms.stride + i,
                     type);
      };
      float sum = term(0);
      for (int k = 1; k < terms.count; ++k) sum += term(k);
      out[i] = continues ? out[i] + sum : sum;
    }
    return 0;
  };
  table.round_to_bf16 = [](const float* from, std::uint16_t* to, std::int64_t elements, DeviceStream stream) {
    current->write_down("round", stream);
    for (std::int64_t i = 0; i < elements; ++i) to[i] = bf16_from_f32(from[i]);
    return 0;
  };
  return table;
}

}  // namespace argosy::comm::test
