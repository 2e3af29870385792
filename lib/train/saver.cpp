#include "train/saver.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace argosy::train {
namespace {

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();

}  // namespace

Saver::Saver(const comm::Context& context, checkpoint::Store& store, HostState& state,
             const plan::CheckpointConfig& config, std::string tokenizer_model,
             std::function<void(std::int64_t, bool)> ended)
    : context_(context),
      store_(store),
      state_(state),
      config_(config),
      tokenizer_{"tokenizer.model", std::move(tokenizer_model)},
      ended_(std::move(ended)) {}

void Saver::hold_up(const std::function<void()>& wait) {
  const double begin_s = context_.clock.monotonic_s();
  wait();
  held_up_s_ += context_.clock.monotonic_s() - begin_s;
}

void Saver::poll() {
  std::optional<checkpoint::SaveReport> report;
  hold_up([&] { report = store_.poll_save(); });
  take(report, config_.max_failed_saves - 1);
}

void Saver::begin(checkpoint::Kind kind, std::int64_t step, const Sections& sections, bool must) {
  if (store_.is_saving()) {
    if (config_.on_busy == plan::OnBusy::skip && kind == checkpoint::Kind::temp && !must) {
      ++figures_.left_out;
      if (context_.is_root()) {
        context_.log.warn("step {} is not saved, because the checkpoint of step {} is still being written", step,
                          step_);
      }
      return;
    }
    std::optional<checkpoint::SaveReport> report;
    hold_up([&] { report = store_.finish_save(); });
    take(report, config_.max_failed_saves - 1);
  }
  start(kind, step, sections);
}

void Saver::save_last(checkpoint::Kind kind, std::int64_t step, const Sections& sections, checkpoint::Tidy tidy) {
  take(store_.finish_save(), any_number);  // what it holds will be in the one that follows
  start(kind, step, sections);
  std::optional<checkpoint::SaveReport> report;
  hold_up([&] { report = store_.finish_save(tidy); });
  take(report, 0);
}

void Saver::before_update() {
  hold_up([&] { store_.wait_for_units(); });
}

void Saver::start(checkpoint::Kind kind, std::int64_t step, const Sections& sections) {
  step_ = step;
  held_up_s_ = 0;
  hold_up([&] {
    state_.begin_copy();
    const bool with_optimizer = kind == checkpoint::Kind::temp || config_.export_state == plan::ExportState::full;
    store_.begin_save(kind, step, state_.states(with_optimizer), sections(), {&tokenizer_, 1},
                      [this] { state_.complete_copy(); });
  });
}

void Saver::take(const std::optional<checkpoint::SaveReport>& report, std::int64_t most_failures) {
  if (!report) return;
  figures_.held_up_s += held_up_s_;
  ended_(step_, report->committed);
  if (report->committed) {
    failures_in_a_row_ = 0;
    ++figures_.saved;
    figures_.seconds += report->seconds;
    figures_.longest_s = std::max(figures_.longest_s, report->seconds + store_.tidying_s());
    figures_.newest = report->directory;
    context_.log.info("saved {} ({:.1f} MiB in {:.2f} s; training waited for {:.3f} s)", report->directory.string(),
                      static_cast<double>(report->bytes) / (1 << 20), report->seconds, held_up_s_);
    return;
  }
  ++failures_in_a_row_;
  ++figures_.failed;
  if (failures_in_a_row_ <= most_failures) {
    if (context_.is_root()) {
      context_.log.warn("step {} was not saved, and training continues: {}", step_, report->why_not);
    }
    return;
  }
  const std::string got =
      failures_in_a_row_ == 1 ? "a failed save" : fmt::format("{} failed saves in a row", failures_in_a_row_);
  const std::string remedy = "free space or repair the file system, then run the same command to resume";
  throw Error{Fault::io,
              {.sentence = fmt::format("{}: training stops after {}; {}; the last error is: {}",
                                       store_.run_dir().string(), got, remedy, report->why_not),
               .wanted = "a saved checkpoint",
               .got = fmt::format("{}: {}", got, report->why_not),
               .where = store_.run_dir().string(),
               .remedy = remedy}};
}

}  // namespace argosy::train
