// The MPI backend of Collectives: both levels as non-blocking messages in rotating order, summed in canonical order.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/ordered_sum.hpp"
#include "comm/session.hpp"

namespace argosy::comm {
namespace {

constexpr std::int64_t gather_message_bytes = 64 << 20;  // a message's count is an int; shorter ones end sooner
constexpr std::int64_t smallest_piece = 16384;           // elements; below, latency costs more than scratch

/// Messages of one phase over one communicator, all started before any is waited for.
class Messages {
 public:
  /// Over `comm`, or over communicators whose ranks are all in `comm`.
  Messages(const Communicator& comm, const std::string& operation, std::int64_t size_bytes)
      : impl_(comm.impl()), waiting_(impl_.waiting(operation, size_bytes)) {}

  void receive(const Communicator& from, int rank, std::byte* to, std::int64_t size_bytes) {
    each_part(size_bytes, [&](std::int64_t begin, int count, MPI_Request* request) {
      return MPI_Irecv(to + begin, count, MPI_BYTE, rank, 0, from.impl().comm, request);
    });
  }
  void send(const Communicator& to, int rank, const std::byte* from, std::int64_t size_bytes) {
    each_part(size_bytes, [&](std::int64_t begin, int count, MPI_Request* request) {
      sent_bytes_ += count;
      return MPI_Isend(from + begin, count, MPI_BYTE, rank, 0, to.impl().comm, request);
    });
  }
  void wait() {
    if (!requests_.empty()) impl_.wait(requests_, waiting_);
    requests_.clear();
  }
  /// Payload handed to the network since the last call.
  [[nodiscard]] std::int64_t take_sent_bytes() { return std::exchange(sent_bytes_, 0); }

 private:
  template <class Start>
  void each_part(std::int64_t size_bytes, Start start) {
    for (std::int64_t begin = 0; begin < size_bytes; begin += gather_message_bytes) {
      const int count = static_cast<int>(std::min(gather_message_bytes, size_bytes - begin));
      impl_.session.run(waiting_, [&] { return start(begin, count, &requests_.emplace_back(MPI_REQUEST_NULL)); });
    }
  }

