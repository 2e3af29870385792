// The MPI backend of Collectives: it checks, queues, gathers and counts. The three reducers have files of their own.
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "comm/host_stream.hpp"
#include "comm/mpi_links.hpp"

namespace argosy::comm {
namespace {

std::unique_ptr<Reducer> make_reducer(Links& links, const CollectivesOptions& options) {
  switch (options.reduction) {
    case Reduction::exact:
      return make_exact_reducer(links, options);
    case Reduction::fast:
      return make_fast_reducer(links, options);
    case Reduction::elastic:
      return make_elastic_reducer(links, options);
  }
  return nullptr;
}

class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(const Topology& topology, const CollectivesOptions& options)
      : links_(topology), reducer_(make_reducer(links_, options)) {
    check_options(options);
  }

  Event reduce_scatter(const partition::FlatSpace& space, BufferView flat, BufferView shard, Event ready,
                       ReduceCall call) override {
    check_reduce_scatter(space, links_.layout, links_.canonical_rank, flat, shard, call);
    return run(std::move(ready), [this, &space, flat, shard, call] {
      traffic_.by_operation["reduce_scatter"] += reducer_->run(space, flat, reinterpret_cast<float*>(shard.at), call);
    });
  }

  Event all_gather(const partition::FlatSpace& space, BufferView flat, Event ready, Levels levels) override {
    check_all_gather(space, links_.layout, links_.canonical_rank, flat, levels);
    return run(std::move(ready), [this, &space, flat, levels] {
      const std::int64_t slots = space.owned_size(links_.canonical_rank) * links_.layout.nodes();
      Traffic::Bytes& counted = traffic_.by_operation["all_gather"];
      ++counted.calls;
      const std::int64_t slots_at =
          levels == Levels::both ? links_.owned.front() * links_.layout.nodes() * slice_bytes(space, flat) : 0;
      if (levels != Levels::inner) counted.outer += gather_across(space, {flat.at + slots_at, slots, flat.dtype});
      if (levels != Levels::outer) counted.inner += gather_in_node(space, flat);
    });
  }

  void all_reduce(std::span<double> values) override { all_reduce_counted(values); }
  void all_reduce(std::span<std::int64_t> values) override { all_reduce_counted(values); }

  [[nodiscard]] const Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t step) override {
    links_.node_comm.impl().session.step = step;  // of what is not queued
    (void)run({}, [this, step] { links_.set_step(step); });
  }

 private:
  /// Does `work` after all earlier work. A single rank does it at once if it is ready, since it waits for no other
  /// rank.
  Event run(Event ready, std::function<void()> work) {
    if (!stream_ && links_.layout.world() == 1 && ready.done()) {
      ready.wait();
      work();
      return {};
    }
    if (!stream_) stream_.emplace([this] { links_.abandon(); });
    return stream_->run(std::move(ready), std::move(work));
  }

  [[nodiscard]] static std::int64_t slice_bytes(const partition::FlatSpace& space, BufferView flat) {
    return space.slice_size() * static_cast<std::int64_t>(size_of(flat.dtype));
  }

  /// Own slots from their sub-slices; returns the payload sent.
  std::int64_t gather_across(const partition::FlatSpace& space, BufferView slots) {
    const int nodes = links_.layout.nodes(), node = links_.node;
    const std::int64_t bytes = slice_bytes(space, slots);
    Messages messages(links_.canonical_comm, "all_gather across nodes", slots.size_bytes());
    for (std::size_t i = 0; i < links_.owned.size(); ++i) {
      const auto slice = [&](int sub) { return slots.at + (static_cast<int>(i) * nodes + sub) * bytes; };
      for (int shift = 1; shift < nodes; ++shift) {
        const int to = (node + shift) % nodes, from = (node + nodes - shift) % nodes;
        messages.receive(links_.slot_comms[i], from, slice(from), bytes);
        messages.send(links_.slot_comms[i], to, slice(node), bytes);
      }
    }
    messages.wait();
    return messages.take_sent_bytes();
  }

  /// The other slots from their owners in the node; returns the payload sent.
  std::int64_t gather_in_node(const partition::FlatSpace& space, BufferView flat) {
    const partition::Layout& layout = links_.layout;
    const int here = layout.node_size(links_.node), me = links_.local_rank;
    const std::int64_t bytes = layout.nodes() * slice_bytes(space, flat);
    Messages messages(links_.node_comm, "all_gather in the node", flat.size_bytes());
    for (int shift = 1; shift < here; ++shift) {
      const int to = (me + shift) % here, from = (me + here - shift) % here;
      for (const int slot : layout.slots_of(layout.canonical_rank(links_.node, from)))
        messages.receive(links_.node_comm, from, flat.at + slot * bytes, bytes);
      for (const int slot : links_.owned) messages.send(links_.node_comm, to, flat.at + slot * bytes, bytes);
    }
    messages.wait();
    return messages.take_sent_bytes();
  }

  template <class T>
  void all_reduce_counted(std::span<T> values) {
    run({}, [this, values] {
      links_.canonical_comm.all_reduce(values);
      traffic_.by_operation["scalar"] +=
          scalar_bytes(links_.layout, links_.canonical_rank, static_cast<std::int64_t>(values.size_bytes()));
    }).wait();
  }

  Links links_;
  const std::unique_ptr<Reducer> reducer_;
  Traffic traffic_;
  std::optional<HostStream> stream_;  // last, because its thread uses all of the above
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(const Topology& topology, CollectivesOptions options) {
  return std::make_unique<MpiCollectives>(topology, options);
}

}  // namespace argosy::comm
