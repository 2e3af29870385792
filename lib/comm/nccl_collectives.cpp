#include "comm/nccl_collectives.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "comm/nccl_watch.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"

namespace argosy::comm {
namespace {

using partition::FlatSpace;

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

void check_nccl(const NcclTable& table, int result, const char* what) {
  if (result == 0) return;
  const std::string got = fmt::format("NCCL reports \"{}\"", table.nccl_error_text(result));
  throw_claim(Fault::comm, fmt::format("{} failed: {}", what, got), "", what, got);
}

/// Elements as NCCL counts them. Types that NCCL does not have are sent as bytes.
struct Counted {
  std::size_t count;
  int type;
};
Counted counted(std::int64_t elements, DType dtype) {
  if (dtype == DType::f32) return {static_cast<std::size_t>(elements), nccl_f32};
  if (dtype == DType::bf16) return {static_cast<std::size_t>(elements), nccl_bf16};
  return {static_cast<std::size_t>(elements * bytes_of(dtype)), nccl_u8};
}

/// Memory of the device that grows to the largest size asked for and is kept.
class DeviceScratch {
 public:
  explicit DeviceScratch(const NcclTable& table) : table_(table) {}
  ~DeviceScratch() {
    if (memory_ != nullptr) table_.free(memory_);
  }
  void leave() { memory_ = nullptr; }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  std::byte* at_least(std::int64_t size_bytes) {
    if (size_bytes > size_bytes_) {
      table_.free(std::exchange(memory_, nullptr));  // waits for the device
      size_bytes_ = 0;
      check_cuda(table_, table_.allocate(&memory_, static_cast<std::size_t>(size_bytes)),
                 fmt::format("allocate {} bytes for sums", size_bytes));
      size_bytes_ = size_bytes;
    }
    return static_cast<std::byte*>(memory_);
  }

 private:
  const NcclTable& table_;
  void* memory_ = nullptr;
  std::int64_t size_bytes_ = 0;
};

/// A stream, and the communicators of the operations on it. **Collective.**
struct Lane {
  explicit Lane(const NcclTable& of) : table(of) { check_cuda(table, table.stream_create(&stream), "create a stream"); }
  ~Lane() { table.stream_destroy(stream); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const NcclTable& table;
  DeviceStream stream = nullptr;
  NcclComm node = nullptr;
  std::vector<NcclComm> slots;  // by owned slot, upwards
};

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(const Topology& topology, const CollectivesOptions& options, const NcclTable& table)
      : table_(table),
        options_(options),
        layout_(topology.layout()),
        me_(topology.canonical_rank()),
        node_(topology.node()),
        local_rank_(topology.local_rank()),
        here_(layout_.node_size(node_)),
        owned_(layout_.slots_of(me_)),
        control_(topology.canonical_comm().duplicate()),
        received_(table),
        partial_(table),
        rounded_(table) {
    check_options(options);
    ARGOSY_CHECK(options.reduction != Reduction::elastic, "elastic sums on a GPU");
    agree(control_, [&] {
      reduces_.emplace(table_);
      gathers_.emplace(table_);
    });
    watch_.emplace(table_, control_.impl().session);
    NcclId id;
    if (me_ == 0) check_nccl(table_, table_.get_unique_id(&id), "making an NCCL identity");
    id = control_.broadcast(std::vector<NcclId>{id}).front();
    world_ = watch_->connect("the making of NCCL's communicator", [&] {
      NcclComm made = nullptr;
      check_nccl(table_, table_.comm_init_rank(&made, layout_.world(), id, me_), "making the NCCL communicator");
      return made;
    });
    for (Lane* const lane : {&*reduces_, &*gathers_}) connect(*lane);
  }
  /// Memory that operations may still use stays allocated, because freeing it would wait for them.
  ~NcclCollectives() override {
    if (watch_ && watch_->close()) return;
    for (DeviceScratch* const scratch : {&received_, &partial_, &rounded_}) scratch->leave();
  }
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  Event reduce_scatter(const FlatSpace& space, BufferView flat, BufferView shard, Event ready,
                       ReduceCall call) override {
    check_reduce_scatter(space, layout_, me_, flat, shard, call);
    Traffic::Bytes sent{.calls = 1};
    const NcclWatch::Operation operation{name_of("reduce_scatter", call.levels), flat.size_bytes(), step_};
    Event done = watch_->run(operation, reduces_->stream, ready, [&] {
      auto* const out = reinterpret_cast<float*>(shard.at);
      if (call.levels == Levels::outer) {
        reduce_across(space, reinterpret_cast<const float*>(flat.at), out, call.continues, sent);
      } else if (call.levels == Levels::inner || layout_.nodes() == 1) {
        reduce_in_node(space, flat, out, call.continues, sent);
      } else {
        auto* const slots = reinterpret_cast<float*>(partial_.at_least(slots_size(space) * 4));
        reduce_in_node(space, flat, slots, false, sent);
        reduce_across(space, slots, out, call.continues, sent);
      }
    });
    traffic_.by_operation["reduce_scatter"] += sent;
    return done;
  }

