#include "telemetry/run_report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value_from.hpp>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "telemetry/status.hpp"

namespace argosy::telemetry {
namespace {

namespace json = boost::json;
constexpr std::uint64_t most_bytes = 1U << 20U;         // of any other file
constexpr std::uint64_t most_tail_bytes = 64ULL << 20;  // of metrics.jsonl

const std::vector<std::string>& stages() {
  static const std::vector<std::string> all{"count", "preprocess", "train", "soup", "export"};
  return all;
}

/// Text of a file made safe for a terminal: control characters are replaced, and the length is limited.
std::string printable(std::string_view text) {
  constexpr std::size_t most = 400;
  std::string shown(text.substr(0, most));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return shown;
}

bool is_regular(const Path& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::regular;
}

std::optional<std::int64_t> int_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
  return value->get_int64();
}

std::optional<double> number_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto number = value->to_number<double>();
  return std::isfinite(number) ? std::optional{number} : std::nullopt;
}

std::string string_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

/// "2026-01-31T12:00:00Z" in seconds since 1970.
std::optional<double> time_in(const std::string& text) {
  std::tm parts{};
  const char* const end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0' ? std::optional{static_cast<double>(timegm(&parts))} : std::nullopt;
}

bool is_status(const json::object& object) {
  State state{};
  return boost::describe::enum_from_string(string_at(object, "state").c_str(), state) && int_at(object, "step") &&
         number_at(object, "fraction_done") && time_in(string_at(object, "time"));
}

bool is_validation(const json::object& object) {
  const json::value* figures = object.if_contains("figures");
  return int_at(object, "step") && !string_at(object, "validation").empty() && figures != nullptr &&
         figures->is_object();
}

std::optional<json::object> object_in(std::string_view text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

/// The last complete line that is a validation. `first_is_cut`: the text begins within a line.
std::optional<json::object> last_validation(std::string_view text, bool first_is_cut) {
  std::size_t end = text.rfind('\n');  // a last line without an end is being written
  while (end != std::string_view::npos) {
    const std::size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    if (before == std::string_view::npos && first_is_cut) break;
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find("\"validation\"") != std::string_view::npos) {
      if (auto object = object_in(line); object && is_validation(*object)) return object;
    }
    end = before;
  }
  return std::nullopt;
}

/// Bytes of all files below `folder`. Links are not followed; files that disappear meanwhile do not count.
std::uint64_t bytes_below(const Path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(folder, std::filesystem::directory_options::skip_permission_denied, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && !at->is_symlink(gone)) {
      const std::uint64_t size_bytes = at->file_size(gone);
      if (!gone) sum += size_bytes;
    }
  }
  return sum;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + ' ' : c; });
  return text;
}

std::string training_line(const json::object& training, double now_s) {
  const std::string reason = printable(string_at(training, "reason"));
  return fmt::format("training {} at step {}, {:.1f} % done, last update {:.0f} s ago{}{}",
                     string_at(training, "state"), *int_at(training, "step"),
                     100 * *number_at(training, "fraction_done"),
                     std::floor(now_s - *time_in(string_at(training, "time"))), reason.empty() ? "" : ": ", reason);
}

std::optional<std::string> eta_line(const json::object& training) {
  constexpr double latest_s = 253402300799;  // of the year 9999
  const auto eta_s = number_at(training, "eta_s");
  const double at_s = *time_in(string_at(training, "time")) + eta_s.value_or(0);
  if (!eta_s || *eta_s < 0 || at_s > latest_s) return std::nullopt;
  const auto at = static_cast<std::time_t>(at_s);
  std::tm local{};
  localtime_r(&at, &local);
  return fmt::format("ETA {:%Y-%m-%d %H:%M:%S}", local);
}

std::string validation_line(const json::object& validation) {
  std::string figures;
  for (const auto& figure : validation.at("figures").as_object()) {
    const std::string value =
        figure.value().is_number() ? fmt::format("{:.4f}", figure.value().to_number<double>()) : "unknown";
    figures += fmt::format("{}{} {}", figures.empty() ? "" : ", ", printable(figure.key()), value);
  }
  return fmt::format("validation at step {} on {}: {}", *int_at(validation, "step"),
                     printable(string_at(validation, "validation")), figures);
}

std::string job_line(const std::string& number, const JobReport& job) {
  std::string line = fmt::format("job {}: {} start{}", number, job.starts.size(), job.starts.size() == 1 ? "" : "s");
  if (!job.exit) return line;
  line += fmt::format(", last exit code {} at step {}", job.exit->code, job.exit->step);
  return job.exit->why == "stop_file" ? line + ", because the stop file exists" : line;
}

}  // namespace

