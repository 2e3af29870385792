// Elastic sums. Every rank sends every owner its slices, and the owner continues its running sum in the order of
// canonical ranks. One call follows each micro-batch, so this is the order of the step's micro-batches, for any number
// of ranks.
#include <algorithm>
#include <vector>

#include "comm/mpi_links.hpp"
#include "comm/ordered_sum.hpp"

namespace argosy::comm {
namespace {

class ElasticReducer final : public Reducer {
 public:
  ElasticReducer(Links& links, const CollectivesOptions& options) : links_(links), chunk_bytes_(options.chunk_bytes) {
    ARGOSY_CHECK(options.wire_inner == DType::f32 && options.wire_outer == DType::f32, "elastic sums over a {} wire",
                 name_of(options.wire_inner == DType::f32 ? options.wire_outer : options.wire_inner));
  }

  Traffic::Bytes run(const partition::FlatSpace& space, BufferView flat, float* shard, ReduceCall call) override {
    ARGOSY_CHECK(call.levels == Levels::both && flat.dtype == DType::f32, "an elastic sum of one level or of {}",
                 name_of(flat.dtype));
    Traffic::Bytes sent{.calls = 1};
    const int world = links_.layout.world(), me = links_.canonical_rank;
    const std::vector<int> own = space.owned_slices(me);
    const std::int64_t size = space.slice_size(),
                       piece = std::min(size, std::max<std::int64_t>(4096, chunk_bytes_ / 4));
    const auto owned = std::ssize(own);
    Messages messages(links_.canonical_comm, "reduce_scatter over all ranks", flat.size_bytes());
    for (std::int64_t begin = 0; begin < size; begin += piece) {
      const std::int64_t n = std::min(piece, size - begin);
      const auto in_flat = [&](int slice) { return flat.at + (space.slice_begin(slice) + begin) * 4; };
      const auto received = [&](int from, std::int64_t i) {
        return received_.at_least(world * owned * piece * 4) + (from * owned + i) * piece * 4;
      };
      for (int shift = 1; shift < world; ++shift) {
        const int to = (me + shift) % world, from = (me + world - shift) % world;
        for (std::int64_t i = 0; i < owned; ++i)
          messages.receive(links_.canonical_comm, from, received(from, i), n * 4);
        for (const int slice : space.owned_slices(to)) messages.send(links_.canonical_comm, to, in_flat(slice), n * 4);
        (links_.layout.node_of(to) == links_.node ? sent.inner : sent.outer) += messages.take_sent_bytes();
      }
      messages.wait();
      for (std::int64_t i = 0; i < owned; ++i) {
        float* const sum = shard + i * size + begin;
        std::vector<const std::byte*> terms;
        if (call.continues) terms.push_back(reinterpret_cast<const std::byte*>(sum));
        for (int rank = 0; rank < world; ++rank)
          terms.push_back(rank == me ? in_flat(own[static_cast<std::size_t>(i)]) : received(rank, i));
        ordered_sum(DType::f32, terms, sum, n);
      }
    }
    return sent;
  }

 private:
  Links& links_;
  const std::int64_t chunk_bytes_;
  Scratch received_;
};

}  // namespace

std::unique_ptr<Reducer> make_elastic_reducer(Links& links, const CollectivesOptions& options) {
  return std::make_unique<ElasticReducer>(links, options);
}

}  // namespace argosy::comm
