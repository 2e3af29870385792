#include "checkpoint/run_folder.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "checkpoint/staging.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

constexpr const char* temporaries = "checkpoints";
constexpr const char* exports = "export";

/// A file, or `latest`, on its way to its name when the process died: <name>.tmp-<hex digits>.
bool is_partial(std::string_view name) {
  constexpr std::string_view mark = ".tmp-";
  const std::size_t at = name.rfind(mark);
  return at != std::string_view::npos && at > 0 && at + mark.size() < name.size() &&
         name.find_first_not_of("0123456789abcdef", at + mark.size()) == std::string_view::npos;
}

std::string step_name(std::int64_t step) { return fmt::format("{:09}", step); }

}  // namespace

RunFolder::RunFolder(const Files& files, const Clock& clock, const Log& log, Path run_dir, int max_checkpoints)
    : files_(files), clock_(clock), log_(log), run_dir_(std::move(run_dir)), max_checkpoints_(max_checkpoints) {}

Path RunFolder::place_of(Kind kind, std::int64_t step) const {
  return run_dir_ / (kind == Kind::temp ? temporaries : exports) / step_name(step);
}

void RunFolder::make() const { files_.make_folders(run_dir_ / temporaries); }

void RunFolder::sweep() const {
  for (const char* folder : {temporaries, exports}) checkpoint::sweep(files_, run_dir_ / folder);
  for (const std::string& name : files_.list(run_dir_)) {
    if (is_partial(name)) files_.remove(run_dir_ / name);
  }
}

const std::string& RunFolder::adopt() {
  const Path path = run_dir_ / "run.json";
  if (files_.exists(path)) {
    boost::json::error_code error;
    const boost::json::value value = boost::json::parse(files_.read_text(path), error);
    const auto* uuid = !error && value.is_object() ? value.get_object().if_contains("run_uuid") : nullptr;
    if (uuid != nullptr && uuid->is_string()) return run_uuid_ = std::string(uuid->get_string());
    throw Error{Fault::corrupt,
                {.wanted = "an object with run_uuid",
                 .got = "something else",
                 .where = path.string(),
                 .remedy = "remove the file; it is made again from the newest checkpoint"}};
  }
  run_uuid_ = random_hex(32);
  for (const Candidate& candidate : all_candidates()) {
    try {
      run_uuid_ = Reader{files_, candidate.directory}.run_uuid();
      break;
    } catch (const Error&) {  // newest() says what is wrong with it
    }
  }
  files_.write_atomically(path, boost::json::serialize(boost::json::object{
                                    {"run_uuid", run_uuid_}, {"created", timestamp_text(clock_.wall_s())}}) +
                                    "\n");
  return run_uuid_;
}

std::vector<RunFolder::Candidate> RunFolder::candidates_of(const Path& folder) const {
  constexpr std::size_t digits = 9;
  std::vector<Candidate> candidates;
  if (!files_.exists(folder)) return candidates;
  for (const std::string& name : files_.list(folder)) {
    const bool number = name.size() >= digits && name.size() <= 18 &&
                        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number) candidates.push_back({std::stoll(name), folder / name});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return candidates;
}

std::vector<RunFolder::Candidate> RunFolder::all_candidates() const {
  std::vector<Candidate> candidates = candidates_of(run_dir_ / temporaries);
  const std::vector<Candidate> permanent = candidates_of(run_dir_ / exports);
  candidates.insert(candidates.end(), permanent.begin(), permanent.end());
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return candidates;
}

/// Out of the way of later commits of the same step; kept for people to look at.
void RunFolder::quarantine(const Path& directory) const {
  const Path aside = directory.parent_path() / fmt::format(".bad-{}-{}", directory.filename().string(), random_hex(8));
  if (files_.rename_noreplace(directory, aside)) files_.sync_folder(directory.parent_path());
  log_.warn("{} is damaged; moved to {}", directory.string(), aside.string());
}

std::optional<Reader> RunFolder::find_newest() const {
  std::vector<std::string> reasons;
  std::vector<Path> damaged;
  for (const Candidate& candidate : all_candidates()) {
    std::string reason;
    try {
      Reader reader{files_, candidate.directory};
      if (reader.run_uuid() == run_uuid_ && reader.has_moments() && reader.finite()) {
        for (const std::string& text : reasons) log_.warn("checkpoint passed over: {}", text);
        for (const Path& directory : damaged) quarantine(directory);
        return reader;
      }
      if (!reader.has_moments()) {
        log_.warn("{} holds weights only and cannot be resumed from", candidate.directory.string());
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
               .where = run_dir_.string(),
               .remedy = "put a good one back into checkpoints/, or start anew in another run directory"}};
}

/// Removes temporaries beyond the newest `max_checkpoints` sound ones, never the newest finite one.
void RunFolder::retain() const {
  int kept = 0;
  bool finite_kept = false;
  for (const Candidate& candidate : candidates_of(run_dir_ / temporaries)) {
    bool finite = false;
    try {
      const Reader reader{files_, candidate.directory};
      if (reader.run_uuid() != run_uuid_) continue;
      finite = reader.finite();
    } catch (const Error&) {  // neither counted nor removed
      continue;
    }
    if (kept < max_checkpoints_ || (finite && !finite_kept)) {
      ++kept;
      finite_kept = finite_kept || finite;
      continue;
    }
    const Path folder = candidate.directory.parent_path();
    const Path doomed = folder / fmt::format(".del-{}-{}", step_name(candidate.step), random_hex(8));
    if (!files_.rename_noreplace(candidate.directory, doomed)) continue;
    files_.sync_folder(folder);  // else a crash could leave it half removed under its own name
    files_.remove_tree(doomed);
  }
}

/// A hint for people; nothing reads it.
void RunFolder::point_latest(const Path& directory) const {
  const Path link = run_dir_ / fmt::format("latest.tmp-{}", random_hex(8));
  files_.link_symbolically(std::filesystem::relative(directory, run_dir_), link);
  files_.rename(link, run_dir_ / "latest");
}

void RunFolder::tidy(const Path& committed) const {
  try {
    point_latest(committed);
    retain();
  } catch (const Error& error) {
    log_.warn("the checkpoint is saved, but tidying up failed: {}", error.what());
  }
}

}  // namespace argosy::checkpoint
