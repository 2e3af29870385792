#include "train/export_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cmath>

#include "core/error.hpp"

namespace argosy::train {
namespace {

/// The last line that is not blank.
std::string_view last_line(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const std::size_t end = text.find_last_not_of(blank);
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t begin = text.rfind('\n');
  return begin == std::string_view::npos ? text : text.substr(begin + 1);
}

}  // namespace

ExportCommand::ExportCommand(const plan::CommandConfig& config, const Files& files, const Path& run_dir, const Log& log,
                             const Clock& clock)
    : config_(config), files_(files), output_(run_dir / "command.json"), log_(&log), clock_(&clock) {}

void ExportCommand::exported(std::int64_t step, const Path& directory) {
  if (step == step_) return;
  waiting_.emplace(step, directory);
  if (!child_) start(step, directory);
}

void ExportCommand::start(std::int64_t step, const Path& directory) {
  waiting_.reset();
  step_ = step;
  begin_s_ = clock_->monotonic_s();
  warn_once([&] {
    child_.emplace(config_.run, std::vector{fmt::format("ARGOSY_STEP={}", step), "ARGOSY_EXPORT=" + directory.string()},
                   output_);
  });
}

template <class Body>
void ExportCommand::warn_once(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    if (!std::exchange(failing_, true))
      log_->warn("validation.command gives no figures of step {}, and training continues: {}", step_, error.what());
  }
}

std::optional<telemetry::ValidationRecord> ExportCommand::poll() {
  if (!child_) return std::nullopt;
  const std::optional<int> code = child_->poll();
  const double taken_s = clock_->monotonic_s() - begin_s_;
  if (!code && taken_s < config_.limit_s) return std::nullopt;
  std::optional<telemetry::ValidationRecord> record;
  child_.reset();
  warn_once([&] {
    if (!code)
      throw_error(Fault::data, "the command", fmt::format("done within {:g} s", config_.limit_s),
                  fmt::format("{:.3f} s without an end, after which it was killed", taken_s),
                  "raise validation.command.limit_s, or make the command faster");
    record.emplace().set = "command";
    record->figures = figures(*code);
    record->figures.push_back({"export_step", static_cast<double>(step_)});
    failing_ = false;
  });
  if (waiting_) {
    const auto [step, directory] = *waiting_;
    start(step, directory);
  }
  return record && !record->figures.empty() ? std::move(record) : std::nullopt;
}

std::vector<telemetry::Figure> ExportCommand::figures(int code) const {
  constexpr std::uint64_t most_bytes = 16 << 20;
  if (code != 0)
    throw_error(Fault::data, "the command", "an exit with code 0", std::to_string(code), "see its message");
  const auto facts = files_.stat(output_);
  std::string text;
  if (facts && facts->size_bytes <= most_bytes) text = files_.read_text(output_);
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(last_line(text), error);
  std::vector<telemetry::Figure> figures;
  if (!error && value.is_object()) {
    for (const auto& member : value.get_object())
      if (member.value().is_number()) figures.push_back({member.key(), member.value().to_number<double>()});
  }
  if (figures.empty())
    throw_error(Fault::data, output_.string(), R"(a last line such as {"comet": 0.81}, a JSON object with numbers)",
                text.empty() ? "nothing" : "another text", "let the command print one");
  return figures;
}

}  // namespace argosy::train
