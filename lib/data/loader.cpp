#include "data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace argosy::data {

/// Workers take steps in order, assemble them side by side, and hand them over in order. One with nothing to assemble
/// plans the pool after the present one.
struct Loader::State {
  /// A pool, and how many of its steps are in the hands of workers.
  struct Pool {
    std::unique_ptr<PoolSource> source;
    std::int64_t in_work = 0;
  };
  State(const TokenShards& of_shards, const spec::Vocabulary& vocabulary, const LoaderSettings& loader_settings,
        Cursor from)
      : shards(of_shards), settings(loader_settings), maker(of_shards, vocabulary, loader_settings.pool) {
    pools.push_back({maker.make(from.pool)});
    step = from.step;
    while (step >= steps()) enter(maker.make(pools.back().source->next()));
    shards.release_pages();
    report = pools.back().source->report();
    for (int w = 0; w < std::max(1, settings.workers); ++w)
      threads.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }

  [[nodiscard]] std::int64_t steps() const { return pools.back().source->steps(); }

  /// Goes on to the pool after the present one.
  void enter(std::unique_ptr<PoolSource> source) {
    step -= steps();
    pools_without_steps = steps() == 0 ? pools_without_steps + 1 : 0;
    if (pools_without_steps > maker.pools_in_epoch())
      throw_error(Fault::data, "batch.micro_size",
                  fmt::format("examples that fit into {} padded_tokens", settings.pool.sizes.micro_size),
                  "only longer ones", "raise batch.micro_size, or set batch.oversized to truncate");
    pools.push_back({std::move(source)});
    release();
  }
  /// Forgets pools that nobody works on: their plans are large.
  void release() {
    while (pools.size() > 1 && pools.front().in_work == 0) pools.pop_front();
  }

  StepBatches assemble(const PoolSource& pool, std::int64_t at) {
    StepBatches made;
    made.routes = pool.routes(at);
    made.dealt = deal(made.routes, settings.deal);
    for (const std::vector<int>& slot : made.dealt) {
      const int number = slot[static_cast<std::size_t>(settings.canonical_rank)];
      made.batches.push_back(number < 0 ? Batch{} : pool.assemble(at, number));
    }
    if (maker.is_exact()) {
      made.totals = pool.totals(at);
    } else {
      for (const Batch& batch : made.batches) {
        made.totals.src_tokens += batch.src_tokens;
        made.totals.tgt_tokens += batch.tgt_tokens;
        made.totals.padded_tokens += batch.padded_tokens;
      }
    }
    const std::int64_t steps = pool.steps();
    made.at = {pool.begin(), at};
    made.next = at + 1 < steps ? Cursor{pool.begin(), at + 1} : Cursor{pool.next(), 0};
    const double done = static_cast<double>(at + 1) / static_cast<double>(steps);
    const double pools_done = static_cast<double>(pool.begin().pool) + done;
    made.epochs_done =
        static_cast<double>(pool.begin().epoch) + pools_done / static_cast<double>(maker.pools_in_epoch());
    made.passes = maker.passes(pool, done);
    return made;
  }

  [[nodiscard]] bool can_take() const { return taken - handed_over < settings.ahead && (step < steps() || planned); }
  /// Not at once: at a start, training has use for the cores.
  [[nodiscard]] bool can_plan() const { return !planned && !is_planning && step >= steps() / 4; }

  void run(const std::stop_token& stop) {
    try {
      std::unique_lock lock{mutex};
      while (changed.wait(lock, stop, [&] { return failure || can_take() || can_plan(); }) && !failure) {
        can_take() ? take(lock) : plan(lock);
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock{mutex};
      if (!failure) failure = std::current_exception();
      changed.notify_all();
    }
  }

  void plan(std::unique_lock<std::mutex>& lock) {
    is_planning = true;
    const PoolBegin at = pools.back().source->next();
    lock.unlock();
    std::unique_ptr<PoolSource> source = maker.make(at);
    lock.lock();
    planned = std::move(source);
    is_planning = false;
  }

  void take(std::unique_lock<std::mutex>& lock) {
    if (step >= steps()) enter(std::exchange(planned, nullptr));
    if (step >= steps()) return;  // a pool without steps
    Pool& pool = pools.back();
    const std::uint64_t number = taken++;
    const std::int64_t at = step++;
    ++pool.in_work;
    lock.unlock();
    StepBatches made = assemble(*pool.source, at);
    lock.lock();
    --pool.in_work;
    release();
    ready.emplace(number, std::move(made));
  }

  const TokenShards& shards;
  LoaderSettings settings;
  PoolMaker maker;
  PoolSource::Report report;
  Clock clock;
  double waited_s = 0;

  std::mutex mutex;  // guards what follows
  std::condition_variable_any changed;
  std::list<Pool> pools;
  std::int64_t step = 0;                 // of the last pool: the next to be taken
  std::int64_t pools_without_steps = 0;  // in a row
  std::unique_ptr<PoolSource> planned;   // the pool after the last
  bool is_planning = false;
  std::uint64_t taken = 0, handed_over = 0;  // steps, since the loader began
  std::map<std::uint64_t, StepBatches> ready;
  std::exception_ptr failure;
  std::vector<std::jthread> threads;  // last: joined before what they use goes
};

Loader::Loader(const TokenShards& shards, const spec::Vocabulary& vocabulary, const LoaderSettings& settings,
               Cursor from)
    : state_(std::make_unique<State>(shards, vocabulary, settings, std::move(from))) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

StepBatches Loader::next() {
  State& state = *state_;
  std::unique_lock lock{state.mutex};
  const auto is_there = [&] { return state.ready.contains(state.handed_over); };
  if (!is_there()) {
    const double begin_s = state.clock.monotonic_s();
    state.changed.wait(lock, [&] { return is_there() || state.failure; });
    state.waited_s += state.clock.monotonic_s() - begin_s;
  }
  if (!is_there()) std::rethrow_exception(state.failure);
  StepBatches step = std::move(state.ready.extract(state.handed_over).mapped());
  ++state.handed_over;
  state.changed.notify_all();
  return step;
}

double Loader::waited_s() const noexcept { return state_->waited_s; }
bool Loader::is_exact() const noexcept { return state_->maker.is_exact(); }
const PoolSource::Report& Loader::report() const noexcept { return state_->report; }
std::int64_t Loader::pools_in_epoch() const noexcept { return state_->maker.pools_in_epoch(); }
const std::vector<double>& Loader::shares() const noexcept { return state_->maker.shares(); }

}  // namespace argosy::data
