// Exact sums. On both levels ranks exchange non-blocking messages in rotating order and sum in canonical order. Pieces
// bound the scratch memory.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "comm/mpi_links.hpp"
#include "comm/ordered_sum.hpp"

namespace argosy::comm {
namespace {

constexpr std::int64_t smallest_piece = 16384;  // elements; below, latency costs more than scratch

class ExactReducer final : public Reducer {
 public:
  ExactReducer(Links& links, const CollectivesOptions& options) : links_(links), options_(options) {}

  Traffic::Bytes run(const partition::FlatSpace& space, BufferView flat, float* shard, ReduceCall call) override {
    Traffic::Bytes sent{.calls = 1};
    if (links_.layout.world() == 1) {
      const std::byte* const only = flat.at;
      sum_into(flat.dtype, {&only, 1}, shard, flat.elements, call.continues);
    } else if (space.slice_size() > 0) {
      ReduceScatter{*this, space, flat, shard, call, sent}.run();
    }
    return sent;
  }

 private:
  /// The sum of `terms` to `out`, or added to it.
  void sum_into(DType dtype, std::span<const std::byte* const> terms, float* out, std::int64_t elements,
                bool continues) {
    if (!continues) return ordered_sum(dtype, terms, out, elements);
    float* const sum = sum_.floats(elements);
    ordered_sum(dtype, terms, sum, elements);
    const std::array<const std::byte*, 2> both{reinterpret_cast<const std::byte*>(out),
                                               reinterpret_cast<const std::byte*>(sum)};
    ordered_sum(DType::f32, both, out, elements);
  }

  /// One reduce-scatter in pieces. A piece is the same range of every slice. The next piece is sent while one is
  /// summed.
  class ReduceScatter {
   public:
    ReduceScatter(ExactReducer& of, const partition::FlatSpace& space, BufferView flat, float* shard, ReduceCall call,
                  Traffic::Bytes& sent)
        : of_(of),
          links_(of.links_),
          flat_(flat),
          shard_(shard),
          call_(call),
          sent_(sent),
          nodes_(links_.layout.nodes()),
          here_(links_.layout.node_size(links_.node)),
          owned_(static_cast<std::int64_t>(links_.owned.size())),
          slice_size_(space.slice_size()),
          inner_wire_(flat.dtype == DType::bf16 || (links_.layout.slots() > 1 && of.options_.wire_inner == DType::bf16)
                          ? DType::bf16
                          : DType::f32),
          outer_wire_(nodes_ > 1 ? of.options_.wire_outer : DType::f32),
          element_bytes_(static_cast<std::int64_t>(size_of(inner_wire_))),
          piece_(std::min(slice_size_, std::max(smallest_piece, of.options_.chunk_bytes / (nodes_ * element_bytes_)))),
          outer_(Messages(links_.canonical_comm, "reduce_scatter across nodes", flat.size_bytes())),
          inner_{Messages(links_.node_comm, "reduce_scatter in the node", flat.size_bytes()),
                 Messages(links_.node_comm, "reduce_scatter in the node", flat.size_bytes())} {}

