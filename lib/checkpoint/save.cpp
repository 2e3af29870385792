#include "checkpoint/save.hpp"

#include <array>
#include <boost/describe.hpp>
#include <chrono>
#include <utility>

#include "checkpoint/model_view.hpp"
#include "comm/message.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

/// What a rank reports of its shard once the payload is written.
struct Record {
  int canonical_rank = 0;
  std::uint64_t size_bytes = 0;
  std::string root;  // hex
  bool finite = true;
};
BOOST_DESCRIBE_STRUCT(Record, (), (canonical_rank, size_bytes, root, finite))

std::uint64_t payload_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
    for (const spec::StateTensor& tensor : manifest.tensors[unit])
      for (const spec::OwnedPart& part : spec::owned_parts(manifest.spaces[unit], tensor))
        bytes += static_cast<std::uint64_t>(part.size) * size_of(tensor.dtype);
  }
  return bytes;
}

/// Runs `body`, which may take any time, and tells all ranks whether it succeeded everywhere. With Results::gathered
/// rank 0 gets what `body` returned on every rank. Errors of kind io, corrupt and data become `why_not`; any other is
/// thrown on every rank. **Collective.** Throws Error{comm}.
Ballot vote(const comm::Communicator& world, Results wanted, const std::function<std::string()>& body) {
  std::string result;
  std::optional<std::string> own;  // failure that the run survives
  comm::agree(world, [&] {
    try {
      result = body();
    } catch (const Error& error) {
      const Fault fault = error.fault();
      if (fault != Fault::io && fault != Fault::corrupt && fault != Fault::data) throw;
      own = error.what();
    }
  });
  Ballot ballot;
  if (const std::optional<int> failing = comm::lowest_rank(world, own.has_value())) {
    const std::string why_not = world.broadcast(own.value_or(""), *failing);
    ballot.why_not = world.size() == 1 ? why_not : fmt::format("rank {}: {}", *failing, why_not);
  } else if (wanted == Results::gathered) {
    ballot.results = world.gather(result);
  }
  return ballot;
}

}  // namespace

Save::Save(const comm::Context& context, Lease* lock, Input input)
    : context_(context),
      lock_(lock),
      input_(std::move(input)),
      staging_(context.files, input_.target, input_.manifest.save_nonce),
      begin_s_(context.clock.monotonic_s()),
      rank_(context.topology.canonical_rank()),
      index_(index_of(input_.manifest.spaces, rank_)),
      report_{.directory = staging_.target()},
      units_complete_(units_promise_.get_future()) {
  const Ballot opened = vote(context.world, Results::dropped, [&]() -> std::string {
    if (!context.is_root()) return "";
    lock_->check();
    staging_.open(payload_bytes(input_.manifest), input_.manifest.world());
    return "";
  });
  if (!failed(opened)) enter_writing();
}

void Save::enter_writing() {
  const Manifest& manifest = input_.manifest;
  const Path path = staging_.folder() / shard_name(rank_, manifest.world());
  ShardMap map;
  const Ballot made = vote(context_.world, Results::dropped, [&]() -> std::string {
    map = create_shard(context_.files, path, manifest.identity(rank_), manifest.specs(rank_));
    return "";
  });
  if (failed(made)) return;
  job_ = std::async(std::launch::async, [this, path, map] {
    complete_units();
    return write(path, map);
  });
}

/// Ends every wait for the units, also when it fails.
void Save::complete_units() {
  try {
    if (input_.complete_units) input_.complete_units();
  } catch (...) {
    units_promise_.set_value();
    throw;
  }
  units_promise_.set_value();
}

std::string Save::write(const Path& path, const ShardMap& map) const {
  std::vector<Bytes> payload;
  for (const UnitState& unit : input_.units) {
    for (const TensorShard& tensor : unit.tensors) payload.push_back(tensor.bytes);
  }
  for (const Bytes column : columns_of(index_)) payload.push_back(column);
  const Written written = write_shard(context_.files, path, map, payload);
  return comm::to_message(Record{rank_, map.size_bytes, written.root.hex(), written.finite});
}

void Save::enter_committing(const Ballot& written) {
  Manifest& manifest = input_.manifest;
  const int world = manifest.world();
  manifest.shards.resize(static_cast<std::size_t>(world));
  std::array<std::int64_t, 1> bytes{};
  for (const std::string& text : written.results) {  // rank 0 has them
    const auto record = comm::from_message<Record>(text);
    manifest.shards[static_cast<std::size_t>(record.canonical_rank)] = {
        shard_name(record.canonical_rank, world), record.size_bytes, Digest::from_hex(record.root).value()};
    manifest.finite = manifest.finite && record.finite;
    bytes[0] += static_cast<std::int64_t>(record.size_bytes);
  }
  context_.world.all_reduce(std::span<std::int64_t>{bytes}, comm::Reduce::max);
  report_.bytes = static_cast<std::uint64_t>(bytes[0]);
  manifest.save_seconds = context_.clock.monotonic_s() - begin_s_;
  phase_ = Phase::committing;
  if (!context_.is_root()) return;
  job_ = std::async(std::launch::async, [this]() -> std::string {
    if (!input_.model_view.empty()) staging_.add(model_view_name, input_.model_view);
    staging_.commit(std::move(input_.manifest), input_.attachments, [this] {
      lock_->check();
      input_.make_way();
    });
    return "";
  });
}

bool Save::failed(const Ballot& ballot) {
  if (!ballot.why_not) return false;
  if (context_.is_root()) {
    staging_.discard();
    context_.log.error("the checkpoint of step {} was not saved: {}", input_.manifest.step, *ballot.why_not);
  }
  report_.why_not = *ballot.why_not;
  end();
  return true;
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
    const Results wanted = phase_ == Phase::writing ? Results::gathered : Results::dropped;
    const Ballot ballot = vote(context_.world, wanted, [this] { return job_.valid() ? job_.get() : ""; });
    if (failed(ballot)) break;
    if (phase_ == Phase::writing) {
      enter_committing(ballot);
    } else {
      report_.committed = true;
      end();
    }
  }
  return report_;
}

}  // namespace argosy::checkpoint
