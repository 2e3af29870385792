#include "checkpoint/run_folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/lease.hpp"
#include "core/random.hpp"

namespace argosy::checkpoint {
namespace {

constexpr const char* temporaries = "checkpoints";
constexpr const char* exports = "export";
constexpr std::string_view bad_prefix = ".bad-";
constexpr std::array<std::string_view, 4> flaw_words{"files", "content", "unreadable", "unfit"};  // by Flaw

constexpr std::string_view latest = "latest", latest_partial = "latest.tmp-";

/// `exit.<job>.<restart>`, which the job scripts name.
bool is_exit_file(std::string_view name) {
  constexpr std::string_view prefix = "exit.";
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const std::size_t dot = name.find('.');
  return dot != std::string_view::npos && is_decimal(name.substr(0, dot)) && is_decimal(name.substr(dot + 1));
}

/// Whether this is the temporary name of a file that Argosy keeps in a run directory, or of `latest`.
bool is_partial(std::string_view name) {
  if (name.starts_with(latest_partial)) return is_hex(name.substr(latest_partial.size()), removal_digits);
  const std::optional<std::string> base = name_of_partial(name);
  constexpr std::array<std::string_view, 4> names{"run.json", "run_config.json", "status.json", "metrics.jsonl"};
  return base && (std::ranges::find(names, *base) != names.end() || is_lease_name(*base) || is_exit_file(*base));
}

/// `.bad-<step>-<reason>`, with `-2` and so on appended where that name was taken.
bool is_quarantined(std::string_view name) {
  constexpr std::size_t step_digits = 9;
  if (!name.starts_with(bad_prefix)) return false;
  name.remove_prefix(bad_prefix.size());
  const std::size_t dash = name.find('-');
  if (dash == std::string_view::npos || !is_decimal(name.substr(0, dash), step_digits)) return false;
  name.remove_prefix(dash + 1);
  const std::size_t again = name.find('-');
  const std::string_view word = name.substr(0, again);
  return std::find(flaw_words.begin(), flaw_words.end(), word) != flaw_words.end() &&
         (again == std::string_view::npos || is_decimal(name.substr(again + 1)));
}

Inspected::Facts facts_of(const Reader& reader) {
  Inspected::Facts facts{.finite = reader.finite(), .best = {}};
  const boost::json::value* const keep = reader.sections().best.if_contains("keep");
  if (keep == nullptr || !keep->is_array()) return facts;
  for (const boost::json::value& step : keep->get_array()) {
    if (step.is_int64()) facts.best.insert(step.get_int64());
  }
  return facts;
}

std::string step_name(std::int64_t step) { return fmt::format("{:09}", step); }

}  // namespace

RunFolder::RunFolder(const Files& files, const Clock& clock, const Log& log, Path run_dir, std::int64_t max_checkpoints)
    : files_(files), clock_(clock), log_(log), run_dir_(std::move(run_dir)), max_checkpoints_(max_checkpoints) {}

Path RunFolder::place_of(Kind kind, std::int64_t step) const {
  return run_dir_ / (kind == Kind::temp ? temporaries : exports) / step_name(step);
}

void RunFolder::make() const { files_.make_folders(run_dir_ / temporaries); }

void RunFolder::sweep() const {
  for (const char* folder : {temporaries, exports}) checkpoint::sweep(files_, run_dir_ / folder);
  for (const std::string& name : files_.list(run_dir_)) {
    const Path path = run_dir_ / name;
    if (!is_partial(name)) continue;
    const std::optional<FileStat> facts = is_link(files_, path) ? std::nullopt : files_.stat(path);
    if (!facts || !facts->is_directory) files_.remove(path);  // Argosy makes no folder of this name
  }
}

const std::string& RunFolder::adopt() {
  const Path path = run_dir_ / "run.json";
  if (files_.exists(path)) {
    boost::json::error_code error;
    const boost::json::value value = boost::json::parse(files_.own().read_text(path), error);
    const auto* uuid = !error && value.is_object() ? value.get_object().if_contains("run_uuid") : nullptr;
    if (uuid != nullptr && uuid->is_string()) return run_uuid_ = std::string(uuid->get_string());
    throw_claim(Fault::corrupt, path.string() + " is damaged: it has no run_uuid", path.string(),
                "an object with run_uuid", "other content",
                "remove it, and the next start makes it again from the newest checkpoint");
  }
  run_uuid_ = random_hex(32);
  for (const Candidate& candidate : candidates_in({temporaries, exports})) {
    try {
      run_uuid_ = Reader{files_, candidate.directory}.run_uuid();
      break;
    } catch (const Error&) {  // next_candidate() says what is wrong with it
    }
  }
  files_.write_atomically(path, boost::json::serialize(boost::json::object{
                                    {"run_uuid", run_uuid_}, {"created", timestamp_text(clock_.wall_s())}}) +
                                    "\n");
  return run_uuid_;
}

/// Sorted; none where there is no such folder.
std::vector<std::string> RunFolder::names_in(const Path& folder) const {
  return files_.exists(folder) ? files_.list(folder) : std::vector<std::string>{};
}

/// Newest first. Not inspected.
std::vector<RunFolder::Candidate> RunFolder::candidates_in(std::initializer_list<const char*> folders) const {
  std::vector<Candidate> candidates;
  for (const char* folder : folders) {
    for (const std::string& name : names_in(run_dir_ / folder)) {
      const std::optional<std::int64_t> step = count_in(name);
      if (step && step_name(*step) == name) candidates.push_back({*step, run_dir_ / folder / name});
    }
  }
  std::ranges::stable_sort(candidates, std::greater{}, &Candidate::step);
  return candidates;
}

/// A symbolic link where a checkpoint should hold a file or folder of its own.
std::optional<Path> RunFolder::link_in(const Reader& reader) const {
  const Path& directory = reader.directory();
  std::set<Path> paths{directory / manifest_name};
  const int world = reader.spaces().front().world();
  for (int rank = 0; rank < world; ++rank) {
    const Path file = directory / shard_name(rank, world);
    paths.insert({file, file.parent_path()});
  }
  for (const std::string& name : reader.attachments()) paths.insert(directory / name);
  const auto found = std::find_if(paths.begin(), paths.end(), [&](const Path& path) { return is_link(files_, path); });
  return found == paths.end() ? std::nullopt : std::optional{*found};
}

/// just_committed: its save has written and synced what the manifest lists.
RunFolder::Finding RunFolder::inspect(const Candidate& candidate, bool just_committed) const {
  const Path& directory = candidate.directory;
  const auto unfit = [&](const std::string& why) {
    return Finding{.reader = {}, .flaw = Flaw::unfit, .why = fmt::format("{}: {}", directory.string(), why)};
  };
  try {
    if (is_link(files_, directory)) return unfit("it is a symbolic link; links are not followed");
    const std::optional<Inspected::Identity> identity = inspected_.identity_of(directory);
    Reader reader = just_committed && identity
                        ? Reader{files_, directory, files_.read_text(directory / manifest_name, manifest_limit_bytes)}
                        : Reader{files_, directory};
    if (reader.run_uuid() != run_uuid_) return unfit("it belongs to another run");
    if (reader.step() != candidate.step) return unfit(fmt::format("it holds step {}", reader.step()));
    if (const auto link = just_committed ? std::nullopt : link_in(reader))
      return unfit(fmt::format("its {} is a symbolic link; links are not followed", link->filename().string()));
    if (identity) inspected_.add(reader, facts_of(reader), *identity);
    return {.reader = std::move(reader)};
  } catch (const Error& error) {
    if (error.fault() == Fault::usage) throw;  // a newer format is no damage
    return {.reader = {}, .flaw = error.fault() == Fault::io ? Flaw::unreadable : Flaw::files, .why = error.problem()};
  }
}

void RunFolder::begin_walk() {
  waiting_ = candidates_in({temporaries, exports});
  std::reverse(waiting_.begin(), waiting_.end());
  passed_over_.clear();
}

std::optional<Reader> RunFolder::next_candidate() {
  while (!waiting_.empty()) {
    const Candidate candidate = std::move(waiting_.back());
    waiting_.pop_back();
    Finding finding = inspect(candidate);
    const std::string where = candidate.directory.string();
    if (!finding.reader) {
      add(candidate.directory, finding.flaw, std::move(finding.why));
    } else if (!finding.reader->finite()) {
      add(candidate.directory, Flaw::unfit, where + ": it holds NaN or Inf");
    } else if (!finding.reader->has_optimizer_state()) {
      passed_over_.push_back({candidate.directory, Flaw::unfit, where + ": it holds weights only"});
    } else {
      return std::move(finding.reader);
    }
  }
  const std::string quarantined = first_quarantined();
  if (passed_over_.empty() && quarantined.empty()) return std::nullopt;
  refuse_to_start_over(quarantined);
}

void RunFolder::add(const Path& directory, Flaw flaw, std::string why) {
  log_.warn("checkpoint skipped: {}", why);
  passed_over_.push_back({directory, flaw, std::move(why)});
}

void RunFolder::pass_over(const Path& directory, const Error& why) {
  add(directory, why.fault() == Fault::corrupt ? Flaw::content : Flaw::unreadable, why.facts().got);
}

bool RunFolder::has_fallen_back() const noexcept {
  return std::any_of(passed_over_.begin(), passed_over_.end(), [](const auto& bad) { return bad.flaw != Flaw::unfit; });
}

std::string RunFolder::first_quarantined() const {
  for (const char* folder : {temporaries, exports}) {
    for (const std::string& name : names_in(run_dir_ / folder))
      if (is_quarantined(name)) return (run_dir_ / folder / name).string();
  }
  return "";
}

void RunFolder::refuse_to_start_over(const std::string& quarantined) const {
  std::string reasons;
  for (std::size_t i = 0; i < passed_over_.size(); ++i)
    reasons += fmt::format("{}({}) {}", i == 0 ? "" : "; ", i + 1, passed_over_[i].why);
  if (reasons.empty()) reasons = quarantined + " was moved away as damaged";
  const char* const remedy = "copy an intact checkpoint into checkpoints/, or start over with --from-scratch";
  throw Error{Fault::corrupt,
              {.sentence = fmt::format("{} has no checkpoint to resume from: {}. To continue, {}", run_dir_.string(),
                                       reasons, remedy),
               .wanted = "an intact checkpoint to resume from",
               .got = std::move(reasons),
               .where = run_dir_.string(),
               .remedy = remedy}};
}

/// Renames it, so that a later commit of the same step finds its name free, and people can look at it.
void RunFolder::quarantine(const PassedOver& bad) {
  const Path folder = bad.directory.parent_path();
  const auto step = count_in(bad.directory.filename().string());
  const std::string name = fmt::format("{}{}-{}", bad_prefix, step_name(step.value_or(0)),
                                       flaw_words.at(static_cast<std::size_t>(bad.flaw)));
  Path aside = folder / name;
  for (int again = 2; !files_.rename_noreplace(bad.directory, aside); ++again)
    aside = folder / fmt::format("{}-{}", name, again);
  files_.sync_folder(folder);
  inspected_.forget(bad.directory);
  log_.warn("{} {}: it was renamed to {}", bad.directory.string(),
            bad.flaw == Flaw::files || bad.flaw == Flaw::content ? "is damaged" : "cannot be resumed from",
            aside.string());
  // All but the two of the newest steps are removed.
  constexpr std::size_t kept = 2;
  std::vector<std::string> names = files_.list(folder);  // sorted: steps have the same number of digits
  std::erase_if(names, [](const std::string& each) { return !is_quarantined(each); });
  for (std::size_t i = 0; i + kept < names.size(); ++i) remove(folder / names[i]);
}

void RunFolder::put_aside() {
  std::erase_if(passed_over_, [&](const PassedOver& bad) {
    if (bad.flaw != Flaw::files && bad.flaw != Flaw::content) return false;
    try {
      quarantine(bad);
      return true;
    } catch (const Error& error) {
      log_.warn("{} is damaged and could not be renamed: {}", bad.directory.string(), error.what());
      return false;
    }
  });
}

void RunFolder::refuse_newer(const Reader& named) const {
  std::vector<std::string> newer;
  for (const Candidate& candidate : candidates_in({temporaries, exports})) {
    if (candidate.step > named.step() && inspect(candidate).reader) newer.push_back(candidate.directory.string());
  }
  if (newer.empty()) return;
  const std::string list = fmt::format("{}", fmt::join(newer, ", "));
  throw_claim(Fault::usage,
              fmt::format("{} is not the newest checkpoint of the run (newer: {})", named.directory().string(), list),
              named.directory().string(), "the newest checkpoint of the run",
              fmt::format("step {}, older than {}", named.step(), list),
              "resume from the newest, set another run_dir, or set the newer ones aside with --abandon-newer");
}

void RunFolder::abandon_newer(const Reader& named) {
  begin_walk();
  for (const Candidate& candidate : std::exchange(waiting_, {})) {
    if (candidate.step <= named.step()) continue;
    Finding finding = inspect(candidate);
    if (!finding.reader) {
      add(candidate.directory, finding.flaw, std::move(finding.why));
      continue;
    }
    const Path folder = candidate.directory.parent_path();
    const Path aside = folder / fmt::format(".old-{}-{}", step_name(candidate.step), random_hex(8));
    files_.rename(candidate.directory, aside);
    files_.sync_folder(folder);
    log_.warn("{} is abandoned: it was renamed to {}", candidate.directory.string(), aside.string());
  }
}

void RunFolder::make_way(const Path& target) {
  const auto found = std::ranges::find(passed_over_, target, &PassedOver::directory);
  if (found == passed_over_.end()) return;
  const PassedOver blocking = std::move(*found);
  passed_over_.erase(found);
  if (files_.exists(target)) quarantine(blocking);
}

/// Renames the directory first, so that a crash leaves no half-removed checkpoint under a committed name. The sweep
/// knows the new name by its step.
void RunFolder::remove(const Path& directory) const {
  const Path folder = directory.parent_path();
  std::string step = directory.filename().string();
  if (is_quarantined(step))
    step = step.substr(bad_prefix.size(), step.find('-', bad_prefix.size()) - bad_prefix.size());
  const Path doomed = folder / fmt::format(".del-{}-{}", step, random_hex(removal_digits));
  inspected_.forget(directory);
  if (!files_.rename_noreplace(directory, doomed)) return;
  files_.sync_folder(folder);
  files_.remove_tree(doomed);
}

std::set<std::int64_t> RunFolder::steps_to_keep() {
  constexpr std::uint64_t limit_bytes = 1 << 20;
  const Path path = run_dir_ / "keep.txt";
  std::set<std::int64_t> steps;
  if (!files_.exists(path)) return steps;
  const std::string text = files_.own().read_text(path, limit_bytes);
  std::istringstream lines{text};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    const std::optional<std::int64_t> step = count_in(line);
    if (step) {
      steps.insert(*step);
    } else if (!line.empty() && text != keep_text_) {
      log_.warn("{}:{}: \"{}\" is not a step; the line is ignored", path.string(), number, line);
    }
  }
  keep_text_ = text;
  return steps;
}

