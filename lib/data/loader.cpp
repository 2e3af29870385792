#include "data/loader.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/clock.hpp"

namespace argosy::data {

struct Loader::State {
  State(const TokenShards& shards, const spec::Vocabulary& vocabulary, const LoaderSettings& loader_settings,
        Cursor from)
      : settings(loader_settings),
        maker(shards, vocabulary, loader_settings.epoch),
        cursor(from),
        epoch(maker.make(from.epoch)) {
    if (cursor.step >= epoch->steps()) begin_epoch(cursor.epoch + 1);
    report = epoch->report();
    thread = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
  }

  void begin_epoch(std::int64_t number) {
    epoch.reset();  // its plan is large: one at a time
    epoch = maker.make(number);
    cursor = {number, 0};
  }

  StepBatches make_step() {
    if (cursor.step >= epoch->steps()) begin_epoch(cursor.epoch + 1);
    StepBatches step;
    step.at = cursor;
    step.steps_in_epoch = epoch->steps();
    for (int slot = 0; slot < settings.epoch.sizes.accumulation; ++slot) {
      step.batches.push_back(epoch->assemble(cursor.step, slot * settings.world + settings.canonical_rank));
    }
    const EpochSource::Totals totals = epoch->totals(cursor.step);
    step.tgt_tokens = totals.tgt_tokens;
    step.src_tokens = totals.src_tokens;
    step.padded_tokens = totals.padded_tokens;
    ++cursor.step;
    step.next = cursor.step < epoch->steps() ? cursor : Cursor{cursor.epoch + 1, 0};
    step.epochs_done =
        static_cast<double>(cursor.epoch) + static_cast<double>(cursor.step) / static_cast<double>(epoch->steps());
    return step;
  }

  void run(const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        StepBatches step = make_step();
        std::unique_lock lock{mutex};
        if (!changed.wait(lock, stop, [&] { return ready.size() < settings.ahead; })) return;
        ready.push_back(std::move(step));
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock{mutex};
      failure = std::current_exception();
      changed.notify_all();
    }
  }

  LoaderSettings settings;
  EpochMaker maker;
  Cursor cursor;                       // of the step made next; the thread's
  std::unique_ptr<EpochSource> epoch;  // the thread's
  EpochSource::Report report;
  Clock clock;
  double waited_s = 0;

  std::mutex mutex;  // guards ready and failure
  std::condition_variable_any changed;
  std::deque<StepBatches> ready;
  std::exception_ptr failure;
  std::jthread thread;  // last: joined before what it uses goes
};

Loader::Loader(const TokenShards& shards, const spec::Vocabulary& vocabulary, const LoaderSettings& settings,
               Cursor from)
    : state_(std::make_unique<State>(shards, vocabulary, settings, from)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

StepBatches Loader::next() {
  State& state = *state_;
  std::unique_lock lock{state.mutex};
  if (state.ready.empty()) {
    const double begin_s = state.clock.monotonic_s();
    state.changed.wait(lock, [&] { return !state.ready.empty() || state.failure; });
    state.waited_s += state.clock.monotonic_s() - begin_s;
  }
  if (state.ready.empty()) std::rethrow_exception(state.failure);
  StepBatches step = std::move(state.ready.front());
  state.ready.pop_front();
  state.changed.notify_all();
  return step;
}

double Loader::waited_s() const noexcept { return state_->waited_s; }
const EpochSource::Report& Loader::report() const noexcept { return state_->report; }

}  // namespace argosy::data