std::vector<Start> parse_starts(std::string_view text) {
  std::vector<Start> starts;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const std::size_t space = std::min(line.find(' '), line.size());
    const auto step = count_in(line.substr(0, space));
    const auto time = space == line.size() ? std::optional<std::int64_t>{0} : count_in(line.substr(space + 1));
    starts.push_back(step && time ? Start{.step = *step, .time_s = *time} : Start{});
  }
  return starts;
}

std::int64_t fruitless(const std::vector<Start>& starts, std::int64_t newest_step) {
  const auto fruitful =
      std::find_if(starts.rbegin(), starts.rend(), [&](const Start& start) { return start.step != newest_step; });
  return fruitful - starts.rbegin();
}

std::vector<ChainJob> parse_chain(std::string_view text) {
  const Error wrong{Fault::corrupt,
                    {.sentence = R"(not of the form {"config": …, "stages": [{"stage": …, "job": digits}, …]})",
                     .wanted = "the chain of a run",
                     .got = "other content"}};
  const auto object = object_in(text);
  const json::value* list = object ? object->if_contains("stages") : nullptr;
  if (list == nullptr || !list->is_array() || list->get_array().size() > stages().size()) throw wrong;
  std::vector<ChainJob> jobs;
  for (const json::value& entry : list->get_array()) {
    if (!entry.is_object()) throw wrong;
    const ChainJob job{.stage = string_at(entry.get_object(), "stage"), .job = string_at(entry.get_object(), "job")};
    const auto same = [&job](const ChainJob& other) { return other.stage == job.stage; };
    if (std::count(stages().begin(), stages().end(), job.stage) == 0 || (!job.job.empty() && !count_in(job.job)) ||
        std::any_of(jobs.begin(), jobs.end(), same))
      throw wrong;
    jobs.push_back(job);
  }
  return jobs;
}

std::string state_of(const std::string& job, const std::optional<comm::ExitRecord>& exit, const Queue& queue) {
  constexpr int stopped = static_cast<int>(Exit::stopped);
  if (job.empty()) return "new";
  const auto asked = queue.find(job);
  const std::string said = asked == queue.end() ? "" : lower(printable(asked->second));
  const bool is_waiting = said.starts_with("pending") || said.starts_with("running");
  if (exit && exit->code == 0 && !is_waiting) return "done";
  if (!said.empty()) return "queued " + (said.ends_with(" none") ? said.substr(0, said.size() - 5) : said);
  if (exit) return exit->code == stopped ? "stopped" : fmt::format("failed {}", exit->code);
  return asked == queue.end() ? "submitted" : "cancelled";
}

void RunFiles::add_problem(const std::string& name, const std::string& what) {
  std::string text = fmt::format("{}: {}", (run_dir_ / name).string(), what);
  if (std::ranges::find(problems_, text) == problems_.end()) problems_.push_back(std::move(text));
}

std::optional<std::string> RunFiles::text_of(const std::string& name) {
  const Path path = run_dir_ / name;
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (!is_regular(path)) {
    add_problem(name, "not a regular file; it was not read");
    return std::nullopt;
  }
  try {
    return files_.read_text(path, most_bytes);
  } catch (const Error& unreadable) {
    if (files_.exists(path)) add_problem(name, unreadable.what());  // else it has just gone
    return std::nullopt;
  }
}

std::vector<std::string> RunFiles::checkpoints() {
  std::map<std::int64_t, std::string> at_step;
  for (const char* folder : {"checkpoints", "export"}) {
    if (!files_.exists(run_dir_ / folder)) continue;
    try {
      for (const std::string& name : files_.list(run_dir_ / folder)) {
        const auto step = count_in(name);
        if (step && name == fmt::format("{:09}", *step)) at_step[*step] = fmt::format("{}/{}", folder, name);
      }
    } catch (const Error& unreadable) {
      add_problem(folder, unreadable.what());
    }
  }
  std::vector<std::string> names;
  names.reserve(at_step.size());
  for (const auto& [step, name] : at_step) names.push_back(name);
  return names;
}

std::int64_t RunFiles::newest_step() {
  const std::vector<std::string> all = checkpoints();
  return all.empty() ? 0 : *count_in(std::string_view(all.back()).substr(all.back().find('/') + 1));
}

JobReport RunFiles::job(const std::string& number, std::optional<std::int64_t> restart) {
  JobReport report;
  const std::string starts = "starts." + number, prefix = "exit." + number + ".";
  if (const auto text = text_of(starts)) {
    report.starts = parse_starts(*text);
    const auto bad = std::count_if(report.starts.begin(), report.starts.end(), [](auto& s) { return s.step < 0; });
    if (bad > 0) add_problem(starts, fmt::format("{} lines are not of the form STEP TIME", bad));
  }
  if (!restart) {
    for (const std::string& name : files_.list(run_dir_)) {
      if (!name.starts_with(prefix)) continue;
      const auto count = count_in(std::string_view(name).substr(prefix.size()));
      if (count && *count >= restart.value_or(0)) restart = count;
    }
  }
  if (!restart) return report;
  const std::string name = fmt::format("{}{}", prefix, *restart);
  if (const auto text = text_of(name)) {
    report.exit = comm::parse_exit(*text);
    if (!report.exit) add_problem(name, "not an exit file (CODE STEP)");
  }
  return report;
}

