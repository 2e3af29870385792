#include "checkpoint/save.hpp"

#include <chrono>
#include <utility>

#include "checkpoint/model_view.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

/// What a rank reports of its shard once the payload is written.
struct Record {
  int canonical_rank = 0;
  Written written;
};

std::uint64_t payload_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
    for (const spec::StateTensor& tensor : manifest.tensors[unit])
      for (const spec::OwnedPart& part : spec::owned_parts(manifest.spaces[unit], tensor))
        bytes += static_cast<std::uint64_t>(part.size) * size_of(tensor.dtype);
  }
  return bytes;
}

}  // namespace

Save::Save(const comm::Context& context, Lease* lock, Input input)
    : context_(context),
      lock_(lock),
      input_(std::move(input)),
      staging_(context.files, input_.target, input_.manifest.save_nonce),
      begin_s_(context.clock.monotonic_s()),
      rank_(context.topology.canonical_rank()),
      index_(input_.manifest.index(rank_)),
      report_{.directory = input_.target},
      complete_units_([this] {
        if (input_.complete_units) input_.complete_units();
      }),
      units_complete_(complete_units_.get_future()) {
  const bool opened = all_succeed([&] {
    if (!context.is_root()) return;
    lock_->check();
    staging_.open(payload_bytes(input_.manifest), input_.manifest.world());
  });
  if (opened) enter_writing();
}

void Save::enter_writing() {
  const Manifest& manifest = input_.manifest;
  const Path path = staging_.folder() / shard_name(rank_, manifest.world());
  ShardMap map;
  const bool made =
      all_succeed([&] { map = create_shard(context_.files, path, manifest.identity(rank_), manifest.specs(rank_)); });
  if (!made) return;
  job_ = std::async(std::launch::async, [this, path, map, units = units_complete_] {
    complete_units_();  // ends every wait for the units, also when it fails
    units.get();        // throws what it has thrown
    return write(path, map);
  });
}

Written Save::write(const Path& path, const ShardMap& map) const {
  std::vector<Bytes> payload;
  for (const UnitState& unit : input_.units) {
    for (const TensorShard& tensor : unit.tensors) payload.push_back(tensor.bytes);
  }
  payload.insert(payload.end(), index_.begin(), index_.end());
  return write_shard(context_.files, path, map, payload);
}

void Save::enter_committing(const Written& written) {
  Manifest& manifest = input_.manifest;
  manifest.shards.resize(static_cast<std::size_t>(manifest.world()));
  for (const auto& records : context_.world.gather(std::vector{Record{rank_, written}})) {  // rank 0 has them
    const auto& [canonical_rank, shard] = records.front();
    manifest.shards[static_cast<std::size_t>(canonical_rank)] = {shard.size_bytes, shard.root};
    manifest.finite = manifest.finite && shard.finite;
    report_.bytes += shard.size_bytes;
  }
  report_.bytes = context_.world.broadcast(std::vector{report_.bytes}).front();
  manifest.save_seconds = context_.clock.monotonic_s() - begin_s_;
  phase_ = Phase::committing;
  if (!context_.is_root()) return;
  job_ = std::async(std::launch::async, [this]() -> Written {
    if (!input_.model_view.empty()) staging_.add(model_view_name, input_.model_view);
    staging_.commit(std::move(input_.manifest), input_.attachments, [this] {
      lock_->check();
      input_.make_way();
    });
    return {};
  });
}

bool Save::all_succeed(const std::function<void()>& body) {
  const comm::Communicator& world = context_.world;
  std::optional<std::string> own;  // failure that the run survives
  comm::agree(world, [&] {
    try {
      body();
    } catch (const Error& error) {
      const Fault fault = error.fault();
      if (fault != Fault::io && fault != Fault::corrupt && fault != Fault::data) throw;
      own = error.what();
    }
  });
  const std::optional<int> failing = comm::lowest_rank(world, own.has_value());
  if (!failing) return true;
  const std::string why_not = world.broadcast(own.value_or(""), *failing);
  report_.why_not = world.size() == 1 ? why_not : fmt::format("rank {}: {}", *failing, why_not);
  if (context_.is_root()) {
    staging_.discard();
    context_.log.error("the checkpoint of step {} was not saved: {}", input_.manifest.step, report_.why_not);
  }
  end();
  return false;
}

void Save::end() {
  report_.seconds = context_.clock.monotonic_s() - begin_s_;
  phase_ = Phase::over;
}

void Save::wait_for_units() const {
  if (phase_ == Phase::writing) units_complete_.wait();
}

std::optional<SaveReport> Save::advance(bool wait) {
  using std::chrono_literals::operator""s;
  while (phase_ != Phase::over) {
    const bool at_work = job_.valid() && job_.wait_for(0s) != std::future_status::ready;
    if (!wait && comm::any_of(context_.world, at_work)) return std::nullopt;
    Written written;
    const auto finish_job = [&] {
      if (job_.valid()) written = job_.get();
    };
    if (!all_succeed(finish_job)) break;
    if (phase_ == Phase::writing) {
      enter_committing(written);
    } else {
      report_.committed = true;
      end();
    }
  }
  return report_;
}

}  // namespace argosy::checkpoint