  Event all_gather(const FlatSpace& space, BufferView flat, Event ready, Levels levels) override {
    check_all_gather(space, layout_, me_, flat, levels);
    Traffic::Bytes sent{.calls = 1};
    const NcclWatch::Operation operation{name_of("all_gather", levels), flat.size_bytes(), step_};
    Event done = watch_->run(operation, gathers_->stream, ready, [&] {
      const std::int64_t slots_at = levels == Levels::both ? slots_begin(space) * bytes_of(flat.dtype) : 0;
      if (levels != Levels::inner) gather_across(space, flat.at + slots_at, flat.dtype, sent);
      if (levels != Levels::outer) gather_in_node(space, flat, sent);
    });
    traffic_.by_operation["all_gather"] += sent;
    return done;
  }

  void all_reduce(std::span<double> values) override { all_reduce_counted(values); }
  void all_reduce(std::span<std::int64_t> values) override { all_reduce_counted(values); }

  [[nodiscard]] const Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t step) override {
    step_ = step;
    control_.impl().session.step = step;
  }

 private:
  [[nodiscard]] std::string name_of(const char* operation, Levels levels) const {
    constexpr std::array parts{"", " in the node", " across nodes"};
    return operation + std::string(parts[static_cast<std::size_t>(levels)]) + control_.impl().purpose();
  }
  void checked(int result, const char* what) const { check_nccl(table_, result, what); }
  /// Of the own slots in a flat space; elements.
  [[nodiscard]] std::int64_t slot_size(const FlatSpace& space) const { return space.slice_size() * layout_.nodes(); }
  [[nodiscard]] std::int64_t slots_begin(const FlatSpace& space) const { return owned_.front() * slot_size(space); }
  [[nodiscard]] std::int64_t slots_size(const FlatSpace& space) const { return std::ssize(owned_) * slot_size(space); }
  [[nodiscard]] std::vector<int> slots_of(int local_rank) const {
    return layout_.slots_of(layout_.canonical_rank(node_, local_rank));
  }
  /// Whether all ranks of this node own the same number of slots, as NCCL's own collectives require.
  [[nodiscard]] bool is_even() const { return layout_.slots() % here_ == 0; }

  /// **Collective.** As Topology does with MPI's communicators.
  void connect(Lane& lane) {
    const auto split = [&](int color, int key) {
      return watch_->connect("a split of NCCL's communicator", [&] {
        NcclComm made = nullptr;
        checked(table_.comm_split(world_, color, key, &made, nullptr), "splitting the NCCL communicator");
        return made;
      });
    };
    lane.node = split(node_, local_rank_);
    if (layout_.nodes() == 1) return;
    if (layout_.world() == layout_.nodes() * layout_.slots()) {
      lane.slots.push_back(split(owned_.front(), node_));
      return;
    }
    for (int slot = 0; slot < layout_.slots(); ++slot) {
      const bool mine = std::binary_search(owned_.begin(), owned_.end(), slot);
      if (const NcclComm made = split(mine ? slot : nccl_no_color, node_); mine) lane.slots.push_back(made);
    }
  }

  /// What is sent for `from`: itself, or its rounded copy.
  const std::byte* wired(const void* from, DType dtype, DType wire, std::int64_t elements) {
    if (dtype == wire) return static_cast<const std::byte*>(from);
    std::byte* const copy = rounded_.at_least(elements * 2);
    check_cuda(table_,
               table_.round_to_bf16(static_cast<const float*>(from), reinterpret_cast<std::uint16_t*>(copy), elements,
                                    reduces_->stream),
               "gradients rounded on the GPU");
    return copy;
  }
  void sum(const DeviceTerms& terms, float* out, std::int64_t elements, bool continues) {
    check_cuda(table_, table_.ordered_sum(terms, out, elements, continues, reduces_->stream), "sum");
  }
  void send(const std::byte* from, std::int64_t elements, DType dtype, int peer, NcclComm comm, const Lane& lane,
            std::int64_t& sent_bytes) {
    const Counted sized = counted(elements, dtype);
    checked(table_.send(from, sized.count, sized.type, peer, comm, lane.stream), "sending a message");
    sent_bytes += elements * bytes_of(dtype);
  }
  void receive(std::byte* to, std::int64_t elements, DType dtype, int peer, NcclComm comm, const Lane& lane) {
    const Counted sized = counted(elements, dtype);
    checked(table_.recv(to, sized.count, sized.type, peer, comm, lane.stream), "receiving a message");
  }
  template <class Body>
  void group(Body body) {
    checked(table_.group_start(), "a group of operations");
    body();
    checked(table_.group_end(), "a group of operations");
  }