    void run() {
      if (call_.levels == Levels::outer) {
        const float* const slots = reinterpret_cast<const float*>(flat_.at);
        for (std::int64_t begin = 0; begin < slice_size_; begin += piece_) across(begin, slots + begin, slice_size_);
        return;
      }
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
    /// What is sent for a piece of the flat buffer: the piece itself, or its rounded copy, which is made in `rounded`.
    const std::byte* wired(int slot, int sub, std::int64_t begin, std::byte*& rounded) {
      const std::byte* const at = in_flat(slot, sub, begin);
      if (!rounds()) return at;
      std::byte* const copy = std::exchange(rounded, rounded + piece_ * element_bytes_);
      round_to_bf16(reinterpret_cast<const float*>(at), reinterpret_cast<std::uint16_t*>(copy), length(begin));
      return copy;
    }
    [[nodiscard]] std::byte* received(std::size_t at_side, std::int64_t index, int sub, int from) {
      const int peer = from < links_.local_rank ? from : from - 1;
      return of_.received_[at_side].at_least(owned_ * nodes_ * (here_ - 1) * piece_ * element_bytes_) +
             ((index * nodes_ + sub) * (here_ - 1) + peer) * piece_ * element_bytes_;
    }

    /// Sends the pieces at `begin` of other ranks' slots, and receives those of the own slots.
    void start(std::int64_t begin) {
      const std::size_t at_side = side(begin);
      const std::int64_t bytes = length(begin) * element_bytes_;
      const int me = links_.local_rank;
      Messages& messages = inner_[at_side];
      for (int shift = 1; shift < here_; ++shift) {
        const int from = (me + here_ - shift) % here_;
        for (std::int64_t i = 0; i < owned_; ++i) {
          for (int sub = 0; sub < nodes_; ++sub)
            messages.receive(links_.node_comm, from, received(at_side, i, sub, from), bytes);
        }
      }
      std::byte* rounded =
          rounds() ? of_.rounded_[at_side].at_least(links_.layout.slots() * nodes_ * piece_ * element_bytes_) : nullptr;
      for (int shift = 1; shift < here_; ++shift) {
        const int to = (me + shift) % here_;
        for (const int slot : links_.layout.slots_of(links_.layout.canonical_rank(links_.node, to))) {
          for (int sub = 0; sub < nodes_; ++sub)
            messages.send(links_.node_comm, to, wired(slot, sub, begin, rounded), bytes);
        }
      }
      sent_.inner += messages.take_sent_bytes();
    }

    /// Sums the pieces at `begin` over local ranks, then over nodes.
    void finish(std::int64_t begin) {
      const std::size_t at_side = side(begin);
      const std::int64_t n = length(begin);
      const bool ends_here = nodes_ == 1 || call_.levels == Levels::inner;
      inner_[at_side].wait();
      float* const partial = ends_here ? nullptr : of_.partial_.floats(owned_ * nodes_ * piece_);
      std::byte* rounded = rounds() ? of_.own_rounded_.at_least(owned_ * nodes_ * piece_ * element_bytes_) : nullptr;
      std::vector<const std::byte*> terms(static_cast<std::size_t>(here_));
      for (std::int64_t i = 0; i < owned_; ++i) {
        for (int sub = 0; sub < nodes_; ++sub) {
          for (int from = 0; from < here_; ++from) {
            terms[static_cast<std::size_t>(from)] =
                from == links_.local_rank ? wired(links_.owned[static_cast<std::size_t>(i)], sub, begin, rounded)
                                          : received(at_side, i, sub, from);
          }
          if (ends_here) {
            of_.sum_into(inner_wire_, terms, shard_ + (i * nodes_ + sub) * slice_size_ + begin, n, call_.continues);
          } else {
            ordered_sum(inner_wire_, terms, partial + (i * nodes_ + sub) * piece_, n);
          }
        }
      }
      if (!ends_here) across(begin, partial, piece_);
    }

    /// Sums the node's own sums over nodes; `sums` of neighbouring sub-slices lie `stride` elements apart.
    void across(std::int64_t begin, const float* sums, std::int64_t stride) {
      const std::int64_t n = length(begin), bytes = n * static_cast<std::int64_t>(size_of(outer_wire_));
      const std::int64_t piece_bytes = piece_ * static_cast<std::int64_t>(size_of(outer_wire_));
      const int node = links_.node;
      const std::byte* contributions = reinterpret_cast<const std::byte*>(sums);
      std::int64_t stride_bytes = stride * 4;
      if (outer_wire_ == DType::bf16) {
        auto* const narrow =
            reinterpret_cast<std::uint16_t*>(of_.outer_rounded_.at_least(owned_ * nodes_ * piece_ * 2));
        for (std::int64_t at = 0; at < owned_ * nodes_; ++at)
          round_to_bf16(sums + at * stride, narrow + at * piece_, n);
        contributions = reinterpret_cast<const std::byte*>(narrow);
        stride_bytes = piece_bytes;
      }
      std::byte* const others = of_.from_nodes_.at_least(owned_ * nodes_ * piece_bytes);
      for (std::int64_t i = 0; i < owned_; ++i) {
        const Communicator& comm = links_.slot_comms[static_cast<std::size_t>(i)];
        for (int shift = 1; shift < nodes_; ++shift) {
          const int to = (node + shift) % nodes_, from = (node + nodes_ - shift) % nodes_;
          outer_.receive(comm, from, others + (i * nodes_ + from) * piece_bytes, bytes);
          outer_.send(comm, to, contributions + (i * nodes_ + to) * stride_bytes, bytes);
        }
      }
      sent_.outer += outer_.take_sent_bytes();
      outer_.wait();
      std::vector<const std::byte*> terms(static_cast<std::size_t>(nodes_));
      for (std::int64_t i = 0; i < owned_; ++i) {
        for (int from = 0; from < nodes_; ++from) {
          terms[static_cast<std::size_t>(from)] = from == node ? contributions + (i * nodes_ + from) * stride_bytes
                                                               : others + (i * nodes_ + from) * piece_bytes;
        }
        of_.sum_into(outer_wire_, terms, shard_ + i * slice_size_ + begin, n, call_.continues);
      }
    }

    ExactReducer& of_;
    const Links& links_;
    const BufferView flat_;
    float* const shard_;
    const ReduceCall call_;
    Traffic::Bytes& sent_;
    const int nodes_, here_;
    const std::int64_t owned_, slice_size_;
    const DType inner_wire_, outer_wire_;
    const std::int64_t element_bytes_, piece_;
    Messages outer_;
    std::array<Messages, 2> inner_;
  };

  Links& links_;
  const CollectivesOptions options_;
  // Contributions received in the node and rounded ones sent, each for the piece summed and the piece being sent.
  std::array<Scratch, 2> received_, rounded_;
  Scratch own_rounded_, partial_, outer_rounded_, from_nodes_, sum_;
};

}  // namespace

std::unique_ptr<Reducer> make_exact_reducer(Links& links, const CollectivesOptions& options) {
  return std::make_unique<ExactReducer>(links, options);
}

}  // namespace argosy::comm