/// nullopt: not a sound checkpoint of this run. Of the one that was just committed only the manifest is read.
std::optional<Inspected::Facts> RunFolder::facts_of_sound(const Candidate& candidate) {
  if (auto known = inspected_.find(candidate.directory)) return known;
  const Finding finding = inspect(candidate, candidate.directory == committed_);
  return finding.reader ? std::optional{facts_of(*finding.reader)} : std::nullopt;
}

/// Removes temporaries beyond the newest `max_checkpoints` sound ones. Keeps those named in keep.txt, the best ones,
/// the newest finite one, and, for five commits, the one that was loaded.
void RunFolder::retain() {
  constexpr int newer_than_loaded = 5;
  const std::set<std::int64_t> named = steps_to_keep();
  std::set<std::int64_t> best;
  std::int64_t newer = 0;
  bool finite_kept = false;
  const std::vector<Candidate> candidates = candidates_in({temporaries});
  if (std::ssize(candidates) <= max_checkpoints_) return;  // whatever they hold
  for (const Candidate& candidate : candidates) {
    bool finite = false;
    try {
      const std::optional<Inspected::Facts> facts = facts_of_sound(candidate);
      if (!facts) continue;  // neither counted nor removed
      finite = facts->finite;
      // The lists of the newest one, of the newest finite one and of the loaded one: a run resumes with one of them.
      if (newer == 0 || (finite && !finite_kept) || candidate.directory == loaded_)
        best.insert(facts->best.begin(), facts->best.end());
    } catch (const Error&) {  // a newer format: neither counted nor removed
      continue;
    }
    const bool keep = newer < max_checkpoints_ || named.contains(candidate.step) || best.contains(candidate.step) ||
                      (finite && !finite_kept) || (candidate.directory == loaded_ && commits_ < newer_than_loaded);
    ++newer;
    finite_kept = finite_kept || finite;
    if (!keep) remove(candidate.directory);
  }
}