  const Communicator::Impl& impl_;
  Waiting waiting_;
  std::vector<MPI_Request> requests_;
  std::int64_t sent_bytes_ = 0;
};

/// Memory that grows to the largest need and stays.
class Scratch {
 public:
  std::byte* at_least(std::int64_t size_bytes) {
    if (size_bytes > size_bytes_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size_bytes));
      size_bytes_ = size_bytes;
    }
    return bytes_.get();
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::int64_t size_bytes_ = 0;
};

class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(const Topology& topology, CollectivesOptions options)
      : topology_(topology),
        options_(options),
        layout_(topology.layout()),
        owned_(layout_.slots_of(topology.canonical_rank())),
        node_comm_(topology.node_comm().duplicate()),
        canonical_comm_(topology.canonical_comm().duplicate()) {
    for (const DType wire : {options.wire_inner, options.wire_outer}) {
      ARGOSY_CHECK(wire == DType::f32 || wire == DType::bf16, "{} on the wire", name_of(wire));
    }
    for (const Communicator& comm : topology.slot_comms()) slot_comms_.push_back(comm.duplicate());
  }

  Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard, Event ready) override {
    ready.wait();
    ARGOSY_CHECK(space.layout() == layout_, "a flat space of another layout");
    ARGOSY_CHECK(flat.elements == space.padded_size() && shard.elements == space.owned_size(topology_.canonical_rank()),
                 "{} elements into {}", flat.elements, shard.elements);
    ARGOSY_CHECK((flat.dtype == DType::f32 || flat.dtype == DType::bf16) && shard.dtype == DType::f32, "{} into {}",
                 name_of(flat.dtype), name_of(shard.dtype));
    Traffic::Bytes& counted = traffic_.by_operation["reduce_scatter"];
    ++counted.calls;
    if (layout_.world() == 1) {
      const std::byte* const only = flat.at;
      ordered_sum(flat.dtype, {&only, 1}, reinterpret_cast<float*>(shard.at), shard.elements);
      return {};
    }
    Reduction{*this, space, flat, shard, counted}.run();
    return {};
  }

  Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready) override {
    ready.wait();
    ARGOSY_CHECK(space.layout() == layout_, "a flat space of another layout");
    ARGOSY_CHECK(flat.elements == space.padded_size(), "{} elements of {}", flat.elements, space.padded_size());
    Traffic::Bytes& counted = traffic_.by_operation["all_gather"];
    ++counted.calls;
    const int nodes = layout_.nodes(), node = topology_.node(), here = layout_.node_size(node);
    const std::int64_t slice_bytes = space.slice_size() * static_cast<std::int64_t>(size_of(flat.dtype));
    const auto slice = [&](int slot, int sub) { return flat.at + (slot * nodes + sub) * slice_bytes; };

    Messages outer(canonical_comm_, "all_gather across nodes", flat.size_bytes());
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      for (int shift = 1; shift < nodes; ++shift) {
        const int to = (node + shift) % nodes, from = (node + nodes - shift) % nodes;
        outer.receive(slot_comms_[i], from, slice(owned_[i], from), slice_bytes);
        outer.send(slot_comms_[i], to, slice(owned_[i], node), slice_bytes);
      }
    }
    outer.wait();
    counted.outer += outer.take_sent_bytes();

    Messages inner(node_comm_, "all_gather in the node", flat.size_bytes());
    for (int shift = 1; shift < here; ++shift) {
      const int to = (topology_.local_rank() + shift) % here, from = (topology_.local_rank() + here - shift) % here;
      for (const int slot : layout_.slots_of(layout_.canonical_rank(node, from))) {
        inner.receive(node_comm_, from, slice(slot, 0), nodes * slice_bytes);
      }
      for (const int slot : owned_) inner.send(node_comm_, to, slice(slot, 0), nodes * slice_bytes);
    }
    inner.wait();
    counted.inner += inner.take_sent_bytes();
    return {};
  }

  void all_reduce(std::span<double> values) override { all_reduce_counted(values); }
  void all_reduce(std::span<std::int64_t> values) override { all_reduce_counted(values); }

  [[nodiscard]] const Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t step) override { node_comm_.impl().session.step = step; }

 private:
  /// One reduce-scatter, in pieces: the same range of every slice at a time, the next range on its way while one is
  /// summed.
  class Reduction {
   public:
    Reduction(MpiCollectives& of, const partition::FlatSpace& space, BufferView flat, BufferView shard,
              Traffic::Bytes& counted)
        : of_(of),
          flat_(flat),
          shard_(reinterpret_cast<float*>(shard.at)),
          counted_(counted),
          nodes_(of.layout_.nodes()),
          here_(of.layout_.node_size(of.topology_.node())),
          owned_(static_cast<std::int64_t>(of.owned_.size())),
          slice_size_(space.slice_size()),
          inner_wire_(flat.dtype == DType::bf16 || (of.layout_.slots() > 1 && of.options_.wire_inner == DType::bf16)
                          ? DType::bf16
                          : DType::f32),
          outer_wire_(nodes_ > 1 ? of.options_.wire_outer : DType::f32),
          element_bytes_(static_cast<std::int64_t>(size_of(inner_wire_))),
          piece_(std::min(slice_size_, std::max(smallest_piece, of.options_.chunk_bytes / (nodes_ * element_bytes_)))),
          outer_(Messages(of.canonical_comm_, "reduce_scatter across nodes", flat.size_bytes())),
          inner_{Messages(of.node_comm_, "reduce_scatter in the node", flat.size_bytes()),
                 Messages(of.node_comm_, "reduce_scatter in the node", flat.size_bytes())} {}

    void run() {
      if (slice_size_ == 0) return;
      start(0);
      for (std::int64_t begin = 0; begin < slice_size_; begin += piece_) {
        if (begin + piece_ < slice_size_) start(begin + piece_);
        finish(begin);
      }
    }

   private:
    [[nodiscard]] std::int64_t length(std::int64_t begin) const { return std::min(piece_, slice_size_ - begin); }
    [[nodiscard]] std::size_t side(std::int64_t begin) const { return static_cast<std::size_t>(begin / piece_ % 2); }
    [[nodiscard]] bool rounds() const { return inner_wire_ != flat_.dtype; }
    [[nodiscard]] const std::byte* in_flat(int slot, int sub, std::int64_t begin) const {
      return flat_.at + ((slot * nodes_ + sub) * slice_size_ + begin) * static_cast<std::int64_t>(size_of(flat_.dtype));
    }
    /// What goes over the wire for a piece of the flat buffer: itself, or its rounded copy, which is made in `rounded`.
    const std::byte* wired(int slot, int sub, std::int64_t begin, std::byte*& rounded) {
      const std::byte* const at = in_flat(slot, sub, begin);
      if (!rounds()) return at;
      std::byte* const copy = std::exchange(rounded, rounded + piece_ * element_bytes_);
      round_to_bf16(reinterpret_cast<const float*>(at), reinterpret_cast<std::uint16_t*>(copy), length(begin));
      return copy;
    }
    [[nodiscard]] std::byte* received(std::size_t at_side, std::int64_t index, int sub, int from) {
      const int peer = from < of_.topology_.local_rank() ? from : from - 1;
      return of_.received_[at_side].at_least(owned_ * nodes_ * (here_ - 1) * piece_ * element_bytes_) +
             ((index * nodes_ + sub) * (here_ - 1) + peer) * piece_ * element_bytes_;
    }

    /// Sends the pieces at `begin` of other ranks' slots, and receives those of the own slots.
    void start(std::int64_t begin) {
      const std::size_t at_side = side(begin);
      const std::int64_t bytes = length(begin) * element_bytes_;
      const int me = of_.topology_.local_rank(), node = of_.topology_.node();
      Messages& messages = inner_[at_side];
      for (int shift = 1; shift < here_; ++shift) {
        const int from = (me + here_ - shift) % here_;
        for (std::int64_t i = 0; i < owned_; ++i) {
          for (int sub = 0; sub < nodes_; ++sub)
            messages.receive(of_.node_comm_, from, received(at_side, i, sub, from), bytes);
        }
      }
      std::byte* rounded =
          rounds() ? of_.rounded_[at_side].at_least(of_.layout_.slots() * nodes_ * piece_ * element_bytes_) : nullptr;
      for (int shift = 1; shift < here_; ++shift) {
        const int to = (me + shift) % here_;
        for (const int slot : of_.layout_.slots_of(of_.layout_.canonical_rank(node, to))) {
          for (int sub = 0; sub < nodes_; ++sub)
            messages.send(of_.node_comm_, to, wired(slot, sub, begin, rounded), bytes);
        }
      }
      counted_.inner += messages.take_sent_bytes();
    }

    /// Sums the pieces at `begin` over local ranks, then over nodes.
    void finish(std::int64_t begin) {
      const std::size_t at_side = side(begin);
      const std::int64_t n = length(begin);
      inner_[at_side].wait();
      float* const partial =
          nodes_ == 1 ? nullptr : reinterpret_cast<float*>(of_.partial_.at_least(owned_ * nodes_ * piece_ * 4));
      std::byte* rounded = rounds() ? of_.own_rounded_.at_least(owned_ * nodes_ * piece_ * element_bytes_) : nullptr;
      std::vector<const std::byte*> terms(static_cast<std::size_t>(here_));
      for (std::int64_t i = 0; i < owned_; ++i) {
        for (int sub = 0; sub < nodes_; ++sub) {
          for (int from = 0; from < here_; ++from) {
            terms[static_cast<std::size_t>(from)] =
                from == of_.topology_.local_rank() ? wired(of_.owned_[static_cast<std::size_t>(i)], sub, begin, rounded)
                                                   : received(at_side, i, sub, from);
          }
          float* const sum = nodes_ == 1 ? shard_ + i * slice_size_ + begin : partial + (i * nodes_ + sub) * piece_;
          ordered_sum(inner_wire_, terms, sum, n);
        }
      }
      if (nodes_ > 1) exchange_across_nodes(begin, partial);
    }

    void exchange_across_nodes(std::int64_t begin, const float* partial) {
      const std::int64_t n = length(begin), bytes = n * static_cast<std::int64_t>(size_of(outer_wire_));
      const int node = of_.topology_.node();
      const std::byte* contributions = reinterpret_cast<const std::byte*>(partial);
      if (outer_wire_ == DType::bf16) {
        auto* const narrow =
            reinterpret_cast<std::uint16_t*>(of_.outer_rounded_.at_least(owned_ * nodes_ * piece_ * 2));
        for (std::int64_t at = 0; at < owned_ * nodes_; ++at)
          round_to_bf16(partial + at * piece_, narrow + at * piece_, n);
        contributions = reinterpret_cast<const std::byte*>(narrow);
      }
      const std::int64_t piece_bytes = piece_ * static_cast<std::int64_t>(size_of(outer_wire_));
      std::byte* const others = of_.from_nodes_.at_least(owned_ * nodes_ * piece_bytes);
      for (std::int64_t i = 0; i < owned_; ++i) {
        const Communicator& comm = of_.slot_comms_[static_cast<std::size_t>(i)];
        for (int shift = 1; shift < nodes_; ++shift) {
          const int to = (node + shift) % nodes_, from = (node + nodes_ - shift) % nodes_;
          outer_.receive(comm, from, others + (i * nodes_ + from) * piece_bytes, bytes);
          outer_.send(comm, to, contributions + (i * nodes_ + to) * piece_bytes, bytes);
        }
      }
      counted_.outer += outer_.take_sent_bytes();
      outer_.wait();
      std::vector<const std::byte*> terms(static_cast<std::size_t>(nodes_));
      for (std::int64_t i = 0; i < owned_; ++i) {
        for (int from = 0; from < nodes_; ++from) {
          terms[static_cast<std::size_t>(from)] =
              (from == node ? contributions : others) + (i * nodes_ + from) * piece_bytes;
        }
        ordered_sum(outer_wire_, terms, shard_ + i * slice_size_ + begin, n);
      }
    }

    MpiCollectives& of_;
    const BufferView flat_;
    float* const shard_;
    Traffic::Bytes& counted_;
    const int nodes_, here_;
    const std::int64_t owned_, slice_size_;
    const DType inner_wire_, outer_wire_;
    const std::int64_t element_bytes_, piece_;
    Messages outer_;
    std::array<Messages, 2> inner_;
  };

  template <class T>
  void all_reduce_counted(std::span<T> values) {
    canonical_comm_.all_reduce(values);
    const Traffic::Bytes sent =
        scalar_bytes(layout_, topology_.canonical_rank(), static_cast<std::int64_t>(values.size_bytes()));
    Traffic::Bytes& counted = traffic_.by_operation["scalar"];
    counted.inner += sent.inner;
    counted.outer += sent.outer;
    ++counted.calls;
  }

  const Topology& topology_;
  const CollectivesOptions options_;
  const partition::Layout layout_;
  const std::vector<int> owned_;  // slots
  Communicator node_comm_, canonical_comm_;
  std::vector<Communicator> slot_comms_;
  Traffic traffic_;
  // Contributions received in the node and rounded ones sent, each for the range summed and the one under way.
  std::array<Scratch, 2> received_, rounded_;
  Scratch own_rounded_, partial_, outer_rounded_, from_nodes_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology, CollectivesOptions options) {
  return std::make_unique<MpiCollectives>(topology, options);
}

}  // namespace argosy::comm