  /// The node's sums of the own slots.
  void reduce_in_node(const FlatSpace& space, BufferView flat, float* out, bool continues, Traffic::Bytes& sent) {
    const bool narrow = flat.dtype == DType::bf16 || (layout_.slots() > 1 && options_.wire_inner == DType::bf16);
    const DType wire = narrow ? DType::bf16 : DType::f32;
    const std::byte* const mine = wired(flat.at, flat.dtype, wire, flat.elements);
    const std::int64_t slot = slot_size(space), own = slots_size(space), element = bytes_of(wire);
    const Lane& lane = *reduces_;
    if (options_.reduction == Reduction::fast && here_ > 1) {
      std::byte* const to = received_.at_least(own * element);
      if (is_even()) {
        const Counted sized = counted(own, wire);
        checked(table_.reduce_scatter(mine, to, sized.count, sized.type, nccl_sum, lane.node, lane.stream),
                "a reduce-scatter in the node");
        sent.inner += (here_ - 1) * own * element;
      } else {
        group([&] {
          for (int owner = 0; owner < here_; ++owner) {
            const std::vector<int> slots = slots_of(owner);
            const Counted sized = counted(std::ssize(slots) * slot, wire);
            checked(table_.reduce(mine + slots.front() * slot * element, to, sized.count, sized.type, nccl_sum, owner,
                                  lane.node, lane.stream),
                    "a reduction in the node");
            if (owner != local_rank_) sent.inner += std::ssize(slots) * slot * element;
          }
        });
      }
      return sum({.own = to, .bf16 = narrow}, out, own, continues);
    }
    std::byte* const others = received_.at_least((here_ - 1) * own * element);
    if (here_ > 1) {
      group([&] {
        for (int shift = 1; shift < here_; ++shift) {
          const int to = (local_rank_ + shift) % here_, from = (local_rank_ + here_ - shift) % here_;
          const std::vector<int> slots = slots_of(to);
          receive(others + (from < local_rank_ ? from : from - 1) * own * element, own, wire, from, lane.node, lane);
          send(mine + slots.front() * slot * element, std::ssize(slots) * slot, wire, to, lane.node, lane, sent.inner);
        }
      });
    }
    sum({.own = mine + slots_begin(space) * element,
         .others = others,
         .stride = own,
         .own_index = local_rank_,
         .count = here_,
         .bf16 = narrow},
        out, own, continues);
  }

  /// The sums over nodes of the own slices; `slots`: this node's sums of the own slots.
  void reduce_across(const FlatSpace& space, const float* slots, float* out, bool continues, Traffic::Bytes& sent) {
    const int nodes = layout_.nodes();
    const std::int64_t slice = space.slice_size(), slot = slot_size(space);
    const bool narrow = nodes > 1 && options_.wire_outer == DType::bf16;
    const DType wire = narrow ? DType::bf16 : DType::f32;
    const std::int64_t element = bytes_of(wire);
    const std::byte* const mine = wired(slots, DType::f32, wire, slots_size(space));
    if (nodes == 1) return sum({.own = mine}, out, slots_size(space), continues);
    const Lane& lane = *reduces_;
    const bool fast = options_.reduction == Reduction::fast;
    const std::int64_t piece = fast ? slice : (nodes - 1) * slice;  // received for a slot
    std::byte* const received = received_.at_least(std::ssize(owned_) * piece * element);
    group([&] {
      for (std::size_t i = 0; i < owned_.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::byte* const from_slot = mine + at * slot * element;
        if (fast) {
          const Counted sized = counted(slice, wire);
          checked(table_.reduce_scatter(from_slot, received + at * piece * element, sized.count, sized.type, nccl_sum,
                                        lane.slots[i], lane.stream),
                  "a reduce-scatter across nodes");
          sent.outer += (nodes - 1) * slice * element;
          continue;
        }
        for (int shift = 1; shift < nodes; ++shift) {
          const int to = (node_ + shift) % nodes, from = (node_ + nodes - shift) % nodes;
          receive(received + (at * piece + (from < node_ ? from : from - 1) * slice) * element, slice, wire, from,
                  lane.slots[i], lane);
          send(from_slot + to * slice * element, slice, wire, to, lane.slots[i], lane, sent.outer);
        }
      }
    });
    for (std::int64_t i = 0; i < std::ssize(owned_); ++i) {
      std::byte* const part = received + i * piece * element;
      if (fast) {
        sum({.own = part, .bf16 = narrow}, out + i * slice, slice, continues);
      } else {
        sum({.own = mine + (i * slot + node_ * slice) * element,
             .others = part,
             .stride = slice,
             .own_index = node_,
             .count = nodes,
             .bf16 = narrow},
            out + i * slice, slice, continues);
      }
    }
  }

