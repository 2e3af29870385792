#include <utility>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/run_lock.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/vote.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

/// A shard's line in the vote on the payload.
struct Record {
  int canonical_rank = 0;
  std::uint64_t size_bytes = 0;
  Written written;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} {} {} {}", canonical_rank, size_bytes, written.root.hex(), written.finite ? 1 : 0);
  }
  static Record parse(const std::string& text) {
    Record record;
    char root[33] = {};
    int finite = 0;
    unsigned long long size_bytes = 0;
    const int fields = std::sscanf(text.c_str(), "%d %llu %32s %d", &record.canonical_rank, &size_bytes, root, &finite);
    const auto digest = Digest::from_hex(root);
    ARGOSY_CHECK(fields == 4 && digest.has_value(), "a vote reads {}", text);
    record.size_bytes = size_bytes;
    record.written = {*digest, finite != 0};
    return record;
  }
};

}  // namespace

struct Store::Impl {
  comm::Context& context;
  RunFolder folder;               // used by rank 0
  std::unique_ptr<RunLock> lock;  // rank 0
  std::string run_uuid;

  [[nodiscard]] bool root() const { return context.is_root(); }
  [[nodiscard]] const Files& files() const { return context.files; }
};

Store::Store(comm::Context& context, Path run_dir, Options options)
    : impl_(std::make_unique<Impl>(
          Impl{context,
               RunFolder{context.files, context.clock, context.log, std::move(run_dir), options.max_checkpoints},
               nullptr,
               {}})) {
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    impl_->folder.make();
    impl_->lock = std::make_unique<RunLock>(context.files, context.clock, impl_->folder.path());
    impl_->folder.sweep();
    impl_->run_uuid = impl_->folder.adopt();
  });
  impl_->run_uuid = context.world.broadcast(impl_->run_uuid);
}

Store::~Store() = default;

const Path& Store::run_dir() const noexcept { return impl_->folder.path(); }

std::optional<Reader> Store::newest() const {
  const comm::Communicator& world = impl_->context.world;
  std::optional<Reader> found;
  std::string path, text;
  comm::agree(world, [&] {
    if (!impl_->root()) return;
    found = impl_->folder.find_newest();
    if (!found) return;
    path = found->directory().string();
    text = impl_->files().read_text(found->directory() / manifest_name, manifest_limit_bytes);
  });
  path = world.broadcast(path);
  text = world.broadcast(text);
  comm::agree(world, [&] {
    if (!impl_->root() && !path.empty()) found.emplace(impl_->files(), Path{path}, text);
  });
  return found;
}

SaveReport Store::save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                       std::span<const Attachment> attachments) {
  const comm::Context& context = impl_->context;
  const comm::Communicator& world = context.world;
  const int rank = context.topology.canonical_rank();
  const double begin_s = context.clock.monotonic_s();

  Manifest manifest{.run_uuid = impl_->run_uuid,
                    .save_nonce = world.broadcast(impl_->root() ? random_hex(16) : ""),
                    .kind = kind,
                    .step = step,
                    .wall_time_s = context.clock.wall_s(),
                    .sections = sections};
  std::vector<Bytes> payload;
  std::uint64_t needed_bytes = 0;
  for (const UnitState& unit : units) {
    manifest.unit_names.push_back(unit.name);
    manifest.spaces.push_back(*unit.space);
    manifest.complete = manifest.complete && !unit.exp_avg.empty() && !unit.exp_avg_sq.empty();
    needed_bytes += static_cast<std::uint64_t>(unit.space->padded_size()) * sizeof(float);
  }
  if (manifest.complete) needed_bytes *= 3;
  for (const UnitState& unit : units) {
    payload.push_back(std::as_bytes(unit.master));
    if (!manifest.complete) continue;
    payload.push_back(std::as_bytes(unit.exp_avg));
    payload.push_back(std::as_bytes(unit.exp_avg_sq));
  }
  const ShardIndex index = index_of(manifest.spaces, rank);
  for (const Bytes column : columns_of(index)) payload.push_back(column);

  const Staging staging{impl_->files(), impl_->folder.place_of(kind, step), manifest.save_nonce};
  SaveReport report{.directory = staging.target()};
  const auto failed = [&](const Ballot& ballot) {
    if (!ballot.why_not) return false;
    if (impl_->root()) {
      staging.discard();
      context.log.error("checkpoint of step {} not saved: {}", step, *ballot.why_not);
    }
    report.why_not = *ballot.why_not;
    report.seconds = context.clock.monotonic_s() - begin_s;
    return true;
  };

  const Ballot opened = vote(world, [&]() -> std::string {
    if (!impl_->root()) return "";
    impl_->lock->check();
    impl_->lock->beat();
    staging.open(needed_bytes, manifest.world());
    return "";
  });
  if (failed(opened)) return report;

  const Ballot written = vote(world, [&] {
    const Path path = staging.folder() / shard_name(rank, manifest.world());
    const ShardMap map = create_shard(impl_->files(), path, manifest.identity(rank), manifest.specs(rank));
    return Record{rank, map.size_bytes, write_shard(impl_->files(), path, map, payload)}.text();
  });
  if (failed(written)) return report;
  manifest.shards.resize(static_cast<std::size_t>(manifest.world()));
  for (const std::string& text : written.results) {
    const Record record = Record::parse(text);
    manifest.shards[static_cast<std::size_t>(record.canonical_rank)] = {
        shard_name(record.canonical_rank, manifest.world()), record.size_bytes, record.written.root};
    manifest.finite = manifest.finite && record.written.finite;
    report.bytes += record.size_bytes;
  }
  manifest.save_seconds = context.clock.monotonic_s() - begin_s;

  const Ballot committed = vote(world, [&]() -> std::string {
    if (impl_->root()) staging.commit(std::move(manifest), attachments, [&] { impl_->lock->check(); });
    return "";
  });
  if (failed(committed)) return report;
  report.committed = true;
  report.seconds = context.clock.monotonic_s() - begin_s;
  if (impl_->root()) impl_->folder.tidy(staging.target());
  return report;
}

}  // namespace argosy::checkpoint