/// For people; no program reads the link.
void RunFolder::point_latest(const Path& directory) const {
  const Path link = run_dir_ / fmt::format("{}{}", latest_partial, random_hex(removal_digits));
  files_.link_symbolically(directory.lexically_relative(run_dir_), link);
  try {
    files_.rename(link, run_dir_ / latest);
  } catch (const Error&) {
    files_.os().unlink(link.c_str());
    throw;
  }
}

/// Runs what follows a commit or a load. Its failure does not undo them.
void RunFolder::warn_if_fails(const char* warning, const std::function<void()>& body) const {
  try {
    body();
  } catch (const Error& error) {
    log_.warn("{}: {}", warning, error.what());
  }
}

void RunFolder::settle(const Path& loaded) {
  const auto plain = [](const Path& path) { return std::filesystem::absolute(path).lexically_normal(); };
  const bool is_own = plain(loaded).parent_path().parent_path() == plain(run_dir_ / ".").parent_path();
  loaded_ = is_own ? run_dir_ / loaded.parent_path().filename() / loaded.filename() : loaded;
  commits_ = 0;
  if (is_own)
    warn_if_fails("the checkpoint is loaded, but `latest` could not be updated", [&] { point_latest(loaded_); });
  warn_if_fails("the checkpoint is loaded, but old checkpoints could not be removed", [&] { retain(); });
}

void RunFolder::tidy(const Path& committed, Tidy when) {
  ++commits_;
  committed_ = committed;
  warn_if_fails("the checkpoint is saved, but `latest` could not be updated", [&] { point_latest(committed); });
  if (when == Tidy::now)
    warn_if_fails("the checkpoint is saved, but old checkpoints could not be removed", [&] { retain(); });
}

}  // namespace argosy::checkpoint
