#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_lock.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/vote.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

constexpr const char* temporaries = "checkpoints";
constexpr const char* exports = "export";

struct Candidate {
  std::int64_t step = 0;
  Path directory;
};

std::string step_name(std::int64_t step) { return fmt::format("{:09}", step); }

/// Committed directories of one folder, newest first; whether they are sound is another question.
std::vector<Candidate> candidates_of(const Files& files, const Path& folder) {
  constexpr std::size_t digits = 9;
  std::vector<Candidate> candidates;
  if (!files.exists(folder)) return candidates;
  for (const std::string& name : files.list(folder)) {
    const bool number = name.size() >= digits && name.size() <= 18 &&
                        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number) candidates.push_back({std::stoll(name), folder / name});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return candidates;
}

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
  Path run_dir;
  Options options;
  std::unique_ptr<RunLock> lock;  // rank 0
  std::string run_uuid;

  [[nodiscard]] bool root() const { return context.is_root(); }
  [[nodiscard]] const Files& files() const { return context.files; }

  /// Rank 0: run.json, made with the directory; a directory that got its checkpoints from elsewhere takes over their
  /// run.
  [[nodiscard]] std::string read_or_make_uuid() const {
    const Path path = run_dir / "run.json";
    if (files().exists(path)) {
      boost::json::error_code error;
      const boost::json::value value = boost::json::parse(files().read_text(path), error);
      const auto* uuid = !error && value.is_object() ? value.get_object().if_contains("run_uuid") : nullptr;
      if (uuid != nullptr && uuid->is_string()) return std::string(uuid->get_string());
      throw Error{Fault::corrupt,
                  {.wanted = "an object with run_uuid",
                   .got = "something else",
                   .where = path.string(),
                   .remedy = "remove the file; it is made again from the newest checkpoint"}};
    }
    std::string uuid = random_hex(32);
    for (const Candidate& candidate : all_candidates()) {
      try {
        uuid = Reader{files(), candidate.directory}.run_uuid();
        break;
      } catch (const Error&) {  // newest() says what is wrong with it
      }
    }
    files().write_atomically(path, boost::json::serialize(boost::json::object{
                                       {"run_uuid", uuid}, {"created", timestamp_text(context.clock.wall_s())}}) +
                                       "\n");
    return uuid;
  }

  [[nodiscard]] std::vector<Candidate> all_candidates() const {
    std::vector<Candidate> candidates = candidates_of(files(), run_dir / temporaries);
    const std::vector<Candidate> permanent = candidates_of(files(), run_dir / exports);
    candidates.insert(candidates.end(), permanent.begin(), permanent.end());
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.step > b.step; });
    return candidates;
  }

  /// Out of the way of later commits of the same step; kept for people to look at.
  void quarantine(const Path& directory) const {
    const Path aside =
        directory.parent_path() / fmt::format(".bad-{}-{}", directory.filename().string(), random_hex(8));
    if (files().rename_noreplace(directory, aside)) files().sync_folder(directory.parent_path());
    context.log.warn("{} is damaged; moved to {}", directory.string(), aside.string());
  }

  /// Rank 0: the newest sound candidate. Throws when there are candidates and none is sound.
  [[nodiscard]] std::optional<Reader> find_newest() const {
    std::vector<std::string> reasons;
    std::vector<Path> damaged;
    for (const Candidate& candidate : all_candidates()) {
      std::string reason;
      try {
        Reader reader{files(), candidate.directory};
        if (reader.run_uuid() == run_uuid && reader.has_moments() && reader.finite()) {
          for (const std::string& text : reasons) context.log.warn("checkpoint passed over: {}", text);
          for (const Path& directory : damaged) quarantine(directory);
          return reader;
        }
        if (!reader.has_moments()) {
          context.log.warn("{} holds weights only and cannot be resumed from", candidate.directory.string());
          continue;
        }
        reason = reader.finite() ? "it belongs to another run" : "it holds NaN or Inf";
        reason += fmt::format(" in {}", candidate.directory.string());
      } catch (const Error& error) {
        if (error.fault() == Fault::usage) throw;  // a newer format is no damage
        if (error.fault() != Fault::io) damaged.push_back(candidate.directory);
        reason = error.what();
      }
      reasons.push_back(std::move(reason));
    }
    if (reasons.empty()) return std::nullopt;
    throw Error{Fault::corrupt,
                {.wanted = "a sound checkpoint to go on from",
                 .got = fmt::format("{} and none is ({})", reasons.size() == 1 ? "one" : std::to_string(reasons.size()),
                                    fmt::join(reasons, "; ")),
                 .where = run_dir.string(),
                 .remedy = "put a good one back into checkpoints/, or start anew in another run directory"}};
  }

  /// Removes temporaries beyond the newest `max_checkpoints` sound ones, never the newest finite one.
  void retain() const {
    int kept = 0;
    bool finite_kept = false;
    for (const Candidate& candidate : candidates_of(files(), run_dir / temporaries)) {
      bool finite = false;
      try {
        const Reader reader{files(), candidate.directory};
        if (reader.run_uuid() != run_uuid) continue;
        finite = reader.finite();
      } catch (const Error&) {  // neither counted nor removed
        continue;
      }
      if (kept < options.max_checkpoints || (finite && !finite_kept)) {
        ++kept;
        finite_kept = finite_kept || finite;
        continue;
      }
      const Path folder = candidate.directory.parent_path();
      const Path doomed = folder / fmt::format(".del-{}-{}", step_name(candidate.step), random_hex(8));
      if (!files().rename_noreplace(candidate.directory, doomed)) continue;
      files().sync_folder(folder);  // else a crash could leave it half removed under its own name
      files().remove_tree(doomed);
    }
  }

  /// A hint for people; nothing reads it.
  void point_latest(const Path& directory) const {
    const Path link = run_dir / fmt::format("latest.tmp-{}", random_hex(8));
    files().link_symbolically(std::filesystem::relative(directory, run_dir), link);
    files().rename(link, run_dir / "latest");
  }

  /// Rank 0, after a commit: what may fail without harm.
  void tidy(const Path& committed) const {
    try {
      point_latest(committed);
      retain();
    } catch (const Error& error) {
      context.log.warn("the checkpoint is saved, but tidying up failed: {}", error.what());
    }
  }
};

Store::Store(comm::Context& context, Path run_dir, Options options)
    : impl_(std::make_unique<Impl>(Impl{context, std::move(run_dir), options, nullptr, {}})) {
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    const Files& files = impl_->files();
    files.make_folders(impl_->run_dir / temporaries);
    impl_->lock = std::make_unique<RunLock>(files, context.clock, impl_->run_dir);
    sweep(files, impl_->run_dir / temporaries);
    sweep(files, impl_->run_dir / exports);
    impl_->run_uuid = impl_->read_or_make_uuid();
  });
  impl_->run_uuid = context.world.broadcast(impl_->run_uuid);
}

Store::~Store() = default;

const Path& Store::run_dir() const noexcept { return impl_->run_dir; }

std::optional<Reader> Store::newest() const {
  const comm::Communicator& world = impl_->context.world;
  std::optional<Reader> found;
  std::string path, text;
  comm::agree(world, [&] {
    if (!impl_->root()) return;
    found = impl_->find_newest();
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

  const Staging staging{impl_->files(), impl_->run_dir / (kind == Kind::temp ? temporaries : exports) / step_name(step),
                        manifest.save_nonce};
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
  if (impl_->root()) impl_->tidy(staging.target());
  return report;
}

}  // namespace argosy::checkpoint
