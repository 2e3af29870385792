#include "comm/nccl_watch.hpp"

#include <algorithm>
#include <utility>

#include "comm/session.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace argosy::comm {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_every{20};
constexpr std::chrono::microseconds poll_every{20};
constexpr std::chrono::seconds drain_limit{2}, abort_after{1}, teardown_limit{5};
constexpr int nccl_in_progress = 7;

Error error_of(const NcclWatch::Operation& operation, const std::string& wanted, const std::string& got) {
  return failure({operation.name, operation.size_bytes, {}, operation.step}, wanted, got,
                 "look for the rank that failed first (comm.timeout_s sets the limit)");
}

}  // namespace

void check_cuda(const NcclTable& table, int result, const std::string& action) {
  if (result == 0) return;
  const std::string got = table.cuda_error_text(result), remedy = "check the GPU of this rank";
  throw_claim(Fault::device, fmt::format("cannot {} on the GPU: {}", action, got), "", "to " + action, got, remedy);
}

Mark::Mark(const NcclTable& table, DeviceStream stream) : table_(table) {
  check_cuda(table_, table_.mark_create(&mark_), "create an event");
  if (const int result = table_.mark_record(mark_, stream); result != 0) {
    table_.mark_destroy(mark_);
    check_cuda(table_, result, "record an event");
  }
}

Mark::~Mark() { table_.mark_destroy(mark_); }

void Mark::hold(DeviceStream other) const {
  check_cuda(table_, table_.stream_wait(other, mark_), "make a stream wait");
}

/// The first error of a watch, shared with its events.
struct WatchFailure {
  void set(std::exception_ptr found) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(found);
  }
  [[nodiscard]] std::exception_ptr get() const {
    const std::lock_guard lock(mutex);
    return error;
  }

  mutable std::mutex mutex;
  std::exception_ptr error;
};

namespace {

/// The completion of an operation or of other work on a stream.
struct Ended final : Event::State {
  Ended(const NcclTable& of_table, std::shared_ptr<Mark> of, std::shared_ptr<WatchFailure> or_of)
      : table(of_table), end(std::move(of)), failure(std::move(or_of)) {}
  void wait(const std::stop_token& stop) override {
    while (!done() && !stop.stop_requested()) std::this_thread::sleep_for(poll_every);
    if (const auto error = failure->get()) std::rethrow_exception(error);
    if (done()) check_cuda(table, end->state(), "finish the work");
  }
  [[nodiscard]] bool done() const noexcept override { return failure->get() || end->state() != cuda_not_ready; }
  void wait_on(void* stream) override { end->hold(stream); }

  const NcclTable& table;
  const std::shared_ptr<Mark> end;
  const std::shared_ptr<WatchFailure> failure;
};

}  // namespace

Event record_event(const NcclTable& table, DeviceStream stream) {
  return Event{std::make_shared<Ended>(table, std::make_shared<Mark>(table, stream), std::make_shared<WatchFailure>())};
}