std::vector<ChainJob> RunFiles::chain() {
  const auto text = text_of("chain.json");
  if (!text) return {};
  try {
    return parse_chain(*text);
  } catch (const Error& error) {
    add_problem("chain.json", error.what());
    return {};
  }
}

std::optional<json::object> RunFiles::training() {
  const auto text = text_of("status.json");
  if (!text) return std::nullopt;
  auto object = object_in(*text);
  if (object && is_status(*object)) return object;
  add_problem("status.json", "not a status file of train (state, step, fraction_done, time)");
  return std::nullopt;
}

std::optional<json::object> RunFiles::validation() {
  const Path path = run_dir_ / "metrics.jsonl";
  if (!is_regular(path)) return std::nullopt;
  try {
    const File file = files_.open(path);
    const std::uint64_t size_bytes = file.stat().size_bytes;
    for (std::uint64_t tail = 1U << 16U;; tail *= 4) {
      const std::uint64_t taken = std::min(tail, size_bytes);
      std::string text(taken, '\0');
      file.read_at(as_writable_bytes(std::span<char>{text}), size_bytes - taken);
      auto found = last_validation(text, taken < size_bytes);
      if (found || taken == size_bytes || tail >= most_tail_bytes) return found;
    }
  } catch (const Error& error) {  // such as a file that a resumed run is shortening
    add_problem("metrics.jsonl", error.what());
    return std::nullopt;
  }
}

RunReport report_of(const Files& files, const Clock& clock, const Path& run_dir, const Queue& queue) {
  RunFiles run(files, run_dir);
  RunReport report;
  const std::vector<ChainJob> chain = run.chain();
  const auto training = run.training();
  const auto validation = run.validation();
  if (chain.empty() && !training && run.problems().empty())
    throw_claim(Fault::data, run_dir.string() + " is not a run directory: it has neither chain.json nor status.json",
                run_dir.string(), "a run directory", "a folder without chain.json and status.json",
                "check the path, or submit the run first");
  json::object states;
  if (!chain.empty()) report.lines.push_back(fmt::format("{:<11} {:<8} {}", "stage", "job", "state"));
  for (const std::string& stage : stages()) {
    if (chain.empty()) break;
    std::string job;
    for (const ChainJob& entry : chain) job = entry.stage == stage ? entry.job : job;
    const std::string state = state_of(job, job.empty() ? std::nullopt : run.job(job).exit, queue);
    report.lines.push_back(fmt::format("{:<11} {:<8} {}", stage, job.empty() ? "-" : job, state));
    states[stage] = {{"job", job}, {"state", state}};
  }
  json::value last_job(nullptr);
  if (training) {
    report.lines.push_back(training_line(*training, clock.wall_s()));
    if (const auto eta = eta_line(*training)) report.lines.push_back(*eta);
    if (const std::string number = string_at(*training, "job"); count_in(number)) {
      const JobReport job = run.job(number);
      report.lines.push_back(job_line(number, job));
      last_job = json::object{{"job", number}, {"starts", job.starts.size()}};
      if (job.exit) {
        last_job.get_object()["code"] = job.exit->code;
        last_job.get_object()["step"] = job.exit->step;
      }
    }
  }
  if (validation) report.lines.push_back(validation_line(*validation));
  const std::vector<std::string> checkpoints = run.checkpoints();
  report.lines.push_back(checkpoints.empty() ? "no checkpoint"
                                             : fmt::format("{} checkpoint{}, newest {}", checkpoints.size(),
                                                           checkpoints.size() == 1 ? "" : "s", checkpoints.back()));
  constexpr std::uint64_t kibi = 1024;
  const std::uint64_t used_kib = bytes_below(run_dir) / kibi, free_kib = files.free_bytes(run_dir) / kibi;
  report.lines.push_back(
      fmt::format("disk: {} MiB in {}, {} MiB free", used_kib / kibi, printable(run_dir.string()), free_kib / kibi));
  report.figures = {{"run_dir", run_dir.string()},
                    {"disk_kib", used_kib},
                    {"free_kib", free_kib},
                    {"newest_step", run.newest_step()},
                    {"training", json::value_from(training)},
                    {"job", std::move(last_job)},
                    {"validation", json::value_from(validation)},
                    {"stages", std::move(states)},
                    {"problems", json::value_from(run.problems())}};
  return report;
}

}  // namespace argosy::telemetry