  /// Own slots from their sub-slices, in place.
  void gather_across(const FlatSpace& space, std::byte* slots, DType dtype, Traffic::Bytes& sent) {
    if (layout_.nodes() == 1) return;
    const std::int64_t slice_bytes = space.slice_size() * bytes_of(dtype);
    const Counted sized = counted(space.slice_size(), dtype);
    group([&] {
      for (std::size_t i = 0; i < owned_.size(); ++i) {
        std::byte* const slot = slots + static_cast<std::int64_t>(i) * layout_.nodes() * slice_bytes;
        checked(table_.all_gather(slot + node_ * slice_bytes, slot, sized.count, sized.type, gathers_->slots[i],
                                  gathers_->stream),
                "a gather across nodes");
        sent.outer += (layout_.nodes() - 1) * slice_bytes;
      }
    });
  }

  /// The other slots from their owners in the node, in place.
  void gather_in_node(const FlatSpace& space, BufferView flat, Traffic::Bytes& sent) {
    if (here_ == 1) return;
    const Lane& lane = *gathers_;
    const std::int64_t slot_bytes = slot_size(space) * bytes_of(flat.dtype), own = slots_size(space);
    std::byte* const mine = flat.at + owned_.front() * slot_bytes;
    if (is_even()) {
      const Counted sized = counted(own, flat.dtype);
      checked(table_.all_gather(mine, flat.at, sized.count, sized.type, lane.node, lane.stream),
              "a gather in the node");
      sent.inner += (here_ - 1) * own * bytes_of(flat.dtype);
      return;
    }
    group([&] {
      for (int shift = 1; shift < here_; ++shift) {
        const int to = (local_rank_ + shift) % here_, from = (local_rank_ + here_ - shift) % here_;
        const std::vector<int> slots = slots_of(from);
        receive(flat.at + slots.front() * slot_bytes, std::ssize(slots) * slot_size(space), flat.dtype, from, lane.node,
                lane);
        send(mine, own, flat.dtype, to, lane.node, lane, sent.inner);
      }
    });
  }

  template <class T>
  void all_reduce_counted(std::span<T> values) {
    watch_->throw_failure();
    control_.all_reduce(values);
    traffic_.by_operation["scalar"] += scalar_bytes(layout_, me_, static_cast<std::int64_t>(values.size_bytes()));
  }

  const NcclTable& table_;
  const CollectivesOptions options_;
  const partition::Layout layout_;
  const int me_, node_, local_rank_, here_;
  const std::vector<int> owned_;
  const Communicator control_;
  std::int64_t step_ = -1;
  Traffic traffic_;
  DeviceScratch received_, partial_, rounded_;
  std::optional<Lane> reduces_, gathers_;
  NcclComm world_ = nullptr;
  std::optional<NcclWatch> watch_;  // last, because running operations use all of the above
};

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(const Topology& topology, CollectivesOptions options,
                                                   const NcclTable& table) {
  return std::make_unique<NcclCollectives>(topology, options, table);
}

const NcclTable& nccl_table() {
  static const NcclTable table = [] {
    NcclTable filled;
    char problem[256] = "the plug-in is not open";
    void* const plugin = dlopen("libargosy_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    auto* const fill = plugin == nullptr ? nullptr : reinterpret_cast<FillNcclTable>(dlsym(plugin, nccl_table_name));
    if (fill == nullptr || fill(&filled, problem, sizeof problem) != 0) {
      throw_claim(Fault::device, fmt::format("NCCL is not available through libargosy_cuda.so: {}", problem), "",
                  "NCCL through libargosy_cuda.so", problem, "set device to cpu to train without a GPU");
    }
    return filled;
  }();
  return table;
}

std::unique_ptr<Collectives> make_collectives(const Topology& topology, CollectivesOptions options, bool on_gpu) {
  return on_gpu ? make_nccl_collectives(topology, options, nccl_table()) : make_mpi_collectives(topology, options);
}

std::string nccl_version(const NcclTable& table) {
  int version = 0;
  check_nccl(table, table.get_version(&version), "asking for the NCCL version");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace argosy::comm