NcclWatch::NcclWatch(const NcclTable& table, Session& session)
    : table_(table), session_(session), timeout_s_(session.timeout_s), failure_(std::make_shared<WatchFailure>()) {
  check_cuda(table_, table_.get_device(&device_), "ask for the current device");
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

NcclWatch::~NcclWatch() { close(); }

bool NcclWatch::close() {
  if (at_rest_) return *at_rest_;
  thread_.request_stop();
  thread_.join();
  bool ended = !failure_->get() && std::uncaught_exceptions() == exceptions_;
  if (ended) {
    std::exception_ptr error = look();
    for (const auto limit = SteadyClock::now() + drain_limit; !error && !under_way_.empty(); error = look()) {
      if (SteadyClock::now() > limit) {
        error = std::make_exception_ptr(error_of(under_way_.front().operation, "end", "communication was shut down"));
        break;
      }
      std::this_thread::sleep_for(poll_every);
    }
    if (error) failure_->set(error);
    const std::shared_ptr<std::latch> left = end_all(error ? table_.comm_abort : table_.comm_destroy);
    for (const auto limit = SteadyClock::now() + teardown_limit; ended && !left->try_wait();) {
      ended = SteadyClock::now() < limit;
      std::this_thread::sleep_for(poll_every);
    }
  }
  if (!ended) session_.device_is_held = true;
  at_rest_ = ended;
  return ended;
}

std::shared_ptr<std::latch> NcclWatch::end_all(int (*end)(NcclComm)) {
  std::vector<NcclComm> comms;
  {
    const std::lock_guard lock(lists_);
    comms.swap(comms_);
  }
  auto left = std::make_shared<std::latch>(std::ssize(comms));
  for (const NcclComm comm : comms) {
    std::thread([&table = table_, device = device_, end, comm, left] {
      table.set_device(device);
      end(comm);
      left->count_down();
    }).detach();
  }
  return left;
}

void NcclWatch::add(NcclComm comm) {
  const std::lock_guard lock(lists_);
  comms_.push_back(comm);
}

void NcclWatch::forget(Entry entry) {
  const std::lock_guard lock(lists_);
  under_way_.erase(entry);
}

NcclWatch::Entry NcclWatch::announce(const Operation& operation) {
  const std::lock_guard lock(lists_);
  return under_way_.insert(under_way_.end(), {operation, nullptr, nullptr, SteadyClock::now()});
}

Event NcclWatch::follow(Entry entry, std::shared_ptr<Mark> begin, std::shared_ptr<Mark> end) {
  const std::lock_guard lock(lists_);
  entry->begun.reset();
  entry->begin = std::move(begin);
  entry->end = end;
  return Event{std::make_shared<Ended>(table_, std::move(end), failure_)};
}

void NcclWatch::throw_failure() const {
  if (const auto error = failure_->get()) std::rethrow_exception(error);
}

void NcclWatch::fail(const std::exception_ptr& error) {
  failure_->set(error);
  session_.ends_in_time(error);
}

std::exception_ptr NcclWatch::problem_of(UnderWay& one) const {
  const int state = one.end ? one.end->state() : cuda_not_ready;
  if (state != 0 && state != cuda_not_ready) {
    return std::make_exception_ptr(error_of(one.operation, "end", table_.cuda_error_text(state)));
  }
  const auto now = SteadyClock::now();
  if (!one.begun && one.begin->state() == 0) one.begun = now;
  const double waited_s = one.begun ? std::chrono::duration<double>(now - *one.begun).count() : 0;
  if (waited_s <= timeout_s_) return nullptr;
  return std::make_exception_ptr(
      error_of(one.operation, fmt::format("end within {:.3g} s", waited_s), "the GPU has not finished it"));
}

std::exception_ptr NcclWatch::look() {
  const std::lock_guard lock(lists_);
  under_way_.remove_if([](const UnderWay& one) { return one.end && one.end->state() == 0; });
  for (UnderWay& one : under_way_) {
    if (auto problem = problem_of(one)) return problem;
  }
  for (const NcclComm comm : comms_) {
    int error = 0;
    const int asked = table_.comm_get_async_error(comm, &error);
    const int problem = asked != 0 ? asked : error;
    if (problem == 0 || problem == nccl_in_progress) continue;
    const Operation unknown{.name = "a collective"};
    return std::make_exception_ptr(error_of(under_way_.empty() ? unknown : under_way_.front().operation, "succeed",
                                            fmt::format("NCCL reports \"{}\"", table_.nccl_error_text(problem))));
  }
  return nullptr;
}

void NcclWatch::watch(const std::stop_token& stop) {
  table_.set_device(device_);
  while (!stopped_within(stop, look_every)) {
    if (const std::exception_ptr error = look()) {
      fail(error);
      if (stopped_within(stop, abort_after)) return;
      const std::unique_lock calls(calls_, abort_after);  // a call that hangs is freed by the abort alone
      static_cast<void>(end_all(table_.comm_abort));
      return;
    }
  }
}

}  // namespace argosy::comm
