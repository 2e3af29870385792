#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "comm/host_stream.hpp"
#include "mpi/train/rank.hpp"

namespace argosy::test {

/// Lets each operation begin late, on every rank by another while.
class Late final : public RecordingCollectives {
 public:
  Late(const comm::Topology& ranks, comm::Collectives& inner)
      : RecordingCollectives(ranks.layout(), ranks.canonical_rank(), &inner) {}
  comm::Event reduce_scatter(const partition::FlatSpace& space, comm::BufferView flat, comm::BufferView shard,
                             comm::Event ready, comm::ReduceCall call) override {
    return RecordingCollectives::reduce_scatter(space, flat, shard, late(ready), call);
  }
  comm::Event all_gather(const partition::FlatSpace& space, comm::BufferView flat, comm::Event ready,
                         comm::Levels levels) override {
    return RecordingCollectives::all_gather(space, flat, late(ready), levels);
  }

 private:
  comm::Event late(const comm::Event& ready) {
    ready.wait();
    const auto event = std::make_shared<comm::HostEvent>();
    const auto delay = std::chrono::microseconds(random_.below(3000));
    threads_.emplace_back([event, delay] {
      std::this_thread::sleep_for(delay);
      event->complete();
    });
    return event->event();
  }

  RandomStream random_{7, static_cast<std::uint64_t>(world().rank())};
  std::vector<std::jthread> threads_;
};

}  // namespace argosy::test
